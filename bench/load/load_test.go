package load

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestClosedLoop: at any time Concurrency operations are under way; the rate is that of the window alone.
func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen = map[int64]bool{}
		marks := []time.Duration{}
		t0 := time.Now()
		mark := func() { marks = append(marks, time.Since(t0)) }
		r, err := Run(t.Context(), Options{Concurrency: 4, Warmup: time.Second, Duration: 2 * time.Second, Began: mark, Ended: mark},
			func(_ context.Context, n int64) error {
				mu.Lock()
				seen[n] = true
				mu.Unlock()
				<-time.After(99 * time.Millisecond)
				return nil
			})
		if err != nil || r.Check() != nil {
			t.Fatal(err, r.Check())
		}
		if r.Begun != int64(len(seen)) || r.Begun < 120 {
			t.Errorf("%d operations began with %d numbers", r.Begun, len(seen))
		}
		if r.Counted < 78 || r.Counted > 84 || r.Rate() != float64(r.Counted)/2 {
			t.Errorf("%d operations in the window, %g per second", r.Counted, r.Rate())
		}
		if got := r.Latency.ValueAtPercentile(100); got < 98_900 || got > 99_200 {
			t.Errorf("the longest took %d us", got)
		}
		if len(marks) != 2 || marks[0] != time.Second || marks[1] != 3*time.Second {
			t.Errorf("the window's bounds are %v", marks)
		}
		var sum int64
		for _, n := range r.Timeline {
			sum += n
		}
		if len(r.Timeline) != 200 || sum != r.Counted {
			t.Errorf("%d slices with %d completions, %d counted", len(r.Timeline), sum, r.Counted)
		}
	})
}

// TestOpenLoopCountsFromTheInstant: a pause of one second delays all operations that were due during it, and the
// latencies say so, although only one operation met the pause. A closed loop sees one.
func TestOpenLoopCountsFromTheInstant(t *testing.T) {
	late := func(t *testing.T, o Options) (count int64) {
		synctest.Test(t, func(t *testing.T) {
			r, err := Run(t.Context(), o, func(_ context.Context, n int64) error {
				if n == 100 {
					<-time.After(time.Second)
				}
				<-time.After(time.Millisecond)
				return nil
			})
			if err != nil || r.Check() != nil {
				t.Fatal(err, r.Check())
			}
			for _, b := range r.Latency.Distribution() {
				if b.From > 100_000 {
					count += b.Count
				}
			}
		})
		return count
	}
	o := Options{Concurrency: 1, Duration: 5 * time.Second}
	if got := late(t, o); got != 1 {
		t.Errorf("closed: %d operations took more than 100 ms, not 1", got)
	}
	o.Rate = 100
	if got := late(t, o); got < 85 || got > 105 {
		t.Errorf("open: %d operations are more than 100 ms late, not about 95", got)
	}
}

// TestDrain: an operation that began in the window and ends after it counts for the latencies and not for the rate, and
// one that hangs ends with its context.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Run(t.Context(), Options{Concurrency: 2, Duration: time.Second, Drain: 10 * time.Second}, func(ctx context.Context, n int64) error {
			if n == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			<-time.After(3 * time.Second)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Begun != 2 || r.Completed != 1 || r.Failed != 1 || r.Counted != 0 || r.Latency.TotalCount() != 1 {
			t.Errorf("%+v", r)
		}
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "1 of 2 operations failed") {
			t.Errorf("Check: %v", err)
		}
	})
}

// TestCount: exactly so many operations run.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Run(t.Context(), Options{Concurrency: 3, Count: 10}, func(context.Context, int64) error {
			<-time.After(time.Second)
			return nil
		})
		if err != nil || r.Check() != nil || r.Begun != 10 || r.Window != 4*time.Second || r.Latency.TotalCount() != 10 {
			t.Errorf("%v, %v, %+v", err, r.Check(), r)
		}
	})
}

// TestEndsEarly: a context that ends stops the run, and wrong options start none.
func TestEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		r, err := Run(ctx, Options{Concurrency: 2, Duration: time.Minute}, func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, why) || r.Failed != 2 {
			t.Errorf("%v, %+v", err, r)
		}
	})
	if _, err := Run(t.Context(), Options{Concurrency: 1}, nil); err == nil {
		t.Error("a run without a duration began")
	}
}
