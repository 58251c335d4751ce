package durable

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// An operation that panics or fails leaves the value as it found it and sends nothing; the operations before
// and behind it run, on what it left.
func TestOperationThatPanics(t *testing.T) {
	e := NewEntity("list",
		Op("add", func(ctx *EntityContext, l *[]int, n int) ([]int, error) {
			*l = append(*l, n)
			if err := ctx.Signal("list@other", "add", n); err != nil {
				return nil, err
			}
			switch {
			case n < 0:
				panic("negative")
			case n == 0:
				return nil, errors.New("nothing")
			}
			return slices.Clone(*l), nil
		}),
		Op("drop", func(ctx *EntityContext, _ *[]int, _ struct{}) (int, error) {
			ctx.Delete()
			panic("before it was deleted")
		}))
	b := &perdurev1.EntityBatch{Id: "list@a", Version: 7, Exists: true, Value: []byte("[1]")}
	for _, in := range []string{"2", "-3", "0", "4"} {
		b.Operations = append(b.Operations, &perdurev1.EntityOperation{Request: "r" + in, Name: "add", Input: []byte(in)})
	}
	b.Operations = append(b.Operations, &perdurev1.EntityOperation{Request: "d", Name: "drop"}, &perdurev1.EntityOperation{Request: "u", Name: "unknown"})
	var logged bytes.Buffer
	out, err := e.runBatch(t.Context(), slog.New(slog.NewTextHandler(&logged, nil)), JSON{}, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"event=operation_panic operation=add", "panic=negative", "TestOperationThatPanics"} {
		if !strings.Contains(logged.String(), part) {
			t.Errorf("no %q in the log: %s", part, logged.String())
		}
	}
	if string(out.Value) != "[1,2,4]" || !out.Exists || out.Version != 7 {
		t.Errorf("the value is %s", out.Value)
	}
	var sent []string
	for _, s := range out.Signals {
		sent = append(sent, string(s.Input))
	}
	if !slices.Equal(sent, []string{"2", "4"}) {
		t.Errorf("the signals %v were sent", sent)
	}
	for i, want := range []string{"[1,2]", "!panic negative", "!error nothing", "[1,2,4]", "!panic before it was deleted", "!unknown_operation"} {
		got := string(out.Results[i].Outcome.GetValue())
		if f := out.Results[i].Outcome.GetFailure(); f != nil {
			got = "!" + f.Type + " " + f.Message
		}
		if want != got && (want != "!unknown_operation" || out.Results[i].Outcome.GetFailure().GetType() != TypeUnknownOperation) {
			t.Errorf("result %d is %s, must be %s", i, got, want)
		}
	}
}

// A commit has as many results as fit: what is left of the batch runs again, on the value that the commit leaves. An
// operation that alone sends too much fails, and leaves the value and the batch as they were.
func TestBatchFitsIntoCommit(t *testing.T) {
	e := NewEntity("fat",
		Op("answer", func(_ *EntityContext, n *int, size int) (string, error) {
			*n++
			return strings.Repeat("x", size), nil
		}),
		Op("send", func(ctx *EntityContext, n *int, many int) (int, error) {
			*n++
			for range many {
				if err := ctx.Signal("fat@other", "answer", 0); err != nil {
					return 0, err
				}
			}
			return *n, nil
		}),
		Op("load", func(ctx *EntityContext, n *int, size int) (int, error) {
			*n++
			for range 3 {
				if err := ctx.Signal("fat@other", "answer", strings.Repeat("x", size)); err != nil {
					return 0, err
				}
			}
			return *n, nil
		}))
	const most = id.MaxPayloadBytes - 2
	for _, c := range []struct {
		name, op    string
		inputs      []int
		want, fails int
	}{
		{"small", "answer", []int{1, 2, 3}, 3, 0},
		{"large results", "answer", []int{most, most, most, most, most}, 2, 0},
		{"large signals", "load", []int{most / 2, most / 2, most / 2}, 1, 0},
		{"many signals", "send", []int{9_000, 1_000, 1}, 2, 0},
		{"too many signals", "send", []int{1, id.MaxCommitItems + 1, 1}, 3, 1},
		{"too large signals", "load", []int{1, most, 1}, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &perdurev1.EntityBatch{Id: "fat@a", Exists: true, Value: []byte("0")}
			for i, n := range c.inputs {
				b.Operations = append(b.Operations, &perdurev1.EntityOperation{Request: fmt.Sprint(i), Name: c.op, Input: []byte(fmt.Sprint(n))})
			}
			out, err := e.runBatch(t.Context(), slog.New(slog.DiscardHandler), JSON{}, b, nil)
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			for _, r := range out.Results {
				if f := r.Outcome.GetFailure(); f.GetType() == TypeTooLarge {
					failed++
				}
			}
			if len(out.Results) != c.want || failed != c.fails || string(out.Value) != fmt.Sprint(c.want-c.fails) {
				t.Errorf("%d results, %d failed, the value is %s; must be %d and %d", len(out.Results), failed, out.Value, c.want, c.fails)
			}
			if size := proto.Size(out); size > id.MaxCommitBytes+1<<20 || len(out.Signals) > id.MaxCommitItems {
				t.Errorf("a commit of %d bytes and %d signals", size, len(out.Signals))
			}
		})
	}
}

// Operations that signal an entity which stays full fail, and nothing of them is sent. The others run.
func TestBatchForFullEntity(t *testing.T) {
	e := NewEntity("sum", Op("pass", func(ctx *EntityContext, n *int, to string) (int, error) {
		*n++
		return *n, ctx.Signal(EntityID(to), "pass", "sum@end")
	}))
	b := &perdurev1.EntityBatch{Id: "sum@a", Exists: true, Value: []byte("5")}
	for i, to := range []string{"sum@b", "sum@full", "sum@b"} {
		b.Operations = append(b.Operations, &perdurev1.EntityOperation{Request: fmt.Sprint(i), Name: "pass", Input: []byte(`"` + to + `"`)})
	}
	var logged bytes.Buffer
	out, err := e.runBatch(t.Context(), slog.New(slog.NewTextHandler(&logged, nil)), JSON{}, b, map[string]bool{"sum@full": true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.Results {
		got = append(got, string(r.Outcome.GetValue())+r.Outcome.GetFailure().GetType())
	}
	if want := []string{"6", TypeEntityFull, "7"}; !slices.Equal(got, want) || string(out.Value) != "7" {
		t.Errorf("the results are %v, must be %v; the value is %s", got, want, out.Value)
	}
	if len(out.Signals) != 2 || out.Signals[0].Id != "sum@b" || out.Signals[1].Id != "sum@b" {
		t.Errorf("the signals %v are sent", out.Signals)
	}
	if !strings.Contains(logged.String(), "event=entity_full operation=pass") || !strings.Contains(logged.String(), "full=sum@full") {
		t.Errorf("the log does not name the operation and the full entity: %s", logged.String())
	}
}

// A batch waits fullTimeout for another entity that is full, and not at all for its own. Once that has refused for so long,
// the next batches do not wait, until it has taken a signal or has not refused for as long.
func TestFullEntities(t *testing.T) {
	refusal := func(entityID string) *perdurev1.CallError {
		return &perdurev1.CallError{Reason: perdurev1.Reason_REASON_OVERLOADED, Metadata: map[string]string{"rule": "entity_backlog", "id": entityID}}
	}
	signals := func(to ...string) (out []*perdurev1.EntitySignal) {
		for _, one := range to {
			out = append(out, &perdurev1.EntitySignal{Id: one})
		}
		return out
	}
	f := fullEntities{}
	at := time.Unix(1_000, 0)
	step := func(what string, after time.Duration, e *perdurev1.CallError, gives bool) {
		t.Helper()
		at = at.Add(after)
		if f.refused(e, "sum@self", at) != gives {
			t.Errorf("%s: the batch gives up: %t, must: %t", what, !gives, gives)
		}
		if gives != f.failing[e.GetMetadata()["id"]] {
			t.Errorf("%s: %v fail", what, f.failing)
		}
	}
	step("another overload", 0, &perdurev1.CallError{Reason: perdurev1.Reason_REASON_OVERLOADED}, false)
	step("itself", 0, refusal("sum@self"), true)
	step("the first refusal", 0, refusal("sum@a"), false)
	step("a little later", fullTimeout-1, refusal("sum@a"), false)
	step("long enough", 1, refusal("sum@a"), true)
	f.sent(signals("sum@b"))
	step("the next batch", 1, refusal("sum@a"), true)
	f.sent(signals("sum@a"))
	step("after it took a signal", 1, refusal("sum@a"), false)
	step("in between", fullTimeout/2, refusal("sum@a"), false)
	step("after a long time without a refusal", 2*fullTimeout, refusal("sum@a"), false)
}
