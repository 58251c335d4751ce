package embed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"perdure/durable"
)

// A step that copies 10 files reports each one. When its worker vanishes after the fifth, the next worker
// goes on with the sixth; describe shows how far the step is, and when it last reported.
func TestStepGoesOnFromItsHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	copied := make(chan string, 100)
	backup := func(worker string, stuckAfter int) *durable.Function[int, int] {
		return durable.NewFunction("backup", func(ctx durable.Context, files int) (int, error) {
			return durable.Run(ctx, "copy", func(ctx context.Context) (int, error) {
				done, _, err := durable.HeartbeatDetails[int](ctx)
				if err != nil {
					return 0, err
				}
				for done < files {
					if done == stuckAfter {
						<-ctx.Done()
						return 0, context.Cause(ctx)
					}
					done++
					copied <- fmt.Sprint(worker, done)
					if err := durable.Heartbeat(ctx, done); err != nil {
						return 0, err
					}
				}
				return done, nil
			}, durable.WithHeartbeatTimeout(time.Hour))
		})
	}
	p := newProxy(t, w.addr)
	a := w.workAt(p.addr(), durable.WorkerOptions{Name: "a", Lease: 3 * time.Second, Concurrency: 1}, backup("a", 5))
	h := begin(w, backup("", 0), "nightly", 10)
	until(t, "the report of five files", func() error {
		steps := w.describe("nightly").GetSteps()
		if len(steps) != 1 || string(steps[0].Details) != "5" {
			return fmt.Errorf("reported %v", steps)
		}
		if s := steps[0]; s.Name != "copy" || s.Attempt != 1 || s.PromiseId != "nightly:0" || time.Since(time.UnixMilli(s.AtMs)) > time.Minute {
			t.Errorf("reported %v", s)
		}
		return nil
	})
	p.freeze()
	w.work(durable.WorkerOptions{Name: "b"}, backup("b", -1))
	if got := result(t, h); got != 10 {
		t.Errorf("%d files were copied", got)
	}
	close(copied)
	var all string
	for file := range copied {
		all += file + " "
	}
	if all != "a1 a2 a3 a4 a5 b6 b7 b8 b9 b10 " {
		t.Errorf("copied %s", all)
	}
	if steps := w.describe("nightly").GetSteps(); len(steps) != 0 {
		t.Errorf("after the end there is %v", steps)
	}
	p.thaw()
	a.saw(durable.EventLost, "nightly", 1)
	w.validJournal("nightly")
}
