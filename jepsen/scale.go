package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// ScaleOptions configures a scale run. Only Case is required.
type ScaleOptions struct {
	// Case is one of ScaleCases.
	Case string
	// N signals, steps, children, timers, members of a join set or turns of loops. Defaults: ScaleCases.
	N int
	// Clients send signals or set timers; default 32. A client sends its signals one after the other.
	Clients int
	// AtOnce has the children of the case joinset end at one instant.
	AtOnce bool
	// Spread is the time over which they end then, in another order than they began.
	Spread time.Duration
	// Pause is the time between two signals of a client. With one client and a pause of 10 ms, every signal finds the
	// receiver waiting.
	Pause time.Duration
	// Kills is how often the worker that runs the steps, or the leader of their partition, is killed.
	Kills int
	// Batch is how many children the parent starts before it waits for them; default: all.
	Batch int
	// Lead is the time in which all timers are set before they expire; default 15 s and 1 s for each 1,000.
	Lead time.Duration
	// Bound is the time in which the execution has to end, or all timers have to have fired; default 5 min.
	Bound time.Duration
	// MaxMemory is how many resident bytes a node may take; default 600 MB.
	MaxMemory int64
	Seed      uint64
	Out       io.Writer
}

// ScaleCases are the cases by name, with their default N.
var ScaleCases = map[string]int{"signals": 50_000, "steps": 20_000, "children": 5_000, "timers": 100_000, "joinset": 10_000, "eternal": 100_000}

func (o *ScaleOptions) fill() error {
	n, ok := ScaleCases[o.Case]
	if !ok {
		return fmt.Errorf("scale: case %q is none of signals, steps, children, timers, joinset and eternal", o.Case)
	}
	o.N = fallback(o.N, n)
	o.Clients, o.Batch = fallback(o.Clients, 32), fallback(o.Batch, o.N)
	o.Lead = fallback(o.Lead, 15*time.Second+time.Duration(o.N)*time.Millisecond)
	o.Bound, o.MaxMemory = fallback(o.Bound, 5*time.Minute), fallback(o.MaxMemory, 600_000_000)
	if o.Out == nil {
		o.Out = io.Discard
	}
	return nil
}

// ScaleReport is the outcome of a case.
type ScaleReport struct {
	Case string
	N    int
	// Took is from the first request until the execution had ended, or the last timer had fired.
	Took  time.Duration
	Paces []ScalePace
	// Late is how late timers fired; for the case timers only.
	Late *Spread `json:",omitempty"`
	// Notes are figures of the case alone.
	Notes  []string
	Memory []ScaleMemory
	// Heap is for the case steps only.
	Heap       []ScaleHeap `json:",omitempty"`
	Violations []string
}

// ScalePace is how fast one kind of event came, by the times in journals.
type ScalePace struct {
	What string
	N    int
	// Rate is events per second, Rates that of each tenth of the events.
	Rate  float64
	Rates []float64
}

// ScaleMemory is the resident memory of one process in bytes.
type ScaleMemory struct {
	Name             string
	Start, Most, End int64
	// Tenths is the memory at the end of each tenth of the time.
	Tenths []int64
}

// scaleRun is a case under way.
type scaleRun struct {
	o      ScaleOptions
	c      *Cluster
	cl     *client.Client
	fn     scaleFunctions
	report *ScaleReport
	began  time.Time
}

// Scale runs one case of large numbers on an undisturbed cluster and checks every piece of its result. An error means
// that the case could not be run. The program must call BeWorker.
func Scale(ctx context.Context, c *Cluster, o ScaleOptions) (*ScaleReport, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	lease := 30 * time.Second
	if o.Kills > 0 {
		lease = 3 * time.Second
	}
	if err := c.StartWorkers(ctx, 2, 64, lease); err != nil {
		return nil, err
	}
	cl, err := c.Client(time.Minute)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	r := &scaleRun{o: o, c: c, cl: cl, fn: newScaleFunctions(nil), report: &ScaleReport{Case: o.Case, N: o.N}}
	memory := &memorySeries{}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() { memory.run(watching, c) })
	r.began = time.Now()
	switch o.Case {
	case "signals":
		err = r.signals(ctx, memory)
	case "steps":
		err = r.steps(ctx, memory)
	case "children":
		err = r.children(ctx, memory)
	case "timers":
		err = r.timers(ctx, memory)
	case "joinset":
		err = r.joinSet(ctx, memory)
	case "eternal":
		err = r.eternal(ctx)
	}
	stop()
	watch.Wait()
	if r.report.Memory == nil {
		r.report.Memory = memory.report()
	}
	for _, m := range r.report.Memory {
		if strings.HasPrefix(m.Name, "n") && m.Most > o.MaxMemory {
			r.violate("%s took %d MB, at most %d are allowed", m.Name, m.Most/1_000_000, o.MaxMemory/1_000_000)
		}
	}
	if err == nil {
		r.report.Violations = append(r.report.Violations, Aftermath(ctx, c)...)
	}
	return r.report, err
}

func (r *scaleRun) violate(format string, args ...any) {
	r.report.Violations = append(r.report.Violations, fmt.Sprintf(format, args...))
}

// signals has all clients send to one execution, which receives them all.
func (r *scaleRun) signals(ctx context.Context, memory *memorySeries) error {
	id := fmt.Sprintf("scale-%x-signals", r.o.Seed)
	h, err := r.fn.signals.Start(ctx, r.cl, id, scaleInput{ID: id, N: r.o.N})
	if err != nil {
		return err
	}
	sent := make([]int, r.o.Clients)
	var jobs []func(context.Context) error
	for s := range r.o.Clients {
		count := r.o.N*(s+1)/r.o.Clients - r.o.N*s/r.o.Clients
		cl, err := r.c.Client(time.Minute)
		if err != nil {
			return err
		}
		defer cl.Close()
		jobs = append(jobs, func(ctx context.Context) error {
			for n := range count {
				payload, err := json.Marshal(scaleWord(s, n))
				if err != nil {
					return err
				}
				if err := cl.Signal(ctx, id, scaleSignal, payload); err != nil {
					return fmt.Errorf("sender %d, signal %d: %w", s, n, err)
				}
				sent[s]++
				if err := pause(ctx, r.o.Pause); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var senders sync.WaitGroup
	defer senders.Wait()
	var failed error
	senders.Go(func() {
		if failed = inParallel(ctx, r.o.Clients, jobs); failed == nil {
			fmt.Fprintf(r.o.Out, "all sent after %s\n", short3(time.Since(r.began)))
		}
	})
	result, entries, err := r.result(ctx, h, memory)
	senders.Wait()
	if failed != nil {
		r.violate("not acknowledged: %v", failed)
	}
	if err != nil {
		return err
	}
	var delivered, received []string
	var deliveredAt, receivedAt []int64
	for _, e := range entries {
		text := func(data []byte) string {
			var word string
			if err := json.Unmarshal(data, &word); err != nil {
				return string(data)
			}
			return word
		}
		if d := e.GetEvent().GetSignalDelivered(); d != nil {
			delivered, deliveredAt = append(delivered, text(d.GetPayload().GetValue())), append(deliveredAt, e.GetTimeMs())
		}
		if d := e.GetEvent().GetSignalReceived(); d != nil {
			received, receivedAt = append(received, text(d.GetPayload().GetValue())), append(receivedAt, e.GetTimeMs())
		}
	}
	r.pace("delivered", deliveredAt)
	r.pace("received", receivedAt)
	r.report.Violations = append(r.report.Violations, CheckScaleSignals(sent, delivered, received, result)...)
	return nil
}

// steps runs one execution of many steps.
func (r *scaleRun) steps(ctx context.Context, memory *memorySeries) error {
	id := fmt.Sprintf("scale-%x-steps", r.o.Seed)
	h, err := r.fn.steps.Start(ctx, r.cl, id, scaleInput{ID: id, N: r.o.N})
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() {
		var err error
		if r.o.Kills > 0 {
			err = r.kills(watching, id, 3*r.o.N)
		} else {
			r.report.Heap, err = r.watchHeap(watching, id, 3*r.o.N)
		}
		watched <- err
	}()
	result, entries, err := r.result(ctx, h, memory)
	if err != nil {
		stop()
	}
	if err = errors.Join(err, <-watched); err != nil {
		return err
	}
	if r.o.Kills == 0 {
		r.report.Violations = append(r.report.Violations, CheckScaleHeap(r.report.Heap, len(entries))...)
	}
	var proofs []string
	var at []int64
	for _, e := range entries {
		if d := e.GetEvent().GetInvokeCompleted(); d != nil {
			var got receipt
			if err := json.Unmarshal(d.GetResult().GetValue(), &got); err != nil {
				r.violate("%s has the result %q: %v", d.GetPromiseId(), d.GetResult().GetValue(), err)
			}
			proofs, at = append(proofs, got.Proof), append(at, e.GetTimeMs())
		}
	}
	r.pace("steps", at)
	if r.o.Kills > 0 {
		r.noteGaps(at)
	} else {
		r.checkLatency(at)
	}
	if err := r.checkWarning(ctx, id, len(entries)); err != nil {
		return err
	}
	notes, err := r.c.Steps(id)
	if err != nil {
		return err
	}
	records := StepRecords(notes)
	again := 0
	for _, s := range records {
		again += s.Runs - 1 - s.RunAfterAck
	}
	r.note("%d steps acted again before they were recorded", again)
	r.report.Violations = append(r.report.Violations, CheckScaleSteps(r.o.N, proofs, records, result)...)
	return nil
}

// children runs one execution that starts many children and waits for all.
func (r *scaleRun) children(ctx context.Context, memory *memorySeries) error {
	id := fmt.Sprintf("scale-%x-children", r.o.Seed)
	h, err := r.fn.children.Start(ctx, r.cl, id, scaleInput{ID: id, N: r.o.N, Batch: r.o.Batch})
	if err != nil {
		return err
	}
	result, entries, err := r.result(ctx, h, memory)
	if err != nil {
		return err
	}
	var scheduled []string
	var completed []ScaleChild
	var started, ended []int64
	for _, e := range entries {
		if s := e.GetEvent().GetInvokeScheduled(); s != nil {
			scheduled, started = append(scheduled, s.GetPromiseId()), append(started, e.GetTimeMs())
		}
		if d := e.GetEvent().GetInvokeCompleted(); d != nil {
			child := ScaleChild{Promise: d.GetPromiseId()}
			if err := json.Unmarshal(d.GetResult().GetValue(), &child.Result); err != nil {
				r.violate("%s has the result %v: %v", child.Promise, d.GetResult(), err)
			}
			completed, ended = append(completed, child), append(ended, e.GetTimeMs())
		}
	}
	r.pace("children started", started)
	r.pace("children completed", ended)
	r.report.Violations = append(r.report.Violations, CheckScaleChildren(id, r.o.N, scheduled, completed, result)...)
	return nil
}

// result waits for the end of the one execution of a case and reads its whole journal. It ends the
// measurement of memory in between. A run beyond the bound is a violation, and an error.
func (r *scaleRun) result(ctx context.Context, h *durable.Handle[string], memory *memorySeries) (string, []*perdurev1.JournalEntry, error) {
	waiting, cancel := context.WithTimeout(ctx, r.o.Bound)
	defer cancel()
	var progress sync.WaitGroup
	defer progress.Wait()
	defer cancel()
	progress.Go(func() {
		for pause(waiting, 10*time.Second) == nil {
			if e, err := r.cl.Describe(waiting, h.ID()); err == nil {
				fmt.Fprintf(r.o.Out, "%s: %d events in the journal, waits for %s; memory%s\n", short3(time.Since(r.began)), e.GetJournalEvents(), e.GetWakeSource(), memory.now())
			}
		}
	})
	result, err := h.Result(waiting)
	if err != nil {
		e, described := r.cl.Describe(context.WithoutCancel(ctx), h.ID())
		if described == nil {
			r.violate("%s did not end within %s: it has %d events, its last problem is %q", h.ID(), r.o.Bound, e.GetJournalEvents(), e.GetLastProblem())
		}
		return "", nil, errors.Join(err, described)
	}
	r.report.Took = time.Since(r.began)
	r.report.Memory = memory.report()
	var entries []*perdurev1.JournalEntry
	began := time.Now()
	for e, err := range r.cl.Journal(ctx, h.ID()) {
		if err != nil {
			return "", nil, fmt.Errorf("reading the journal of %s: %w", h.ID(), err)
		}
		entries = append(entries, e)
	}
	r.note("journal of %d events, read in %s", len(entries), short3(time.Since(began)))
	if wrong := CheckJournal(entries); wrong != "" {
		r.violate("journal of %s: %s", h.ID(), wrong)
	}
	return result, entries, nil
}

// Of the timers, every 50th is an execution that sleeps, and every 50th a promise that a client awaits.
const scaleSampled = 50

// timers sets timers that expire at the same moment.
func (r *scaleRun) timers(ctx context.Context, memory *memorySeries) error {
	at := r.began.Add(r.o.Lead)
	timers := make([]ScaleTimer, r.o.N)
	var clients []*client.Client
	for range r.o.Clients {
		cl, err := r.c.Client(time.Minute)
		if err != nil {
			return err
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	var set atomic.Int64
	var jobs []func(context.Context) error
	for i := range timers {
		t, cl := &timers[i], clients[i%len(clients)]
		t.ID, t.Sleeper = fmt.Sprintf("scale-%x-timer-%d", r.o.Seed, i), i%scaleSampled == 0
		jobs = append(jobs, func(ctx context.Context) error {
			defer set.Add(1)
			if t.Sleeper {
				_, err := r.fn.sleeper.Start(ctx, cl, t.ID, scaleInput{ID: t.ID, AtMs: at.UnixMilli()})
				return err
			}
			p, err := cl.CreatePromise(ctx, t.ID, client.PromiseOptions{Timeout: max(time.Millisecond, time.Until(at))})
			t.DueMs = p.GetTimeoutAtMs()
			return err
		})
	}
	progress, stopProgress := context.WithCancel(ctx)
	var shown sync.WaitGroup
	defer shown.Wait()
	defer stopProgress()
	shown.Go(func() {
		for pause(progress, 10*time.Second) == nil {
			fmt.Fprintf(r.o.Out, "%s: %d timers set; memory%s\n", short3(time.Since(r.began)), set.Load(), memory.now())
		}
	})
	if err := inParallel(ctx, 2*r.o.Clients, jobs); err != nil {
		return fmt.Errorf("setting timers: %w", err)
	}
	stopProgress()
	r.note("%d timers set in %s, %.0f/s", r.o.N, short3(time.Since(r.began)), float64(r.o.N)/time.Since(r.began).Seconds())
	if left := time.Until(at); left < 2*time.Second {
		return fmt.Errorf("setting %d timers took %s: set --lead to more than %s", r.o.N, short3(time.Since(r.began)), r.o.Lead)
	}

	// Clients await a sample. No promise may be settled yet.
	awaiting, cancel := context.WithTimeout(ctx, time.Until(at)+r.o.Bound)
	defer cancel()
	var waiters sync.WaitGroup
	defer waiters.Wait()
	defer cancel()
	for i := scaleSampled / 2; i < len(timers); i += scaleSampled {
		t, cl := &timers[i], clients[i%len(clients)]
		waiters.Go(func() {
			p, err := cl.AwaitPromise(awaiting, t.ID)
			if err == nil && p.GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING {
				t.HeardMs = time.Now().UnixMilli()
			}
		})
	}
	if err := pause(ctx, time.Until(at)-time.Second); err != nil {
		return err
	}
	early := 0
	for i := 1; i < len(timers) && time.Until(at) > 200*time.Millisecond; i += max(2, len(timers)/100|1) {
		if t := &timers[i]; !t.Sleeper {
			p, err := r.cl.GetPromise(ctx, t.ID)
			if err != nil {
				return err
			}
			if early++; p.GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING {
				r.violate("%s is %s before its deadline", t.ID, p.GetState())
			}
		}
	}
	r.note("%d promises read in the second before their deadline, pending unless named below", early)
	if err := pause(ctx, time.Until(at)); err != nil {
		return err
	}
	drained, most, err := r.drain(ctx, at, memory)
	if err != nil {
		return err
	}
	r.note("no leader had a timer overdue %s after the instant; the most overdue one was %s late", short3(drained), short3(most))
	r.report.Took = time.Since(r.began)
	r.report.Memory = memory.report()
	waiters.Wait()
	r.readTimers(ctx, clients, timers)
	wrong, late := CheckScaleTimers(r.o.N, timers)
	r.report.Violations = append(r.report.Violations, wrong...)
	var spread []time.Duration
	for _, ms := range late {
		spread = append(spread, time.Duration(ms)*time.Millisecond)
	}
	all := SpreadOf(spread)
	r.report.Late = &all
	var fired, due, heard []int64
	for _, t := range timers {
		if fired = append(fired, t.FiredMs...); t.DueMs > 0 {
			due = append(due, t.DueMs)
		}
		if t.HeardMs > 0 {
			heard = append(heard, t.HeardMs)
		}
	}
	if len(due) > 0 {
		r.note("deadlines from %d ms before to %d ms after the instant", at.UnixMilli()-slices.Min(due), slices.Max(due)-at.UnixMilli())
	}
	if awaited := (r.o.N + scaleSampled/2 - 1) / scaleSampled; len(heard) != awaited {
		r.violate("%d of %d awaited promises were answered", len(heard), awaited)
	}
	r.paceFrom("sampled sleepers fired", at.UnixMilli(), fired)
	r.paceFrom("sampled promises answered", at.UnixMilli(), heard)
	return nil
}

// drain waits until no leader knows an overdue deadline and every sleeper has ended.
func (r *scaleRun) drain(ctx context.Context, at time.Time, memory *memorySeries) (drained, most time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Bound)
	defer cancel()
	clear, shown := 0, time.Now()
	for {
		lag, err := r.c.deadlineLag(ctx)
		if err != nil {
			return 0, most, err
		}
		since := time.Since(at)
		if most = max(most, lag); lag > 0 {
			clear = 0
		} else if clear++; clear == 1 {
			drained = since
		}
		if clear >= 10 && since > 3*time.Second {
			return drained, most, nil
		}
		if time.Since(shown) > 5*time.Second {
			shown = time.Now()
			fmt.Fprintf(r.o.Out, "%s after the instant: the earliest deadline is %s overdue; memory%s\n", short3(since), short3(lag), memory.now())
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			r.violate("%s after the instant a timer was still overdue by %s", short3(since), short3(lag))
			return drained, most, err
		}
	}
}

// deadlineLag is the most that a leader's earliest deadline is overdue, by the nodes' metrics.
func (c *Cluster) deadlineLag(ctx context.Context) (most time.Duration, err error) {
	for _, n := range c.nodes {
		lag, err := n.deadlineLag(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", n.Name, err)
		}
		most = max(most, lag)
	}
	return most, nil
}

// deadlineLag is the most that the earliest deadline of a partition that the node leads is overdue.
func (n *Node) deadlineLag(ctx context.Context) (time.Duration, error) {
	seconds, err := n.metric(ctx, "perdure_partition_deadline_lag_seconds")
	if err != nil {
		return 0, err
	}
	return time.Duration(slices.Max(seconds) * float64(time.Second)), nil
}

// readTimers reads every promise, and the journal of every sleeper after its end.
func (r *scaleRun) readTimers(ctx context.Context, clients []*client.Client, timers []ScaleTimer) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Bound)
	defer cancel()
	began := time.Now()
	var jobs []func(context.Context) error
	for i := range timers {
		t, cl := &timers[i], clients[i%len(clients)]
		jobs = append(jobs, func(ctx context.Context) error {
			if !t.Sleeper {
				p, err := cl.GetPromise(ctx, t.ID)
				t.State, t.SettledMs = p.GetState(), p.GetSettledAtMs()
				return err
			}
			if _, err := r.fn.sleeper.Attach(cl, t.ID).Result(ctx); err != nil {
				return err
			}
			var entries []*perdurev1.JournalEntry
			for e, err := range cl.Journal(ctx, t.ID) {
				if err != nil {
					return err
				}
				entries = append(entries, e)
				if s := e.GetEvent().GetTimerScheduled(); s != nil {
					t.DueMs = s.GetFireAtMs()
				}
				if e.GetEvent().GetTimerFired() != nil {
					t.FiredMs = append(t.FiredMs, e.GetTimeMs())
				}
			}
			if wrong := CheckJournal(entries); wrong != "" {
				return fmt.Errorf("journal of %s: %s", t.ID, wrong)
			}
			return nil
		})
	}
	if err := inParallel(ctx, r.o.Clients, jobs); err != nil {
		r.violate("reading the timers after the run: %v", err)
		return
	}
	r.note("all timers read in %s", short3(time.Since(began)))
}

func (r *scaleRun) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

// pace adds the rates of events by their times in Unix milliseconds, from the run's begin.
func (r *scaleRun) pace(what string, at []int64) { r.paceFrom(what, r.began.UnixMilli(), at) }

func (r *scaleRun) paceFrom(what string, began int64, at []int64) {
	if len(at) == 0 {
		return
	}
	p := ScalePace{What: what, N: len(at)}
	p.Rate, p.Rates = paces(began, slices.Clone(at))
	r.report.Paces = append(r.report.Paces, p)
}

// String is the summary.
func (r *ScaleReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s in %s\n", r.N, r.Case, short3(r.Took))
	for _, p := range r.Paces {
		fmt.Fprintf(&b, "  %s: %d, %.0f/s; by tenths", p.What, p.N, p.Rate)
		for _, rate := range p.Rates {
			fmt.Fprintf(&b, " %.0f", rate)
		}
		b.WriteString("\n")
	}
	if r.Late != nil {
		fmt.Fprintf(&b, "  late, of a sample of %d: %s\n", r.Late.N, *r.Late)
	}
	for _, text := range r.Notes {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	for _, m := range r.Memory {
		fmt.Fprintf(&b, "  memory of %s in MB: at the start %d, at most %d, at the end %d; by tenths", m.Name, m.Start/1_000_000, m.Most/1_000_000, m.End/1_000_000)
		for _, bytes := range m.Tenths {
			fmt.Fprintf(&b, " %d", bytes/1_000_000)
		}
		b.WriteString("\n")
	}
	for _, h := range r.Heap {
		fmt.Fprintf(&b, "  heap in use of %s in MB, by tenths", h.Name)
		for _, bytes := range h.Tenths {
			fmt.Fprintf(&b, " %.1f", float64(bytes)/1e6)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// memorySeries notes the memory of every process five times a second. It is safe for concurrent use.
type memorySeries struct {
	mu    sync.Mutex
	names []string
	by    map[string][]int64
}

// run samples until the context ends.
func (m *memorySeries) run(ctx context.Context, c *Cluster) {
	all := map[string]*process{}
	m.mu.Lock()
	for _, n := range c.nodes {
		all[n.Name] = &n.process
		m.names = append(m.names, n.Name)
	}
	for _, w := range c.workers {
		all[w.Name] = &w.process
		m.names = append(m.names, w.Name)
	}
	m.mu.Unlock()
	for {
		m.mu.Lock()
		if m.by == nil {
			m.by = map[string][]int64{}
		}
		for name, p := range all {
			if bytes, err := p.Resident(); err == nil {
				m.by[name] = append(m.by[name], bytes)
			}
		}
		m.mu.Unlock()
		if pause(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

// now is the memory of every process, for people.
func (m *memorySeries) now() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, name := range m.names {
		if s := m.by[name]; len(s) > 0 {
			fmt.Fprintf(&b, " %s %d MB", name, s[len(s)-1]/1_000_000)
		}
	}
	return b.String()
}

// report sums up what was noted so far.
func (m *memorySeries) report() []ScaleMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []ScaleMemory
	for _, name := range m.names {
		s := m.by[name]
		if len(s) == 0 {
			continue
		}
		u := ScaleMemory{Name: name, Start: s[0], Most: slices.Max(s), End: s[len(s)-1]}
		for i := 1; i <= 10; i++ {
			u.Tenths = append(u.Tenths, s[max(0, len(s)*i/10-1)])
		}
		out = append(out, u)
	}
	return out
}
