package embed_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"perdure/client"
	"perdure/durable"
)

// ship is a version of one function: the versions have different steps, so no version can continue another's executions.
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

// TestVersionsSideBySide deploys new code beside the old one: executions that began on the old code end on it, new ones run
// on the new code, and no journal meets the code of another version.
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

// TestStuckCode deploys code that claims to continue the executions of the old code, and cannot. They are stuck and listed,
// are not tried again, and continue when workers of the old code attach again, or by hand.
func TestStuckCode(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"digests", "no digests", "by hand"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			v1, v2 := ship("v1"), ship("v2")
			digest, compatible := map[bool]string{true: "", false: "v1"}[how == "no digests"], []string(nil)
			a := w.work(durable.WorkerOptions{Name: "a", Digest: digest}, v1)
			h := begin(w, v1, "x", 1)
			w.waitsFor("x", "go")
			a.stop()
			if digest != "" {
				digest, compatible = "v2", []string{"v1"}
			}
			b := w.work(durable.WorkerOptions{Name: "b", Digest: digest, CompatibleWith: compatible}, v2)
			w.signal("x", "go", `"go"`)
			b.saw(durable.EventProblem, "x", 1)
			until(t, "the execution to be stuck", func() error {
				if e := w.describe("x"); e.GetWakeSource() != "stuck: code" {
					return fmt.Errorf("it waits for %q", e.GetWakeSource())
				}
				return nil
			})
			if got := w.list(client.ListOptions{Problem: true}); len(got) != 1 || !strings.Contains(got[0].GetProblem(), "pack of v1") {
				t.Errorf("listed with problems: %v", got)
			}
			if n := b.count(durable.EventProblem, "x"); n != 1 {
				t.Errorf("it was tried %d times", n)
			}
			if how == "by hand" {
				if r, err := w.Restart(soon(t), "x", client.RestartOptions{FromFailure: true}); err != nil || r.Incarnation != r.Former {
					t.Fatalf("retried: %+v, %v", r, err)
				}
				b.saw(durable.EventProblem, "x", 2)
			}
			if digest != "" {
				digest = "v1"
			}
			b.stop()
			c := w.work(durable.WorkerOptions{Name: "c", Digest: digest}, v1)
			if got := result(t, h); got != "v1 v1" {
				t.Errorf("it ended as %q", got)
			}
			c.noProblems()
			c.stop()
		})
	}
}
