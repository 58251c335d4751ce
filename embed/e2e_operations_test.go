package embed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// report holds the result of each operation of the function below.
type report struct {
	Plain, Intent, Flaky      int
	Hopeless, Declined        string
	Child, Spread, Named      int
	Fan, SpreadFan            []int
	First                     int
	Gate                      string
	Early, Late               string
	TimedOut                  bool
	Before, After             time.Time
	Random                    uint64
	ID, Function, Tag, StepID string
	Attempt                   uint32
}

// TestEveryOperation runs a function that uses every operation of the SDK, and looks at its result, its
// journal, and the journal after a restart.
func TestEveryOperation(t *testing.T) {
	cfg := nodeConfig(t.TempDir())
	n := startNode(t, cfg)
	w := connect(t, n.GRPCAddr())

	const fan = 12
	var runs tally // of steps, by name
	chance := map[uint64]bool{}
	var mu sync.Mutex

	double := durable.NewFunction("double", func(ctx durable.Context, in int) (int, error) {
		return durable.Run(ctx, "double", func(context.Context) (int, error) { return 2 * in, nil })
	})
	gate := durable.NewFunction("gate", func(ctx durable.Context, in string) (string, error) {
		return durable.WaitSignal[string](ctx, in)
	})
	declined := durable.NewFunction("declined", func(durable.Context, int) (int, error) {
		return 0, &durable.Error{Type: "declined", Message: "no", Details: []byte{1, 2}}
	})
	sent := make(chan struct{}) // closed once the early signal is sent
	everything := durable.NewFunction("everything", func(ctx durable.Context, in int) (out report, err error) {
		info := durable.Info(ctx)
		out.ID, out.Function, out.Tag = info.ID, info.Function, info.Tags["colour"]
		if out.Before, err = durable.Now(ctx); err != nil {
			return out, err
		}
		if out.Plain, err = durable.Run(ctx, "plain", func(context.Context) (int, error) {
			return in + runs.add("plain"), nil
		}); err != nil {
			return out, err
		}
		step, err := durable.Run(ctx, "intent", func(ctx context.Context) (durable.Step, error) {
			runs.add("intent")
			return durable.StepInfo(ctx), nil
		}, durable.WithIntent())
		if err != nil {
			return out, err
		}
		out.StepID, out.Attempt = step.PromiseID, step.Attempt
		if out.Flaky, err = durable.Run(ctx, "flaky", func(ctx context.Context) (int, error) {
			if n := runs.add("flaky"); n < 6 {
				return 0, fmt.Errorf("attempt %d fails", n)
			}
			return int(durable.StepInfo(ctx).Attempt), nil
		}, durable.WithRetry(durable.RetryPolicy{MaxAttempts: 7, Initial: time.Millisecond})); err != nil {
			return out, err
		}
		_, err = durable.Run(ctx, "hopeless", func(context.Context) (int, error) {
			runs.add("hopeless")
			return 0, durable.Permanent(errors.New("never"))
		})
		out.Hopeless = fmt.Sprint(err)
		if out.Child, err = durable.Call(ctx, double, 21); err != nil {
			return out, err
		}
		if out.Spread, err = durable.Call(ctx, double, 22, durable.Spread(), durable.CallTags(map[string]string{"far": "away"})); err != nil {
			return out, err
		}
		if out.Named, err = durable.CallName[int](ctx, "double", 23); err != nil {
			return out, err
		}
		_, err = durable.Call(ctx, declined, 0)
		var failure *durable.Error
		if errors.As(err, &failure) {
			out.Declined = fmt.Sprintf("%s %s %v", failure.Type, failure.Message, failure.Details)
		}
		var near, far []*durable.Future[int]
		var all []durable.Awaitable
		for i := range fan {
			a, err := durable.Go(ctx, double, i)
			if err != nil {
				return out, err
			}
			b, err := durable.Go(ctx, double, 100+i, durable.Spread())
			if err != nil {
				return out, err
			}
			near, far, all = append(near, a), append(far, b), append(all, a, b)
		}
		if err := durable.AwaitAll(ctx, all...); err != nil {
			return out, err
		}
		for i := range fan {
			a, aerr := near[i].Get(ctx)
			b, berr := far[i].Get(ctx)
			if err := errors.Join(aerr, berr); err != nil {
				return out, err
			}
			out.Fan, out.SpreadFan = append(out.Fan, a), append(out.SpreadFan, b)
		}
		slow, err := durable.Go(ctx, gate, "open")
		if err != nil {
			return out, err
		}
		quick, err := durable.Go(ctx, double, 1)
		if err != nil {
			return out, err
		}
		if out.First, err = durable.AwaitAny(ctx, slow, quick); err != nil {
			return out, err
		}
		if err := durable.Signal(ctx, slow.ID(), "open", "sesame"); err != nil {
			return out, err
		}
		if out.Gate, err = slow.Get(ctx); err != nil {
			return out, err
		}
		if err := durable.Sleep(ctx, 40*time.Millisecond); err != nil {
			return out, err
		}
		if out.After, err = durable.Now(ctx); err != nil {
			return out, err
		}
		if _, err := durable.Run(ctx, "until sent", func(ctx context.Context) (int, error) {
			select {
			case <-sent:
				return 0, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}); err != nil {
			return out, err
		}
		if out.Early, err = durable.WaitSignal[string](ctx, "early"); err != nil {
			return out, err
		}
		if out.Late, err = durable.WaitSignal[string](ctx, "late"); err != nil {
			return out, err
		}
		_, err = durable.WaitSignal[string](ctx, "never", durable.Timeout(20*time.Millisecond))
		out.TimedOut = errors.Is(err, durable.ErrTimeout)
		if out.Random, err = durable.Random(ctx); err != nil {
			return out, err
		}
		mu.Lock()
		chance[out.Random] = true
		mu.Unlock()
		sent, err := durable.GoSignal(ctx, "listener", "ping", out.Random)
		if err != nil {
			return out, err
		}
		_, err = sent.Get(ctx) // the journal has the answer before the run ends
		return out, err
	})
	listener := durable.NewFunction("listener", func(ctx durable.Context, _ int) (uint64, error) {
		return durable.WaitSignal[uint64](ctx, "ping")
	})
	worker := w.work(durable.WorkerOptions{}, double, gate, declined, everything, listener)

	heard := begin(w, listener, "listener", 0)
	h := begin(w, everything, "everything", 10, durable.StartTags(map[string]string{"colour": "blue"}))
	w.signal("everything", "early", `"bird"`)
	close(sent)
	w.waitsFor("everything", "late")
	w.signal("everything", "late", `"owl"`)
	got := result(t, h)

	want := report{
		Plain: 11, Flaky: 6, Hopeless: "never", Declined: "declined no [1 2]", Child: 42, Spread: 44, Named: 46,
		First: 1, Gate: "sesame", Early: "bird", Late: "owl", TimedOut: true,
		ID: "everything", Function: "everything", Tag: "blue", StepID: "everything:2", Attempt: 1,
		Before: got.Before, After: got.After, Random: got.Random,
	}
	for i := range fan {
		want.Fan, want.SpreadFan = append(want.Fan, 2*i), append(want.SpreadFan, 200+2*i)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the result is\n%+v, want\n%+v", got, want)
	}
	if d := got.After.Sub(got.Before); d < 40*time.Millisecond {
		t.Errorf("a sleep of 40 ms took %v", d)
	}
	if random := result(t, heard); random != got.Random {
		t.Errorf("the listener heard %d, the function drew %d", random, got.Random)
	}
	if len(chance) != 1 {
		t.Errorf("replays drew different numbers: %v", chance)
	}
	if want := map[string]int{"plain": 1, "intent": 1, "flaky": 6, "hopeless": 1}; !maps.Equal(runs.all(), want) {
		t.Errorf("steps ran %v, want %v", runs.all(), want)
	}
	worker.noProblems()

	// 5 steps, 4 children called, 2·12 + 2 started, 2 signals sent.
	const invokes = 5 + 4 + 2*fan + 2 + 2
	counts := w.validJournal("everything")
	delete(counts, "ExecutionAwaiting") // a wait that is satisfied when it is asked for is not recorded
	delete(counts, "ExecutionResumed")
	if want := map[string]int{
		"ExecutionStarted": 1, "ExecutionCompleted": 1, "InvokeScheduled": invokes, "InvokeStarted": invokes + 5,
		"InvokeCompleted": invokes, "InvokeRetrying": 5, "TimeRecorded": 2, "RandomGenerated": 1,
		"TimerScheduled": 1, "TimerFired": 1, "SignalDelivered": 3, "SignalReceived": 3,
	}; !maps.Equal(counts, want) {
		t.Errorf("the journal has %v, want %v", counts, want)
	}

	// Children that were spread have roots of their own, in other partitions too.
	home := w.describe("everything")
	elsewhere := 0
	for _, s := range w.list(client.ListOptions{Function: "double"}) {
		child := w.describe(s.GetId())
		if child.GetParentId() != "everything" {
			t.Errorf("%s says that its parent is %q", s.GetId(), child.GetParentId())
		}
		if child.GetPartition() != home.GetPartition() {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		t.Errorf("none of %d spread children is in another partition", fan+1)
	}
	if home.GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || home.GetWakeSource() != "finished" ||
		home.GetOutcome().GetValue() == nil || home.GetClosedMs() < home.GetCreatedMs() {
		t.Errorf("describe says %v", home)
	}

	// All of it is the same after a restart.
	before := w.validJournals()
	if len(before) != 1+1+4+2*fan+2 {
		t.Errorf("there are executions %v", slices.Sorted(maps.Keys(before)))
	}
	worker.stop()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	again := connect(t, startNode(t, cfg).GRPCAddr())
	sameJournals(t, before, again.validJournals())
	if after := result(t, everything.Attach(again.Client, "everything")); fmt.Sprint(after) != fmt.Sprint(got) {
		t.Errorf("after the restart the result is\n%+v, before it was\n%+v", after, got)
	}
}
