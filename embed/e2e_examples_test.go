package embed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// Tests that read as examples; examples/README.md lists them with others.

// guest is a child that ends when somebody lets it.
var guest = durable.NewFunction("guest", func(ctx durable.Context, name string) (string, error) {
	_, err := durable.WaitSignal[string](ctx, "arrived")
	return name, err
})

// A join set hands out results in the order in which they come. A worker that replays the function later
// hands out the same order.
func TestJoinSetOrder(t *testing.T) {
	w := newWorld(t)
	party := durable.NewFunction("party", func(ctx durable.Context, names []string) (order []string, err error) {
		set, err := durable.NewJoinSet[string](ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			f, err := durable.Go(ctx, guest, name)
			if err != nil {
				return nil, err
			}
			if err := set.Submit(ctx, f); err != nil {
				return nil, err
			}
		}
		for set.Len() > 0 {
			f, err := set.Next(ctx)
			if err != nil {
				return nil, err
			}
			name, err := f.Get(ctx)
			if err != nil {
				return nil, err
			}
			order = append(order, name)
		}
		set.Close()
		_, err = durable.WaitSignal[string](ctx, "over")
		return order, err
	})
	first := w.work(durable.WorkerOptions{}, party, guest)
	h := begin(w, party, "party", []string{"ann", "bob", "cleo"})
	for _, child := range []string{"party:3", "party:1", "party:2"} {
		w.waitsFor(child, "arrived")
		w.signal(child, "arrived", `"hello"`)
		w.reaches(child, perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED)
	}
	w.waitsFor("party", "over")
	first.stop()
	w.work(durable.WorkerOptions{}, party, guest)
	w.signal("party", "over", `"good night"`)
	if got := result(t, h); !slices.Equal(got, []string{"cleo", "ann", "bob"}) {
		t.Errorf("they came as %q", got)
	}
	events := w.validJournal("party")
	if events["JoinSetCreated"] != 1 || events["JoinSetSubmitted"] != 3 || events["JoinSetAwaited"] != 3 {
		t.Errorf("the journal has %v", events)
	}
}

// A step's retries end with its total time, or with a failure of a type for which another attempt is no use.
func TestStepThatFails(t *testing.T) {
	w := newWorld(t)
	var slow, declined atomic.Int32
	fn := durable.NewFunction("pay", func(ctx durable.Context, _ string) (types []string, err error) {
		often := durable.WithRetry(durable.RetryPolicy{MaxAttempts: 1000, Initial: 10 * time.Millisecond, Max: 20 * time.Millisecond, Jitter: 0.5})
		_, unreachable := durable.Run(ctx, "unreachable", func(context.Context) (string, error) {
			slow.Add(1)
			return "", errors.New("connection refused")
		}, often, durable.WithTotalTimeout(300*time.Millisecond))
		_, refused := durable.Run(ctx, "refused", func(context.Context) (string, error) {
			declined.Add(1)
			return "", &durable.Error{Type: "declined", Message: "no money"}
		}, often, durable.WithNonRetryable("declined"))
		for _, err := range []error{unreachable, refused} {
			var failure *durable.Error
			if !errors.As(err, &failure) {
				return nil, err
			}
			types = append(types, failure.Type)
		}
		return types, nil
	})
	w.work(durable.WorkerOptions{}, fn)
	if got := result(t, begin(w, fn, "pay", "")); !slices.Equal(got, []string{durable.TypeTimeout, "declined"}) {
		t.Errorf("the steps failed with %q", got)
	}
	if slow.Load() < 2 || declined.Load() != 1 {
		t.Errorf("%d attempts until the time was over, %d of what was declined", slow.Load(), declined.Load())
	}
}

// A UUID, and a timer for an instant: both are the same for the worker that replays the function.
func TestInstantAndUUID(t *testing.T) {
	w := newWorld(t)
	seen := make(chan string, 10)
	fn := durable.NewFunction("ticket", func(ctx durable.Context, _ string) (string, error) {
		number, err := durable.UUID(ctx)
		if err != nil {
			return "", err
		}
		seen <- number
		if _, err := durable.WaitSignal[string](ctx, "paid"); err != nil {
			return "", err
		}
		now, err := durable.Now(ctx)
		if err != nil {
			return "", err
		}
		opens := now.Add(200 * time.Millisecond)
		door, err := durable.At(ctx, opens)
		if err != nil {
			return "", err
		}
		if _, err := door.Get(ctx); err != nil {
			return "", err
		}
		now, err = durable.Now(ctx)
		if now.Before(opens) {
			return "", fmt.Errorf("the door opened %s early", opens.Sub(now))
		}
		return number, err
	})
	first := w.work(durable.WorkerOptions{}, fn)
	h := begin(w, fn, "ticket", "")
	number := receive(t, "the number", seen)
	w.waitsFor("ticket", "paid")
	first.stop()
	w.work(durable.WorkerOptions{}, fn)
	w.signal("ticket", "paid", `"cash"`)
	if got := result(t, h); got != number {
		t.Errorf("the number was %s and is %s", number, got)
	}
}

// A child placed by Spread has an id of 64 hexadecimal digits, and names its parent wherever it is shown.
func TestSpreadChildNamesItsParent(t *testing.T) {
	w := newWorld(t)
	host := durable.NewFunction("host", func(ctx durable.Context, name string) (string, error) {
		return durable.Call(ctx, guest, name, durable.Spread())
	})
	w.work(durable.WorkerOptions{}, host, guest)
	h := begin(w, host, "host", "dora")
	var child string
	until(t, "the child", func() error {
		listed := w.list(client.ListOptions{Function: "guest"})
		if len(listed) != 1 {
			return fmt.Errorf("%d are listed", len(listed))
		}
		if child = listed[0].GetId(); len(child) != 64 || listed[0].GetParentId() != "host" {
			t.Errorf("listed as %q, a child of %q", child, listed[0].GetParentId())
		}
		return nil
	})
	if e := w.describe(child); e.GetParentId() != "host" {
		t.Errorf("described as a child of %q", e.GetParentId())
	}
	w.waitsFor(child, "arrived")
	w.signal(child, "arrived", `"hello"`)
	if got := result(t, h); got != "dora" {
		t.Error(got)
	}
}

// An id is not used up by a failure: whoever starts it may say that a failed execution is replaced, and one that has
// succeeded is not.
func TestFailedIDIsUsedAgain(t *testing.T) {
	w := newWorld(t)
	var runs atomic.Int32
	fn := durable.NewFunction("import", func(durable.Context, string) (string, error) {
		if runs.Add(1) == 1 {
			return "", &durable.Error{Type: "no_file", Message: "nothing to import yet"}
		}
		return "imported", nil
	})
	w.work(durable.WorkerOptions{}, fn)
	if _, err := begin(w, fn, "import-1", "").Result(soon(t)); err == nil {
		t.Fatal("the first run did not fail")
	}
	for i := range 2 {
		h, err := fn.Start(soon(t), w.Client, "import-1", "", durable.StartReuse(client.ReuseIfFailed))
		if err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "imported" || h.Started().Created != (i == 0) {
			t.Errorf("start %d: %q, created %t", i, got, h.Started().Created)
		}
	}
	if n := runs.Load(); n != 2 {
		t.Errorf("it ran %d times", n)
	}
}

// A signal to an id that no execution has, or whose execution has ended, is an error that the sender can tell apart.
func TestSignalToAMissingExecution(t *testing.T) {
	w := newWorld(t)
	done := durable.NewFunction("done", func(durable.Context, int) (int, error) { return 0, nil })
	sender := durable.NewFunction("sender", func(ctx durable.Context, to string) (string, error) {
		delivery, err := durable.GoSignal(ctx, to, "arrived", "hello")
		if err != nil {
			return "", err
		}
		_, err = delivery.Get(ctx)
		switch {
		case errors.Is(err, durable.ErrTargetNotFound):
			return "nobody has this id", nil
		case errors.Is(err, durable.ErrTargetFinished):
			return "it has ended", nil
		}
		return "delivered", err
	})
	w.work(durable.WorkerOptions{}, sender, done, guest)
	begin(w, guest, "ann", "ann")
	result(t, begin(w, done, "bob", 0))
	for to, want := range map[string]string{"ann": "delivered", "bob": "it has ended", "cleo": "nobody has this id"} {
		if got := result(t, begin(w, sender, "to-"+to, to)); got != want {
			t.Errorf("the signal to %s: %s", to, got)
		}
	}
}

// A request is a step: it is tried again when the service is busy, with the same Idempotency-Key each time.
func TestHTTPStep(t *testing.T) {
	w := newWorld(t)
	keys := make(chan string, 10)
	var asked atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		if asked.Add(1) == 1 {
			http.Error(answer, "busy", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(answer, "booked")
	}))
	defer service.Close()
	book := durable.NewFunction("book", func(ctx durable.Context, trip string) (string, error) {
		answer, err := durable.HTTP(ctx, durable.HTTPRequest{URL: service.URL + "/trips", Body: []byte(trip)}, durable.WithTotalTimeout(time.Minute))
		return string(answer.Body), err
	})
	w.work(durable.WorkerOptions{}, book)
	if got := result(t, begin(w, book, "trip-7", "rome")); got != "booked" {
		t.Error(got)
	}
	for range 2 {
		if key := receive(t, "the request", keys); key != "trip-7:0" {
			t.Errorf("a request has the key %q", key)
		}
	}
	for e, err := range w.Journal(soon(t), "trip-7") {
		if s := e.GetEvent().GetInvokeScheduled(); err != nil || s != nil && s.GetKind() != perdurev1.InvokeKind_INVOKE_KIND_HTTP {
			t.Errorf("recorded as %v, %v", s, err)
		}
	}
}
