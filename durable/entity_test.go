package durable

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// An operation that panics or fails leaves the value as it found it and sends nothing; the operations before and behind it
// run, on what it left.
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
