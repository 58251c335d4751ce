package embed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"perdure/durable"
)

// TestWhatNoMessageCarries has functions say what cannot be put on the wire: text that is not UTF-8, and
// failures beyond every limit. It costs the worker and its other executions nothing.
func TestWhatNoMessageCarries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const broken = "caf\xe9 \xff"
	fails := durable.NewFunction("fails", func(ctx durable.Context, in string) (string, error) {
		switch in {
		case "error":
			return "", errors.New(broken)
		case "type":
			return "", &durable.Error{Type: broken, Message: broken}
		case "long message":
			return "", errors.New("x" + strings.Repeat("é", 100_000)) // a cut falls into a character
		case "long type":
			return "", &durable.Error{Type: strings.Repeat("é", 1000)}
		case "large details":
			return "", &durable.Error{Type: "mine", Message: "look", Details: make([]byte, 5<<20)}
		case "step":
			_, err := durable.Run(ctx, "s", func(context.Context) (string, error) { return "", errors.New(broken) },
				durable.WithRetry(durable.RetryPolicy{MaxAttempts: 2, Initial: time.Millisecond}))
			return "", err
		case "step panic":
			_, err := durable.Run(ctx, "s", func(context.Context) (string, error) { panic(broken) }, durable.NoRetry())
			return "", err
		}
		return "", nil
	})
	stuck := durable.NewFunction("stuck", func(ctx durable.Context, in string) (out string, err error) {
		switch in {
		case "panic":
			panic(broken)
		case "step name":
			_, err = durable.Run(ctx, broken, func(context.Context) (int, error) { return 1, nil })
		case "signal name":
			_, err = durable.WaitSignal[int](ctx, broken)
		case "function name":
			_, err = durable.CallName[int](ctx, broken, 1)
		case "tags":
			_, err = durable.CallName[int](ctx, "fails", 1, durable.CallTags(map[string]string{"k": broken}))
		case "receiver":
			if err = durable.Signal(ctx, broken, "s", 1); err == nil {
				err = durable.Sleep(ctx, time.Millisecond)
			}
		case "no step name":
			_, err = durable.Run(ctx, "", func(context.Context) (int, error) { return 1, nil })
		}
		return fmt.Sprint(err), nil
	})
	waits := durable.NewFunction("waits", func(ctx durable.Context, in string) (string, error) {
		return durable.Run(ctx, "wait", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	})
	x := w.work(durable.WorkerOptions{StopGrace: time.Millisecond}, fails, stuck, waits)
	begin(w, waits, "bystander", "")
	for _, in := range []string{"error", "type", "long message", "long type", "large details", "step", "step panic"} {
		id := strings.ReplaceAll(in, " ", "-")
		begin(w, fails, id, in)
		if end := w.ending(id); end.Status != failed {
			t.Errorf("%s: %v", in, end)
		}
		w.validJournal(id)
	}
	if end := w.ending("error"); end.Failure.GetMessage() != "caf\ufffd \ufffd" {
		t.Errorf("the error reads %q", end.Failure.GetMessage())
	}
	if end := w.ending("large-details"); end.Failure.GetType() != "mine" || !strings.HasPrefix(end.Failure.GetMessage(), "look") {
		t.Errorf("the error reads %v", end)
	}
	// A problem of the code becomes a problem of its execution, with a message.
	for _, in := range []string{"panic", "step name", "signal name", "function name", "tags", "no step name"} {
		id := strings.ReplaceAll(in, " ", "-")
		begin(w, stuck, id, in)
		until(t, in+" to be reported", func() error {
			e := w.describe(id)
			if e.GetLastProblem() == "" {
				return fmt.Errorf("it is %v", e)
			}
			return nil
		})
	}
	// An id is data: the function gets an error.
	begin(w, stuck, "receiver", "receiver")
	if out, err := w.Result(soon(t), "receiver"); err != nil || !strings.Contains(string(out), "bad_request: id") {
		t.Errorf("a signal to what is no id: %q, %v", out, err)
	}
	if n := x.count(durable.EventDisconnected, ""); n != 0 {
		t.Errorf("the worker's stream broke %d times", n)
	}
	if n := x.count(durable.EventLost, "bystander"); n != 0 {
		t.Error("the worker lost another execution")
	}
}
