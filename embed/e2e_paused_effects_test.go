package embed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// pausedEffects has every kind of effect in one commit: signals, operations and locks of entities, children,
// the end of a promise, and the result of a step that runs concurrently. Its worker "a" waits for the gate of
// the world before that commit; the promise is cancelled by "a" and awaited by others.
func pausedEffects(worker string) *durable.Function[pausedIn, string] {
	return durable.NewFunction("effects", func(ctx durable.Context, in pausedIn) (out string, err error) {
		var failed error
		must := func(err error) {
			failed = errors.Join(failed, err)
		}
		promise, err := durable.NewPromise[string](ctx)
		must(err)
		background, err := durable.GoStep(ctx, "background", func(context.Context) (string, error) {
			return worker, errors.Join(writeWorld(in.Folder, "background "+worker), atGate(worker, in.Folder))
		})
		must(err)
		// Recorded at once, so that no background commit takes what the worker stages afterwards with it.
		_, err = durable.Run(ctx, "begin", func(context.Context) (string, error) { return worker, writeWorld(in.Folder, "begin "+worker) },
			durable.WithIntent())
		must(err)
		if failed != nil {
			return "", failed
		}
		must(durable.Signal(ctx, "listener", "heard", worker))
		must(durable.SignalEntity(ctx, counter.ID("signalled"), "add", 1))
		called, err := durable.GoCallEntity[int](ctx, counter.ID("called"), "add", 1)
		must(err)
		child, err := durable.Go(ctx, effectsChild, worker)
		must(err)
		spread, err := durable.Go(ctx, effectsChild, worker, durable.ChildID(fmt.Sprint("child-of-", worker, in.Continue)))
		must(err)
		if worker == "a" {
			must(promise.Cancel(ctx))
			must(writeWorld(in.Folder, "staged a"))
			must(atGate(worker, in.Folder))
		}
		late, err := durable.GoStep(ctx, "late", func(context.Context) (string, error) { return worker, writeWorld(in.Folder, "late "+worker) })
		must(err)
		unlock, err := durable.Lock(ctx, counter.ID("locked"))
		if err = errors.Join(failed, err); err != nil {
			return "", err
		}
		_, err = durable.CallEntity[int](ctx, counter.ID("locked"), "add", 1)
		must(err)
		must(unlock())
		for _, f := range []*durable.Future[string]{background, child, spread, late, promise.Future} {
			if _, isChild := map[*durable.Future[string]]bool{child: true, spread: true}[f]; in.Continue && isChild {
				continue // the next incarnation has one of that id
			}
			got, err := f.Get(ctx)
			must(err)
			out += got
		}
		_, err = called.Get(ctx)
		if must(err); failed != nil {
			return "", failed
		}
		if in.Continue {
			return "", durable.ContinueAsNew(ctx, pausedIn{Folder: in.Folder})
		}
		return out, nil
	})
}

// effectsChild returns what it is given; "a" of the paused worker must not come.
var effectsChild = durable.NewFunction("effects-child", func(_ durable.Context, from string) (string, error) { return from, nil })

// atGate returns at once, for the worker "a" when the world has a gate.
func atGate(worker, folder string) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for range look.C { // it ignores its context: only the gate ends it
		if worker != "a" {
			return nil
		}
		if _, err := os.Stat(filepath.Join(folder, "gate")); err == nil {
			return nil
		}
	}
	return nil
}

// TestPausedFormerWorkerEffects is TestPausedFormerWorker with all effects of a function staged by the paused
// worker: none of them comes, whether another worker takes the task over, a restart begins a new incarnation,
// or both, or the execution is terminated and purged, and its id started again.
func TestPausedFormerWorkerEffects(t *testing.T) {
	t.Parallel()
	for by, incarnations := range map[string]int{"takeover": 1, "restart": 1, "restart from event": 1, "purge": 1, "continue": 2} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			listener := durable.NewFunction("listener", func(ctx durable.Context, _ string) (string, error) {
				return durable.WaitSignal[string](ctx, "end")
			})
			other := w.work(durable.WorkerOptions{Name: "c"}, listener, counter, effectsChild)
			begin(w, listener, "listener", "")
			a := startPaused(w)
			f := pausedEffects("b")
			h := begin(w, f, "x", pausedIn{Folder: a.folder, Continue: by == "continue"}, durable.AllowUnknownFunction())
			a.has("staged a")
			a.has("background a")
			a.pause()
			o := client.RestartOptions{}
			if by == "restart from event" {
				o = client.RestartOptions{FromEvent: w.describe("x").GetJournalEvents()}
			}
			if strings.HasPrefix(by, "restart") {
				if _, err := w.Restart(soon(t), "x", o); err != nil {
					t.Fatal(err)
				}
			}
			if by == "purge" {
				h = w.purgeAndBegin(f, pausedIn{Folder: a.folder})
			}
			b := w.work(durable.WorkerOptions{Name: "b"}, f)
			for n := range incarnations {
				until(t, "the promise of an incarnation", func() error {
					p, err := w.GetPromise(soon(t), "x:0")
					if err == nil && p.GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING {
						err = fmt.Errorf("it is %v", p)
					}
					return err
				})
				value := &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(`"!"`)}}
				if _, err := w.SettlePromise(soon(t), w.token("x", "x:0"), perdurev1.PromiseState_PROMISE_STATE_RESOLVED, value); err != nil {
					t.Fatalf("incarnation %d: %v", n, err)
				}
			}
			if got := result(t, h); got != "bbbb!" {
				t.Errorf("the result is %q", got)
			}
			journal := w.validJournal("x")
			a.resume()
			a.has("ended a")
			w.signal("listener", "end", `"over"`)
			w.reaches("listener", perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED)
			heard := 0
			for _, e := range w.journal("listener") {
				if s := e.GetEvent().GetSignalDelivered(); s.GetName() == "heard" {
					if heard++; string(s.GetPayload().GetValue()) != `"b"` {
						t.Errorf("the listener has heard %s", s.GetPayload().GetValue())
					}
				}
			}
			if heard != incarnations {
				t.Errorf("the listener has heard %d signals", heard)
			}
			for _, key := range []string{"signalled", "called", "locked"} {
				w.entityIs(counter.ID(key), fmt.Sprint(incarnations))
			}
			var none *api.Error
			if _, err := w.Describe(soon(t), fmt.Sprint("child-of-a", by == "continue")); !errors.As(err, &none) || none.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
				t.Errorf("the paused worker's child: %v", err)
			}
			if got := a.world(); strings.Contains(got, "late a") || strings.Count(got, "background a") != 1 || strings.Count(got, "background b") != incarnations {
				t.Errorf("the steps ran as\n%s", got)
			}
			if after := w.validJournal("x"); fmt.Sprint(after) != fmt.Sprint(journal) {
				t.Errorf("the journal had %v, has %v", journal, after)
			}
			b.noProblems()
			b.stop()
			other.stop()
		})
	}
}

// purgeAndBegin ends the execution x, purges it, and starts another one of its id.
func (w *world) purgeAndBegin(f *durable.Function[pausedIn, string], in pausedIn) *durable.Handle[string] {
	w.t.Helper()
	if _, err := w.Terminate(soon(w.t), "x", "enough"); err != nil {
		w.t.Fatal(err)
	}
	until(w.t, "the purge of x", func() error {
		purged, err := w.Purge(soon(w.t), "x", client.PurgeOptions{Force: true})
		if err == nil && purged == client.PurgedBegun {
			err = errors.New("it goes on")
		}
		return err
	})
	return begin(w, f, "x", in, durable.AllowUnknownFunction())
}
