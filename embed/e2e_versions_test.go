package embed_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"perdure/client"
	"perdure/durable"
)

// ship is a version of one function: the versions have different steps, so no version can continue another's
// executions.
func ship(version string) *durable.Function[int, string] {
	return durable.NewFunction("ship", func(ctx durable.Context, _ int) (string, error) {
		step := func(name string) (string, error) {
			return durable.Run(ctx, name+" of "+version, func(context.Context) (string, error) { return version, nil })
		}
		first, err := step("pack")
		if err != nil {
			return "", err
		}
		if _, err := durable.WaitSignal[string](ctx, "go"); err != nil {
			return "", err
		}
		last, err := step("send")
		return first + " " + last, err
	})
}

// TestVersionsSideBySide deploys new code beside the old one: executions that began on the old code end on
// it, new ones run on the new code, and no journal meets the code of another version.
func TestVersionsSideBySide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v1, v2 := ship("v1"), ship("v2")
	a := w.work(durable.WorkerOptions{Name: "a", Digest: "v1"}, v1)
	old := begin(w, v1, "old", 1)
	w.waitsFor("old", "go")
	b := w.work(durable.WorkerOptions{Name: "b", Digest: "v2"}, v2)
	next := begin(w, v2, "next", 1)
	w.waitsFor("next", "go")
	named := begin(w, v1, "named", 1, durable.StartDigest("v1"))
	w.waitsFor("named", "go")
	for _, id := range []string{"old", "next", "named"} {
		w.signal(id, "go", `"go"`)
	}
	if got := result(t, old) + ", " + result(t, next) + ", " + result(t, named); got != "v1 v1, v2 v2, v1 v1" {
		t.Errorf("old, next and named ended as %s", got)
	}
	a.noProblems()
	b.noProblems()
	a.stop()
	// Without workers of its digest an execution waits for them.
	late := begin(w, v1, "late", 1, durable.StartDigest("v1"))
	if e := w.describe("late"); e.GetWakeSource() != "no worker" || e.GetComponentDigest() != "v1" {
		t.Errorf("it waits for %q", e.GetWakeSource())
	}
	again := w.work(durable.WorkerOptions{Name: "again", Digest: "v1"}, v1)
	w.signal("late", "go", `"go"`)
	if got := result(t, late); got != "v1 v1" {
		t.Errorf("late ended as %s", got)
	}
	again.stop()
	b.stop()
}

// isStuck waits until an execution is stuck, and checks that the listing says what did not fit.
func (w *world) isStuck(id, difference string) {
	w.t.Helper()
	until(w.t, id+" to be stuck", func() error {
		if e := w.describe(id); e.GetWakeSource() != "stuck: code" {
			return fmt.Errorf("it waits for %q", e.GetWakeSource())
		}
		return nil
	})
	if got := w.list(client.ListOptions{Problem: true}); len(got) != 1 || got[0].GetId() != id || !strings.Contains(got[0].GetProblem(), difference) {
		w.t.Errorf("listed with problems: %v", got)
	}
}

// TestStuckCode deploys code that claims to continue the executions of the old code, and cannot. They are
// stuck and listed, are not tried again, and continue when workers of the old code attach again.
func TestStuckCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v1, v2 := ship("v1"), ship("v2")
	old := w.work(durable.WorkerOptions{Digest: "v1"}, v1)
	h := begin(w, v1, "x", 1)
	w.waitsFor("x", "go")
	old.stop()

	wrong := w.work(durable.WorkerOptions{Digest: "v2", CompatibleWith: []string{"v1"}}, v2)
	w.signal("x", "go", `"go"`)
	w.isStuck("x", `"pack of v1" in the journal, the code asks for step "pack of v2"`)
	if n := wrong.count(durable.EventProblem, "x"); n != 1 {
		t.Errorf("it was tried %d times", n)
	}
	wrong.stop()

	old = w.work(durable.WorkerOptions{Digest: "v1"}, v1)
	if got := result(t, h); got != "v1 v1" {
		t.Errorf("it ended as %q", got)
	}
	old.noProblems()
}

// TestStuckWithoutDigests is the same where workers have no digests: a worker that attaches later is other code.
func TestStuckWithoutDigests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v1, v2 := ship("v1"), ship("v2")
	old := w.work(durable.WorkerOptions{}, v1)
	h := begin(w, v1, "x", 1)
	w.waitsFor("x", "go")
	old.stop()
	wrong := w.work(durable.WorkerOptions{}, v2)
	w.signal("x", "go", `"go"`)
	w.isStuck("x", "pack of v1")
	wrong.stop()
	w.work(durable.WorkerOptions{}, v1)
	if got := result(t, h); got != "v1 v1" {
		t.Errorf("it ended as %q", got)
	}
}

// TestStuckIsRetriedByHand gives a stuck execution to the same code again, where it is stuck again, and pins
// it to another digest, whose code fits: it keeps its journal.
func TestStuckIsRetriedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v1, v2 := ship("v1"), ship("v2")
	old := w.work(durable.WorkerOptions{Digest: "v1"}, v1)
	h := begin(w, v1, "x", 1)
	w.waitsFor("x", "go")
	old.stop()
	wrong := w.work(durable.WorkerOptions{Digest: "v2", CompatibleWith: []string{"v1"}}, v2)
	w.signal("x", "go", `"go"`)
	w.isStuck("x", "pack of v1")
	if r, err := w.Restart(soon(t), "x", client.RestartOptions{FromFailure: true}); err != nil || r.Incarnation != r.Former {
		t.Fatalf("retried: %+v, %v", r, err)
	}
	wrong.saw(durable.EventProblem, "x", 2)
	w.isStuck("x", "pack of v1")

	mended := w.work(durable.WorkerOptions{Digest: "v3"}, v1)
	if r, err := w.Restart(soon(t), "x", client.RestartOptions{FromFailure: true, Digest: "v3"}); err != nil || r.Kept == 0 {
		t.Fatalf("pinned to v3: %+v, %v", r, err)
	}
	if got := result(t, h); got != "v1 v1" {
		t.Errorf("it ended as %q", got)
	}
	mended.noProblems()
}
