// Package load runs an operation many times at once and measures how long each one takes.
//
// It owns the clock of a measurement. A closed loop starts the next operation when the former one has ended, so its
// latencies are the response times at a given number under way. An open loop starts operations at fixed instants and
// counts each latency from its instant, however late the operation began: latencies hold no coordinated omission.
//
// A run has three parts: a warm-up, the window that counts, and the drain, in which nothing new begins and
// what is under way ends. The rate counts completions inside the window. The latencies are of the operations
// that began inside it, also those that end in the drain, so a slow operation is never left out. Every run
// ends by itself: each operation gets a context that ends Options.Drain after the window.
//
//	o := load.Options{Concurrency: 64, Warmup: time.Second, Duration: 3 * time.Second}
//	r, err := load.Run(ctx, o, func(ctx context.Context, n int64) error { return call(ctx, n) })
//	fmt.Println(r.Rate(), r.Latency.ValueAtPercentile(99), r.Failed)
package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Slice is the length of one element of Result.Timeline.
const Slice = 10 * time.Millisecond

const (
	// maxLatency is the largest latency that a histogram tells apart; longer ones count as this one.
	maxLatency = 10 * time.Minute
	// shards are how many histograms the goroutines of a run share.
	shards = 16
	// keptErrors is how many errors a result holds.
	keptErrors = 3
)

// Options describe a run.
type Options struct {
	// Concurrency is how many operations are under way at once, at most.
	Concurrency int `json:"concurrency"`
	// Rate, if not 0, makes the loop open: so many operations a second begin, while Concurrency allows.
	Rate float64 `json:"rate,omitempty"`
	// Warmup comes before the window, Duration is the window's length.
	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
	// Count, if not 0, replaces both: exactly so many operations run, and the window lasts from the first to the end of
	// the last.
	Count int64 `json:"count,omitempty"`
	// Drain bounds the time after the window for what is under way; 60 s if 0.
	Drain time.Duration `json:"drain,omitempty"`

	// Began and Ended, if set, are called at the window's bounds, from the goroutine of Run.
	Began, Ended func() `json:"-"`
}

// Result is what a run measured.
type Result struct {
	// Begun counts all operations of the run, Completed those that returned nil, Failed the others:
	// Begun = Completed + Failed.
	Begun, Completed, Failed int64
	// Counted operations ended inside the window, without an error, and Window is its length.
	Counted int64
	Window  time.Duration
	// Latency is in microseconds, of operations that began inside the window and did not fail.
	Latency *hdrhistogram.Histogram
	// Timeline counts completions in each Slice of the window.
	Timeline []int64
	// Errors are the first ones.
	Errors []string
}

// Rate is completions per second.
func (r *Result) Rate() float64 {
	if r.Window <= 0 {
		return 0
	}
	return float64(r.Counted) / r.Window.Seconds()
}

// NewHistogram makes a histogram of latencies in microseconds.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), 3)
}

// Record adds a latency to a histogram.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	// The value is within the histogram's bounds, so there is no error.
	_ = h.RecordValue(min(max(d, time.Microsecond), maxLatency).Microseconds())
}

// run is a run in progress.
type run struct {
	o          Options
	t0         time.Time
	begin, end time.Time // the window; end is zero with Options.Count
	next       atomic.Int64
	counted    atomic.Int64
	completed  atomic.Int64
	failed     atomic.Int64
	begun      atomic.Int64
	timeline   []atomic.Int64
	shards     [shards]shard

	mu     sync.Mutex
	last   time.Time // the end of the last operation
	errors []string
}

type shard struct {
	sync.Mutex
	h *hdrhistogram.Histogram
}

// Run runs op until the window is over and everything under way has ended. The number that op gets is unique within the
// run and counts from 0. It blocks. An error means that the options are wrong, or that ctx ended before the window did;
// failed operations are in the result.
func Run(ctx context.Context, o Options, op func(ctx context.Context, n int64) error) (*Result, error) {
	if o.Concurrency < 1 || o.Count < 0 || o.Rate < 0 || o.Count == 0 && o.Duration <= 0 {
		return nil, fmt.Errorf("load: concurrency %d, count %d, rate %g and duration %v describe no run", o.Concurrency, o.Count, o.Rate, o.Duration)
	}
	if o.Drain == 0 {
		o.Drain = time.Minute
	}
	r := &run{o: o, t0: time.Now()}
	r.begin, r.last = r.t0.Add(o.Warmup), r.t0
	ops := ctx
	if o.Count > 0 {
		r.begin = r.t0
	} else {
		r.end = r.begin.Add(o.Duration)
		r.timeline = make([]atomic.Int64, (o.Duration+Slice-1)/Slice)
		var cancel context.CancelFunc
		ops, cancel = context.WithDeadline(ctx, r.end.Add(o.Drain))
		defer cancel()
	}
	for i := range r.shards {
		r.shards[i].h = NewHistogram()
	}
	var wg sync.WaitGroup
	for i := range o.Concurrency {
		wg.Go(func() { r.loop(ops, &r.shards[i%shards], op) })
	}
	err := r.bounds(ctx, &wg)
	return r.result(), err
}

// bounds waits for the window's bounds and for the end of all operations.
func (r *run) bounds(ctx context.Context, wg *sync.WaitGroup) error {
	call := func(f func()) {
		if f != nil {
			f()
		}
	}
	if r.o.Count > 0 {
		call(r.o.Began)
		wg.Wait()
		call(r.o.Ended)
		return nil
	}
	defer wg.Wait()
	if !sleepUntil(ctx, r.begin) {
		return context.Cause(ctx)
	}
	call(r.o.Began)
	if !sleepUntil(ctx, r.end) {
		return context.Cause(ctx)
	}
	call(r.o.Ended)
	return nil
}

// loop runs operations one after the other.
func (r *run) loop(ctx context.Context, s *shard, op func(ctx context.Context, n int64) error) {
	for ctx.Err() == nil {
		n := r.next.Add(1) - 1
		due := time.Now()
		if r.o.Rate > 0 {
			due = r.t0.Add(time.Duration(float64(n) / r.o.Rate * float64(time.Second)))
		}
		if r.o.Count > 0 && n >= r.o.Count || r.o.Count == 0 && !due.Before(r.end) {
			return
		}
		if !sleepUntil(ctx, due) {
			return
		}
		r.begun.Add(1)
		err := op(ctx, n)
		r.ended(s, due, time.Now(), err)
	}
}

func (r *run) ended(s *shard, due, now time.Time, err error) {
	if err != nil {
		r.failed.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.errors) < keptErrors {
			r.errors = append(r.errors, err.Error())
		}
		return
	}
	r.completed.Add(1)
	if r.o.Count > 0 {
		r.counted.Add(1)
		r.mu.Lock()
		if now.After(r.last) {
			r.last = now
		}
		r.mu.Unlock()
	} else if !now.Before(r.begin) && now.Before(r.end) {
		r.counted.Add(1)
		r.timeline[now.Sub(r.begin)/Slice].Add(1)
	}
	if !due.Before(r.begin) {
		s.Lock()
		Record(s.h, now.Sub(due))
		s.Unlock()
	}
}

// result is called when all operations have ended.
func (r *run) result() *Result {
	out := &Result{Begun: r.begun.Load(), Completed: r.completed.Load(), Failed: r.failed.Load(), Counted: r.counted.Load(),
		Window: r.o.Duration, Latency: NewHistogram(), Errors: r.errors}
	if r.o.Count > 0 {
		out.Window = r.last.Sub(r.t0)
	}
	for i := range r.shards {
		out.Latency.Merge(r.shards[i].h)
	}
	for i := range r.timeline {
		out.Timeline = append(out.Timeline, r.timeline[i].Load())
	}
	return out
}

// sleepUntil waits for an instant and reports whether ctx still runs.
func sleepUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Check returns an error if an operation failed or one has not ended.
func (r *Result) Check() error {
	if r.Failed > 0 {
		return fmt.Errorf("%d of %d operations failed, the first: %v", r.Failed, r.Begun, r.Errors)
	}
	if r.Begun != r.Completed {
		return fmt.Errorf("%d operations began and %d completed", r.Begun, r.Completed)
	}
	if r.Counted == 0 {
		return errors.New("no operation completed inside the window")
	}
	return nil
}
