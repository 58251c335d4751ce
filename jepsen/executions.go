package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// ExecutionOptions say what to run. The zero value is 200 executions under one kill-leader.
type ExecutionOptions struct {
	// N executions at least; default 200. More are run while faults still last.
	N int
	// Clients each start one, wait for its result, and start the next; default 64.
	Clients int
	// Workers are processes that run the steps, each up to 64 functions at once; default 3. Lease is how long
	// the cluster waits for them; default 5 s. A cluster that has so many workers keeps them as they are.
	Workers int
	Lease   time.Duration
	// StepTime is how long a step takes; default 2 ms. In every LongEvery-th execution (default 32; negative for none)
	// it takes a third of the lease, so that the task is held for as long as a lease lasts, and across faults.
	StepTime  time.Duration
	LongEvery int
	// Timeout is a client's timeout for one execution; default 60 s.
	Timeout time.Duration
	// Faults are taken in turn, Rounds of them (default one each); default kill-leader.
	Faults []Fault
	Rounds int
	// Warm, Hold and Cool are as with Failover; defaults 2 s, 8 s and 2 s.
	Warm, Hold, Cool time.Duration
	// Journals is how many journals are read through afterwards; default 500.
	Journals int
	Prefix   string
	Seed     uint64
	Out      io.Writer
}

func (o *ExecutionOptions) fill() {
	o.N, o.Clients, o.Workers = fallback(o.N, 200), fallback(o.Clients, 64), fallback(o.Workers, 3)
	o.Lease, o.StepTime = fallback(o.Lease, 5*time.Second), fallback(o.StepTime, 2*time.Millisecond)
	o.LongEvery = fallback(o.LongEvery, 32)
	o.Timeout = fallback(o.Timeout, time.Minute)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults("kill-leader")
	}
	o.Rounds = fallback(o.Rounds, len(o.Faults))
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, 2*time.Second), fallback(o.Hold, 8*time.Second), fallback(o.Cool, 2*time.Second)
	o.Journals = fallback(o.Journals, 500)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("x-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// ExecutionReport is the outcome of a run of executions.
type ExecutionReport struct {
	Executions, Steps int
	Took              time.Duration
	// Latency is of executions that were not under way during a fault; Slowest the slowest of all.
	Latency Spread
	Slowest time.Duration
	Faults  []ExecutionFault
	Verdict ExecutionVerdict
	Holding Holding
	// Journals is how many were read.
	Journals   int
	Violations []string
}

// ExecutionFault is the cost of one fault.
type ExecutionFault struct {
	Fault, Hit string
	// Gap is the longest time without a completion, Slow how long there were fewer than half as many as
	// before, Slowest the slowest execution that was under way.
	Gap, Before, Slow, Slowest, Restart time.Duration
	Rate                                float64
}

// ExecutionRun is the workload of three-step executions.
type ExecutionRun struct {
	o  ExecutionOptions
	c  *Cluster
	fn *durable.Function[stepsInput, string]
	// waiting is for every second execution; boxes collect the signals that those send.
	waiting *durable.Function[stepsInput, string]
	boxes   []string
	began   time.Time
	made    atomic.Int64
	over    atomic.Bool // no more faults: N is enough

	mu         sync.Mutex
	executions []Execution
}

// Executions runs three-step executions while the cluster is broken and repaired, and reads all of them back
// afterwards. An error means that the run could not be made.
func Executions(ctx context.Context, c *Cluster, o ExecutionOptions) (*ExecutionReport, error) {
	o.fill()
	r := &ExecutionRun{o: o, c: c}
	r.fn, r.waiting = stepFunction(nil), waitingFunction(nil) // to be started only: workers have their own
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, o.Lease); err != nil {
			return nil, err
		}
	}
	if err := r.openBoxes(ctx); err != nil {
		return nil, err
	}
	if err := c.waitLevel(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var clients sync.WaitGroup
	for range o.Clients {
		cl, err := c.Client(o.Timeout)
		if err != nil {
			cancel()
			clients.Wait()
			return nil, err
		}
		clients.Go(func() {
			defer cl.Close()
			for running.Err() == nil && (!r.over.Load() || r.made.Load() < int64(o.N)) {
				r.one(ctx, cl)
			}
		})
	}
	wounds, err := r.faults(ctx)
	r.over.Store(true)
	if err != nil {
		cancel()
	}
	clients.Wait()
	took := time.Since(r.began)
	if err != nil {
		return nil, err
	}
	report := &ExecutionReport{Took: took, Executions: len(r.executions)}
	if report.Journals, err = r.readBack(ctx); err != nil {
		return nil, fmt.Errorf("looking up the executions: %w", err)
	}
	notes, err := c.Steps(o.Prefix + "-")
	if err != nil {
		return nil, err
	}
	steps := StepRecords(AckedByResult(notes, r.executions, r.began))
	report.Steps = len(steps)
	report.Verdict = CheckExecutions(r.executions, steps, len(stepNames))
	slack := time.Duration(0)
	if slices.ContainsFunc(wounds, func(w *Wound) bool { return w.Fault.Patched }) {
		slack = clockSlack
	}
	report.Verdict.CheckSleeps(SleepRecords(notes), slack)
	report.measure(r.executions, wounds, r.began)
	report.Violations = report.Verdict.Violations()
	report.hold(notes, wounds, o.LongEvery > 0)
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// waits says that an execution waits between its steps, so its task comes and goes.
func waits(id string) bool {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	return err == nil && n%2 == 1
}

// boxCount is how many executions collect signals: enough to be in every partition.
const boxCount = 16

// openBoxes starts the executions that collect signals. No worker has their function.
func (r *ExecutionRun) openBoxes(ctx context.Context) error {
	cl, err := r.c.Client(r.o.Timeout)
	if err != nil {
		return err
	}
	defer cl.Close()
	var jobs []func(context.Context) error
	for i := range boxCount {
		id := fmt.Sprintf("%s-box%d", r.o.Prefix, i)
		r.boxes = append(r.boxes, id)
		jobs = append(jobs, func(ctx context.Context) error {
			_, err := cl.Start(ctx, client.StartOptions{ID: id, Function: boxFunction, AllowUnknownFunction: true})
			return err
		})
	}
	return inParallel(ctx, boxCount, jobs)
}

// hold checks which workers held the tasks. A cluster without a majority could renew no lease. With long steps, some
// task has to be held across each fault of a node, or nothing was checked.
func (r *ExecutionReport) hold(notes []StepNote, wounds []*Wound, longSteps bool) {
	var outages []Outage
	var breaks []time.Time
	judged := true
	for _, w := range wounds {
		judged = judged && w.Fault.Quorum
		if w.Worker != nil {
			outages = append(outages, Outage{w.Worker.Name, w.At, w.Healed})
		} else if len(w.Nodes) > 0 {
			breaks = append(breaks, w.At)
		}
	}
	notes = slices.DeleteFunc(notes, func(n StepNote) bool { return waits(n.Execution) })
	r.Holding = CheckHolding(notes, outages, breaks)
	if !judged {
		return
	}
	for i, text := range r.Holding.Taken {
		if i == 10 {
			text = fmt.Sprintf("and %d more", len(r.Holding.Taken)-i)
		}
		if i <= 10 {
			r.Violations = append(r.Violations, "taken from a running worker: "+text)
		}
	}
	if len(breaks) > 0 && longSteps && r.Holding.Kept == 0 {
		r.Violations = append(r.Violations, "no task was held across a fault of a node: nothing was checked there")
	}
}

// faults breaks and repairs the cluster, round by round.
func (r *ExecutionRun) faults(ctx context.Context) ([]*Wound, error) {
	rng := rand.New(rand.NewPCG(r.o.Seed, 3))
	var out []*Wound
	for i := range r.o.Rounds {
		// Each client is in the midst of the next one then.
		least := r.ended() + r.o.Clients
		f := r.o.Faults[i%len(r.o.Faults)]
		w, err := underFault(ctx, r.c, f, r.o.Warm, f.holds(r.o.Hold, r.o.Lease, rng), r.o.Cool, rng,
			func() error { return fewer(r.ended(), least, "executions") })
		if err != nil {
			return out, err
		}
		fmt.Fprintf(r.o.Out, "fault %d: %s of %s, %d executions so far\n", i+1, w.Fault.Name, w.Names(), r.made.Load())
		out = append(out, w)
	}
	return out, nil
}

// ended is how many executions have ended, for their clients.
func (r *ExecutionRun) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.executions)
}

// one runs one execution and records the client's answer. Every second execution sleeps, sends signals to a
// box and waits for a signal of its client.
func (r *ExecutionRun) one(ctx context.Context, cl *client.Client) {
	n := r.made.Add(1)
	e := Execution{ID: fmt.Sprintf("%s-%d", r.o.Prefix, n), Acked: -1, Done: -1, Words: -1}
	in := stepsInput{ID: e.ID, Micros: r.o.StepTime.Microseconds()}
	if r.o.LongEvery > 0 && n%int64(r.o.LongEvery) == 0 {
		in.Micros = (r.o.Lease / 3).Microseconds()
	}
	fn := r.fn
	if waits(e.ID) {
		fn = r.waiting
		in.Box, in.Sleep = r.boxes[int(n)%len(r.boxes)], 20+n*37%400
		e.Box, e.Word, e.Sent = in.Box, "word-"+e.ID, []int{-1, -1}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	e.Called = time.Since(r.began)
	h, err := fn.Start(ctx, cl, e.ID, in)
	if err == nil {
		e.Acked = time.Since(r.began)
		if e.Word != "" {
			err = e.sendWord(ctx, cl)
		}
	}
	if err == nil {
		if e.Result, err = h.Result(ctx); err == nil {
			e.Done = time.Since(r.began)
		}
	}
	if err != nil {
		e.Err = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executions = append(r.executions, e)
}

// sendWord sends the signal that the execution waits for, until it is acknowledged.
func (e *Execution) sendWord(ctx context.Context, cl *client.Client) error {
	for {
		err := cl.Signal(ctx, e.ID, goSignal, []byte(strconv.Quote(e.Word)))
		switch {
		case err == nil:
			e.WordSent++
			e.WordAcked = true
			return nil
		case errors.Is(err, client.ErrOutcomeUnknown):
			e.WordSent++
		case !errors.Is(err, client.ErrUnavailable): // which says that it was surely not applied
			return fmt.Errorf("signal: %w", err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("signal: %w", err)
		}
	}
}

// finishTimeout is the time in which all executions must end whose clients have given up.
const finishTimeout = 30 * time.Second

// readBack asks for every execution again, with a client that knows nothing, and reads some journals.
func (r *ExecutionRun) readBack(ctx context.Context) (journals int, err error) {
	cl, err := r.c.Client(30 * time.Second)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	deadline := time.Now().Add(finishTimeout)
	every := max(1, len(r.executions)/r.o.Journals)
	var jobs []func(context.Context) error
	for i := range r.executions {
		e := &r.executions[i]
		read := i%every == 0
		if read {
			journals++
		}
		jobs = append(jobs, func(ctx context.Context) error {
			data, done, err := cl.PollResult(ctx, e.ID, max(time.Until(deadline), 10*time.Millisecond))
			switch {
			case api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND):
				e.Found = Missing
				return nil
			case err != nil:
				return err
			case !done:
				e.Found = NotFinished
				return nil
			}
			if err := json.Unmarshal(data, &e.Found); err != nil {
				return fmt.Errorf("%s: result %q: %w", e.ID, data, err)
			}
			if read {
				e.Journal, e.Words, err = readJournal(ctx, cl, e.ID)
			}
			return err
		})
	}
	if err := inParallel(ctx, 32, jobs); err != nil {
		return journals, err
	}
	return journals, r.countSignals(ctx, cl, deadline)
}

// countSignals counts the signals that were delivered to the boxes. A signal that is under way has until the deadline.
func (r *ExecutionRun) countSignals(ctx context.Context, cl *client.Client, deadline time.Time) error {
	sent := map[string][]*Execution{}
	for i := range r.executions {
		if e := &r.executions[i]; e.Box != "" {
			sent[e.Box] = append(sent[e.Box], e)
		}
	}
	var jobs []func(context.Context) error
	for box, from := range sent {
		jobs = append(jobs, func(ctx context.Context) error {
			for {
				found := map[string]int{}
				for entry, err := range cl.Journal(ctx, box) {
					if err != nil {
						return err
					}
					if d := entry.GetEvent().GetSignalDelivered(); d != nil {
						var payload string
						if err := json.Unmarshal(d.GetPayload().GetValue(), &payload); err != nil {
							return fmt.Errorf("%s: signal %q: %w", box, d.GetPayload().GetValue(), err)
						}
						found[payload]++
					}
				}
				lacking := 0
				for _, e := range from {
					for i := range e.Sent {
						e.Sent[i] = found[sentPayload(e.ID, i)]
						if e.Sent[i] == 0 && e.Found != Missing && e.Found != NotFinished {
							lacking++
						}
					}
				}
				if lacking == 0 || time.Now().After(deadline) {
					return nil
				}
				if err := pause(ctx, 10*pollInterval); err != nil {
					return err
				}
			}
		})
	}
	return inParallel(ctx, 8, jobs)
}

// readJournal returns the problem in the journal of an ended execution, if any, and how often the signal that it may
// wait for was delivered.
func readJournal(ctx context.Context, cl *client.Client, id string) (wrong string, words int, err error) {
	var entries []*perdurev1.JournalEntry
	for entry, err := range cl.Journal(ctx, id) {
		if err != nil {
			return "", -1, err
		}
		if entry.GetEvent().GetSignalDelivered().GetName() == goSignal {
			words++
		}
		entries = append(entries, entry)
	}
	return CheckJournal(entries), words, nil
}

// CheckJournal returns the problem in the journal of an ended execution, if any: a hole in the sequence,
// an operation that was scheduled or completed twice, an attempt that began twice, a timer that fired twice, early
// or never, anything after the end, no end. It returns "" when nothing is.
func CheckJournal(entries []*perdurev1.JournalEntry) string {
	count := map[string]int{}
	due := map[string]int64{}
	var scheduled, timers []string
	ends := 0
	for i, entry := range entries {
		if i > 0 && entry.GetSeq() != entries[i-1].GetSeq()+1 {
			return fmt.Sprintf("entry %d follows entry %d", entry.GetSeq(), entries[i-1].GetSeq())
		}
		if ends > 0 {
			return fmt.Sprintf("entry %d comes after the end", entry.GetSeq())
		}
		what := ""
		switch e := entry.GetEvent().GetKind().(type) {
		case *perdurev1.Event_InvokeScheduled:
			what = "scheduled " + e.InvokeScheduled.GetPromiseId()
			scheduled = append(scheduled, e.InvokeScheduled.GetPromiseId())
		case *perdurev1.Event_InvokeStarted:
			what = fmt.Sprintf("attempt %d of %s", e.InvokeStarted.GetAttempt(), e.InvokeStarted.GetPromiseId())
		case *perdurev1.Event_InvokeCompleted:
			what = "completed " + e.InvokeCompleted.GetPromiseId()
		case *perdurev1.Event_TimerScheduled:
			id := e.TimerScheduled.GetPromiseId()
			what, timers = "timer "+id, append(timers, id)
			due[id] = entry.GetTimeMs() + e.TimerScheduled.GetDurationMs()
			if at := e.TimerScheduled.GetFireAtMs(); at < due[id] {
				return fmt.Sprintf("entry %d: timer %s of %d ms expires %d ms after it was scheduled", entry.GetSeq(), id,
					e.TimerScheduled.GetDurationMs(), at-entry.GetTimeMs())
			}
		case *perdurev1.Event_TimerFired:
			id := e.TimerFired.GetPromiseId()
			if what = "fired " + id; entry.GetTimeMs() < due[id] {
				return fmt.Sprintf("entry %d: timer %s fired %d ms early", entry.GetSeq(), id, due[id]-entry.GetTimeMs())
			}
		case *perdurev1.Event_ExecutionCompleted, *perdurev1.Event_ExecutionFailed, *perdurev1.Event_ExecutionCancelled:
			ends++
			continue
		default:
			continue
		}
		if count[what]++; count[what] > 1 {
			return fmt.Sprintf("entry %d: %s, for the second time", entry.GetSeq(), what)
		}
	}
	for _, promise := range scheduled {
		if count["completed "+promise] == 0 {
			return promise + " was scheduled and has not completed"
		}
	}
	for _, timer := range timers {
		if count["fired "+timer] == 0 {
			return timer + " has not fired"
		}
	}
	if ends == 0 {
		return fmt.Sprintf("%d entries and no end", len(entries))
	}
	return ""
}

// measure reads the figures.
func (r *ExecutionReport) measure(executions []Execution, wounds []*Wound, began time.Time) {
	var done, calm []time.Duration
	underWay := func(e Execution, w *Wound) bool { // while the fault lasted
		return e.Done >= w.At.Sub(began) && e.Called <= w.Healed.Sub(began)
	}
	inFault := func(e Execution) bool {
		return slices.ContainsFunc(wounds, func(w *Wound) bool { return (len(w.Nodes) > 0 || w.Worker != nil) && underWay(e, w) })
	}
	for _, e := range executions {
		if e.Done < 0 {
			continue
		}
		done = append(done, e.Done)
		r.Slowest = max(r.Slowest, e.Done-e.Called)
		if !inFault(e) {
			calm = append(calm, e.Done-e.Called)
		}
	}
	r.Latency = SpreadOf(calm)
	start := time.Duration(0)
	if len(done) > 0 {
		start = slices.Min(done)
	}
	for i, w := range wounds {
		end := r.Took
		if i+1 < len(wounds) {
			end = wounds[i+1].At.Sub(began)
		}
		at := w.At.Sub(began)
		f := ExecutionFault{Fault: w.Fault.Name, Hit: w.Names(), Restart: w.Restart(),
			Gap: LongestGap(done, at, end), Before: LongestGap(between(done, 0, at), start, at), Slow: SlowTime(done, start, at, end)}
		before := 0
		for _, e := range executions {
			if e.Done >= start && e.Done < at {
				before++
			}
			if e.Done >= 0 && underWay(e, w) {
				f.Slowest = max(f.Slowest, e.Done-e.Called)
			}
		}
		f.Rate = float64(before) / (at - start).Seconds()
		r.Faults = append(r.Faults, f)
		start = w.Healed.Sub(began)
	}
}

// String is the summary.
func (r *ExecutionReport) String() string {
	var b strings.Builder
	v := r.Verdict
	fmt.Fprintf(&b, "%d executions of %d steps in %s; outside of faults %s; slowest of all %s\n",
		r.Executions, len(stepNames), short3(r.Took), r.Latency, short3(r.Slowest))
	for _, f := range r.Faults {
		fmt.Fprintf(&b, "  %s of %s: longest time without a completion %s (before %s), under half the earlier rate (%.0f/s) for %s, slowest %s, restart %s\n",
			f.Fault, f.Hit, short3(f.Gap), short3(f.Before), f.Rate, short3(f.Slow), short3(f.Slowest), short3(f.Restart))
	}
	fmt.Fprintf(&b, "  started %d, finished %d, errors %d, LOST %d, steps run again before they were recorded %d, RUN AGAIN AFTER %d, WRONG %d; %d journals read\n",
		v.Started, v.Finished, len(v.Errors), len(v.Lost), v.Repeated, len(v.Reruns), len(v.Wrong), r.Journals)
	fmt.Fprintf(&b, "  signals delivered %d, NOT EXACTLY ONCE %d; sleeps %d, too long by %s, TOO SHORT %d\n",
		v.Delivered, len(v.Signals), v.Slept, v.Overslept, len(v.Early))
	h := r.Holding
	fmt.Fprintf(&b, "  tasks %d: held by one worker across a fault of a node %d, moved from a worker that was hit %d, given back %d, come again %d, TAKEN FROM A RUNNING WORKER %d\n",
		h.Tasks, h.Kept, h.Moved, h.GivenBack, h.Again, len(h.Taken))
	return b.String()
}
