package embed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
	"perdure/id"
)

// approve asks a person outside for a decision: it gives the token of a promise to a service, and waits for
// three days at most. Any client with the token settles the promise.
func approve(ask func(token string)) *durable.Function[string, string] {
	return durable.NewFunction("approve", func(ctx durable.Context, what string) (string, error) {
		decision, err := durable.NewPromise[string](ctx, durable.PromiseTimeout(72*time.Hour))
		if err != nil {
			return "", err
		}
		_, err = durable.Run(ctx, "ask", func(context.Context) (string, error) {
			ask(decision.Token())
			return "", nil
		})
		if err != nil {
			return "", err
		}
		by, err := decision.Get(ctx)
		return what + " approved by " + by, err
	})
}

// A client settles the promise of a function while no worker runs; another worker continues with its value. Other
// functions that await the promise and the execution by their ids, in whatever partition, get the values too.
func TestPromiseForTheOutside(t *testing.T) {
	w := newWorld(t)
	tokens := make(chan string, 10)
	approve := approve(func(token string) { tokens <- token })
	watch := durable.NewFunction("watch", func(ctx durable.Context, ids []string) (seen []string, err error) {
		for _, id := range ids {
			f, err := durable.AwaitPromise[string](ctx, id)
			if err != nil {
				return nil, err
			}
			text, err := f.Get(ctx)
			if errors.Is(err, durable.ErrTargetNotFound) {
				text, err = "nothing", nil
			}
			if err != nil {
				return nil, err
			}
			seen = append(seen, text)
		}
		return seen, nil
	})
	first := w.work(durable.WorkerOptions{}, approve, watch)
	h := begin(w, approve, "purchase", "a desk")
	token := receive(t, "the token", tokens)
	var watchers []*durable.Handle[[]string]
	for i := range 8 {
		watchers = append(watchers, begin(w, watch, fmt.Sprint("watch-", i), []string{token, "purchase", "missing"}))
	}
	w.reaches("purchase", perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED)
	for i := range watchers {
		w.reaches(fmt.Sprint("watch-", i), perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED)
	}
	first.stop()
	w.resolve(token, `"ann"`)
	w.work(durable.WorkerOptions{}, approve, watch)
	if got := result(t, h); got != "a desk approved by ann" {
		t.Error(got)
	}
	for _, h := range watchers {
		if got := result(t, h); !slices.Equal(got, []string{"ann", "a desk approved by ann", "nothing"}) {
			t.Errorf("%s saw %q", h.ID(), got)
		}
	}
}

// An answer to a question that a former incarnation has asked does not answer the present one's.
func TestPromiseOfFormerIncarnation(t *testing.T) {
	w := newWorld(t)
	tokens := make(chan string, 10)
	fn := durable.NewFunction("ask-again", func(ctx durable.Context, round int) (string, error) {
		answer, err := durable.NewPromise[string](ctx)
		if err != nil {
			return "", err
		}
		if _, err := durable.Run(ctx, "ask", func(context.Context) (string, error) { tokens <- answer.Token(); return "", nil }); err != nil {
			return "", err
		}
		if round == 0 {
			return "", durable.ContinueAsNew(ctx, round+1)
		}
		return answer.Get(ctx)
	})
	w.work(durable.WorkerOptions{}, fn)
	h := begin(w, fn, "poll", 0)
	former, present := receive(t, "the first token", tokens), receive(t, "the second token", tokens)
	settle := func(token, text string) error {
		_, err := w.SettlePromise(soon(t), token, perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(text)}})
		return err
	}
	var refused *api.Error
	if err := settle(former, `"late"`); !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
		t.Errorf("the token %s of the former incarnation: %v", former, err)
	}
	if _, err := w.GetPromise(soon(t), former); !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
		t.Errorf("it is read: %v", err)
	}
	if err := settle(present, `"in time"`); err != nil {
		t.Error(err)
	}
	if p, err := w.AwaitPromise(soon(t), present); err != nil || string(p.GetValue().GetValue()) != `"in time"` {
		t.Error(p, err)
	}
	if got := result(t, h); got != "in time" {
		t.Error(got)
	}
}

// A promise that stays pending times out.
func TestPromiseTimesOut(t *testing.T) {
	w := newWorld(t)
	fn := durable.NewFunction("impatient", func(ctx durable.Context, _ string) (string, error) {
		p, err := durable.NewPromise[string](ctx, durable.PromiseTimeout(50*time.Millisecond))
		if err != nil {
			return "", err
		}
		if _, err = p.Get(ctx); !errors.Is(err, durable.ErrTimeout) {
			return "", fmt.Errorf("a promise that stayed pending: %w", err)
		}
		return "timed out", nil
	})
	w.work(durable.WorkerOptions{}, fn)
	if got := result(t, begin(w, fn, "x", "")); got != "timed out" {
		t.Error(got)
	}
}

// Select waits for the first of a step, a child, a timer, a signal, a promise and an operation of an entity,
// whichever that is, and cancels the others.
func TestWaitingForTheFirst(t *testing.T) {
	w := newWorld(t)
	// Of the step, the child, the timer and the operation, the one that is to win answers at once, and the
	// others do not.
	answerIf := func(ctx context.Context, wins bool, name string) (string, error) {
		if wins {
			return name, nil
		}
		<-ctx.Done()
		return "", ctx.Err()
	}
	desk := durable.NewEntity("desk", durable.Op("ask", func(ctx *durable.EntityContext, _ *int, winner string) (string, error) {
		return answerIf(ctx, winner == "entity", "entity")
	}))
	helper := durable.NewFunction("helper", func(ctx durable.Context, winner string) (string, error) {
		if winner == "child" {
			return "child", nil
		}
		return durable.WaitSignal[string](ctx, "never")
	})
	first := durable.NewFunction("first", func(ctx durable.Context, winner string) (answer string, err error) {
		step, err := durable.GoStep(ctx, "step", func(ctx context.Context) (string, error) { return answerIf(ctx, winner == "step", "step") })
		if err != nil {
			return "", err
		}
		child, err := durable.Go(ctx, helper, winner)
		if err != nil {
			return "", err
		}
		wait := time.Hour
		if winner == "timer" {
			wait = time.Millisecond
		}
		timer, err := durable.After(ctx, wait)
		if err != nil {
			return "", err
		}
		signal, err := durable.NextSignal[string](ctx, "word")
		if err != nil {
			return "", err
		}
		promise, err := durable.NewPromise[string](ctx)
		if err != nil {
			return "", err
		}
		operation, err := durable.GoCallEntity[string](ctx, desk.ID(winner), "ask", winner)
		if err != nil {
			return "", err
		}
		take := func(text string, err error) error { answer = text; return err }
		err = durable.Select(ctx,
			durable.On(step, take), durable.On(child, take), durable.On(signal, take), durable.On(promise.Future, take), durable.On(operation, take),
			durable.On(timer, func(struct{}, error) error { answer = "timer"; return nil }),
			durable.CancelLosers())
		return answer, err
	})
	w.work(durable.WorkerOptions{StopGrace: time.Millisecond}, first, helper, desk)
	for _, winner := range []string{"step", "child", "timer", "entity", "signal", "promise"} {
		h := begin(w, first, winner, winner)
		switch winner {
		case "signal":
			w.signal(winner, "word", `"signal"`)
		case "promise":
			w.resolve(w.token(winner, winner+":4"), `"promise"`) // the fifth operation of the function
		}
		if got := result(t, h); got != winner {
			t.Errorf("%s answered before %s", got, winner)
		}
	}
}

// token is the token of a promise that an execution has made, once it is there. Nobody settles it by its id.
func (w *world) token(execution, promise string) (token string) {
	w.t.Helper()
	until(w.t, "promise "+promise, func() error {
		if _, err := w.GetPromise(soon(w.t), promise); err != nil {
			return err
		}
		_, err := w.SettlePromise(soon(w.t), promise, perdurev1.PromiseState_PROMISE_STATE_RESOLVED, nil)
		wantReason(w.t, "settling "+promise+" by its id", err, "NOT_SETTLEABLE")
		for _, e := range w.journal(execution) {
			if made := e.GetEvent().GetInvokeScheduled(); made.GetPromiseId() == promise {
				// No incarnation that may come refuses this one.
				token = id.PromiseID(promise).Token(math.MaxUint64, made.GetInput())
				return nil
			}
		}
		return errors.New("the journal does not have it")
	})
	return token
}

// resolve settles a promise with a value, once it is there.
func (w *world) resolve(id, value string) {
	w.t.Helper()
	until(w.t, "promise "+id, func() error {
		_, err := w.SettlePromise(soon(w.t), id, perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(value)}})
		return err
	})
}
