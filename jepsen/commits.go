package jepsen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// CommitOptions describe the load. The zero value is good.
type CommitOptions struct {
	// Clients write concurrently, each its next write when the one before is answered; default 16.
	Clients int
	// Pause is the wait of a client after each answer; default none.
	Pause time.Duration
	// Timeout is the timeout of one write, retries included; default 30 s.
	Timeout time.Duration
	// Prefix begins every id; ids of two runs on one cluster must differ.
	Prefix string
}

const (
	// signalEvery is which share of the writes are signals. A promise that is created twice is one promise,
	// but a signal that is delivered twice is two deliveries: it shows what was applied twice.
	signalEvery = 4
	// boxSize is how many signals go to one execution.
	boxSize = 128
	// boxFunction is the function of those executions. No worker has it: they only collect.
	boxFunction = "jepsen-box"
	boxSignal   = "write"
)

// CommitRun is the workload of small writes: promises, and signals to executions that collect them.
type CommitRun struct {
	o     CommitOptions
	c     *Cluster
	began time.Time
	stop  context.CancelFunc
	wait  sync.WaitGroup

	mu       sync.Mutex
	writes   []Write
	acked    int
	refusals []string
}

// StartCommits starts the workload. Stop ends it.
func StartCommits(ctx context.Context, c *Cluster, o CommitOptions) (*CommitRun, error) {
	o.Clients = fallback(o.Clients, 16)
	o.Timeout = fallback(o.Timeout, 30*time.Second)
	o.Prefix = fallback(o.Prefix, "commit")
	ctx, cancel := context.WithCancel(ctx)
	r := &CommitRun{o: o, c: c, began: time.Now(), stop: cancel}
	for i := range o.Clients {
		cl, err := c.Client(o.Timeout)
		if err != nil {
			cancel()
			r.wait.Wait()
			return nil, err
		}
		r.wait.Go(func() {
			defer cl.Close()
			r.write(ctx, cl, i)
		})
	}
	return r, nil
}

// write is one client's work.
func (r *CommitRun) write(ctx context.Context, cl *client.Client, who int) {
	box := ""
	for n, signals := 0, 0; ctx.Err() == nil; n++ {
		w := Write{Name: fmt.Sprintf("%s-%d-%d", r.o.Prefix, who, n), Found: -1}
		// The run's end does not cut a write short: only its timeout does.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
		w.Called = time.Since(r.began)
		var err error
		switch {
		case n%signalEvery != signalEvery-1:
			_, err = cl.CreatePromise(whole, w.Name, client.PromiseOptions{Param: []byte(w.Name), Timeout: promiseTimeout})
		case signals%boxSize == 0: // the box itself is a write too
			box = w.Name
			w.Box = box
			_, err = cl.Start(whole, client.StartOptions{ID: box, Function: boxFunction, AllowUnknownFunction: true})
			signals++
			if err != nil {
				signals = 0
			}
		default:
			w.Box = box
			err = cl.Signal(whole, box, boxSignal, []byte(w.Name))
			signals++
		}
		w.Answered = time.Since(r.began)
		cancel()
		r.note(w, err)
		if r.o.Pause > 0 {
			select {
			case <-time.After(r.o.Pause):
			case <-ctx.Done():
			}
		}
	}
}

func (r *CommitRun) note(w Write, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		w.Fate = Acked
		r.acked++
	case errors.Is(err, client.ErrOutcomeUnknown):
		w.Fate = Open
	case errors.Is(err, client.ErrUnavailable):
		w.Fate = NotDone
	default:
		w.Fate = NotDone
		r.refusals = append(r.refusals, fmt.Sprintf("%s: %v", w.Name, err))
	}
	r.writes = append(r.writes, w)
}

// Since is a time as the history counts them.
func (r *CommitRun) Since(at time.Time) time.Duration { return at.Sub(r.began) }

// Acked is how many writes were acknowledged so far.
func (r *CommitRun) Acked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// Stop ends the workload and waits for the writes under way. Refusals are answers that no correct server
// gives.
func (r *CommitRun) Stop() (writes []Write, refusals []string) {
	r.stop()
	r.wait.Wait()
	return r.writes, r.refusals
}

// ReadWrites finds out how often each write took effect: by linearizable reads, or by reads of the replicas on
// only's nodes. It fills Found, and leaves -1 for a write without an answer.
func ReadWrites(ctx context.Context, c *Cluster, writes []Write, only ...*Node) error {
	cl, err := c.Client(30*time.Second, only...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var how []client.ReadOption
	if len(only) > 0 {
		how = append(how, client.Stale())
	}
	boxes := map[string][]int{} // the writes that went to each
	var jobs []func(context.Context) error
	for i := range writes {
		if box := writes[i].Box; box != "" {
			boxes[box] = append(boxes[box], i)
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error {
			p, err := cl.GetPromise(ctx, writes[i].Name, how...)
			switch {
			case err == nil && string(p.GetParam()) == writes[i].Name:
				writes[i].Found = 1
			case err == nil:
				return fmt.Errorf("promise %s holds %q, which no client wrote there", writes[i].Name, p.GetParam())
			case api.Is(err, perdurev1.Reason_REASON_PROMISE_NOT_FOUND):
				writes[i].Found = 0
			default:
				return err
			}
			return nil
		})
	}
	for box, in := range boxes {
		jobs = append(jobs, func(ctx context.Context) error { return readCollector(ctx, cl, box, writes, in, how) })
	}
	return inParallel(ctx, 32, jobs)
}

// readCollector reads the journal of an execution that collects signals. in are the writes that went there.
func readCollector(ctx context.Context, cl *client.Client, box string, writes []Write, in []int, how []client.ReadOption) error {
	found := map[string]int{}
	for entry, err := range cl.Journal(ctx, box, how...) {
		if api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
			break
		}
		if err != nil {
			return err
		}
		found[box] = 1 // the execution is there
		if d := entry.GetEvent().GetSignalDelivered(); d != nil {
			found[string(d.GetPayload().GetValue())]++
		}
	}
	for _, i := range in {
		writes[i].Found = found[writes[i].Name]
	}
	return nil
}

// inParallel runs the jobs, so many at a time, and returns the first few errors.
func inParallel(ctx context.Context, width int, jobs []func(context.Context) error) error {
	next := make(chan func(context.Context) error)
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	for range width {
		wait.Go(func() {
			for job := range next {
				if err := job(ctx); err != nil {
					mu.Lock()
					if len(errs) < 5 {
						errs = append(errs, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, job := range jobs {
		next <- job
	}
	close(next)
	wait.Wait()
	return errors.Join(errs...)
}
