package durable

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A function that continues as new with an input that it cannot read is told so in the incarnation that made
// the mistake, also when it goes on and is replayed.
func TestContinueWithForeignInput(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ int) (int, error) {
		refused := ContinueAsNew(ctx, "one more")
		if err := Sleep(ctx, time.Minute); err != nil {
			return 0, err
		}
		return 0, refused
	}))
	f.start("x", "f", `1`)
	f.wait("the end of x", func() bool { return f.execs["x"].j.Status().Terminal() })
	entries := f.journalOf("x")
	failed := entries[len(entries)-1].GetEvent().GetExecutionFailed().GetError()
	if failed.GetType() != TypeEncoding || !strings.Contains(failed.GetMessage(), "the input of the next incarnation as *int") {
		t.Errorf("x failed with %v", failed)
	}
}

// An id that nothing can have is an error that the function can handle, not one that the server refuses again
// and again.
func TestBadTargets(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (refused []string, err error) {
		for _, id := range []string{"", "a\x00b", "caf\xe9", strings.Repeat("i", 2000)} {
			_, signal := GoSignal(ctx, id, "hello", 1)
			_, promise := AwaitPromise[string](ctx, id)
			for _, err := range []error{Signal(ctx, id, "hello", 1), signal, promise} {
				var bad *Error
				if !errors.As(err, &bad) || bad.Type != TypeBadRequest {
					return nil, fmt.Errorf("%q: %w", id, err)
				}
				refused = append(refused, bad.Message)
			}
		}
		return refused[:1], Sleep(ctx, time.Millisecond)
	}))
	f.start("x", "f", `""`)
	if got := string(f.finished("x").GetValue()); got != `["id \"\" is empty"]` {
		t.Error(got)
	}
}

// TestJoinedFailure: the type of a failure is not repeated in its message.
func TestJoinedFailure(t *testing.T) {
	own := &Error{Type: "broke", Message: "no money"}
	for _, err := range []error{own, errors.Join(nil, own), Permanent(own)} {
		if f := failureOf(err); f.Type != "broke" || f.Message != "no money" {
			t.Errorf("%T: type %q, message %q", err, f.Type, f.Message)
		}
	}
	if f := failureOf(errors.Join(own, errors.New("and no card"))); f.Message != "no money\nand no card" {
		t.Errorf("message %q", f.Message)
	}
}

// TestPollRest: while steps run, what else the function awaits is seen at most an eighth of the wait late, and never
// after more than two seconds.
func TestPollRest(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, 400 * time.Millisecond: 50 * time.Millisecond, time.Second: 125 * time.Millisecond,
		8 * time.Second: time.Second, 16 * time.Second: 2 * time.Second, time.Hour: 2 * time.Second,
	} {
		if got := pollRest(waited); got != want {
			t.Errorf("after %v: %v, want %v", waited, got, want)
		}
	}
}
