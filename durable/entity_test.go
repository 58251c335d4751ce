package durable

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

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
	out, err := e.runBatch(t.Context(), slog.New(slog.NewTextHandler(&logged, nil)), JSON{}, b)
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
			out, err := e.runBatch(t.Context(), slog.New(slog.DiscardHandler), JSON{}, b)
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
