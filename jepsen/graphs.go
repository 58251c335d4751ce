package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// GraphOptions say what graphs to run. The zero value is 20 runs while leaders and workers are killed.
type GraphOptions struct {
	// N runs of drawn graphs; default 20. Every fourth has a twin: the same script, in waves.
	N int
	// MaxNodes bounds the nodes of one graph, those of subgraphs not counted; default 200.
	MaxNodes int
	// Active is how many runs are under way at a time; default 24.
	Active int
	// Workers is the number of worker processes; default 3. Lease is the lease of their tasks; default 2 s.
	Workers int
	Lease   time.Duration
	// Samplers read statuses of runs that are under way, all the time; default 3.
	Samplers int
	// Faults of nodes are injected in turn, and those of workers at the same time, until all runs were
	// submitted, each at least once; default kill-leader and kill-worker.
	Faults []Fault
	// Warm, Hold and Cool are as with Failover; defaults 1 s each.
	Warm, Hold, Cool time.Duration
	// Bound is when every run has to have ended, from the end of the faults; default 60 s.
	Bound  time.Duration
	Prefix string
	Seed   uint64
	Out    io.Writer
}

func (o *GraphOptions) fill() {
	o.N, o.MaxNodes, o.Active = fallback(o.N, 20), fallback(o.MaxNodes, 200), fallback(o.Active, 24)
	o.Workers, o.Lease, o.Samplers = fallback(o.Workers, 3), fallback(o.Lease, 2*time.Second), fallback(o.Samplers, 3)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults("kill-leader,kill-worker")
	}
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, time.Second), fallback(o.Hold, time.Second), fallback(o.Cool, time.Second)
	o.Bound = fallback(o.Bound, time.Minute)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("g-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// SavedOften are arguments by which a node makes its state durable all the time, and not only when there is
// much of it. Otherwise a killed node finds an old state, or none, and applies its log from there: it never
// reads a run that is half done, which recovery must handle.
var SavedOften = []string{"--snapshot-threshold=16", "--snapshot-interval=100ms"}

// GraphReport is the outcome of all runs.
type GraphReport struct {
	Seed uint64
	Took time.Duration
	// AfterFaults is how long the last run took from the end of the faults.
	AfterFaults time.Duration
	// Waves is how many runs were in waves, Twins how many pairs were compared.
	Waves, Twins int
	// Spread is of the runs' times. Nodes is of functions that took one attempt: from the start of a node until
	// its result was recorded, without the time that its script takes; Slowest is the slowest of them.
	Spread, Nodes Spread
	Slowest       string
	// Samples is how many statuses were checked while runs were under way; Signals how many were sent.
	Samples, Signals int
	// Late is how much later than its client the watcher of a run saw the end; Shown is how many statuses all
	// watchers were shown.
	Late  Spread
	Shown int
	// Repeats is how often a client asked again, because no answer came within its timeout.
	Repeats    int
	Faults     map[string]int
	Verdict    GraphVerdict
	Violations []string
}

// GraphRun is the workload of graphs.
type GraphRun struct {
	o       GraphOptions
	c       *Cluster
	all     *client.Client // knows all nodes
	records []*GraphRecord
	twins   [][2]string
	next    atomic.Int64
	over    chan struct{} // closed when all runs were submitted
	signals atomic.Int64
	repeats atomic.Int64

	mu     sync.Mutex
	active []*GraphSamples
	seen   int
	shown  int
	late   []time.Duration
	wrong  []string
	faults map[string]int
}

// Graphs runs drawn graphs while nodes and workers are broken and repaired. It checks the statuses that are
// seen meanwhile, and reads back all runs afterwards. An error means that the run could not be made. The
// program has to call BeWorker.
func Graphs(ctx context.Context, c *Cluster, o GraphOptions) (*GraphReport, error) {
	o.fill()
	r := &GraphRun{o: o, c: c, over: make(chan struct{}), faults: map[string]int{}}
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, o.Lease); err != nil {
			return nil, err
		}
	}
	r.draw()
	var err error
	if r.all, err = c.Client(graphTimeout); err != nil {
		return nil, err
	}
	defer r.all.Close()
	began := time.Now()
	calm, err := r.underFaults(ctx)
	if err != nil {
		return nil, err
	}
	report := &GraphReport{Seed: o.Seed, Took: time.Since(began), AfterFaults: time.Since(calm), Twins: len(r.twins), Samples: r.seen,
		Late: SpreadOf(r.late), Shown: r.shown, Faults: r.faults, Signals: int(r.signals.Load()), Repeats: int(r.repeats.Load())}
	if err := r.readBack(ctx); err != nil {
		return nil, fmt.Errorf("looking up the runs: %w", err)
	}
	calls, err := c.Calls()
	if err != nil {
		return nil, err
	}
	report.Verdict = CheckGraphs(r.records, calls, r.twins)
	var took []time.Duration
	for _, rec := range r.records {
		if rec.Script.Graph.GetWave() {
			report.Waves++
		}
		took = append(took, rec.Took)
	}
	report.Spread = SpreadOf(took)
	report.Nodes, report.Slowest = nodeTimes(r.records)
	slices.Sort(r.wrong)
	for i, text := range slices.Compact(r.wrong) {
		if i < 20 {
			report.Violations = append(report.Violations, "seen while it ran: "+text)
		}
	}
	report.Violations = append(report.Violations, report.Verdict.Violations()...)
	for i, v := range report.Violations {
		report.Violations[i] = fmt.Sprintf("seed %d: %s", o.Seed, v)
	}
	if report.Samples == 0 {
		report.Violations = append(report.Violations, "no status was read while a run was under way: nothing was checked there")
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// graphTimeout is a client's timeout for one call.
const graphTimeout = 15 * time.Second

// draw draws all runs.
func (r *GraphRun) draw() {
	add := func(name string, number int, wave bool) string {
		id := fmt.Sprintf("%s-%s", r.o.Prefix, name)
		r.records = append(r.records, &GraphRecord{ID: id, Script: DrawGraph(r.o.Seed, uint64(number), r.o.MaxNodes, wave)})
		return id
	}
	for k := 0; len(r.records) < r.o.N; k++ {
		one := add(fmt.Sprint(k), k, k%4 == 1)
		if k%4 == 0 && len(r.records) < r.o.N {
			r.twins = append(r.twins, [2]string{one, add(fmt.Sprintf("%d-wave", k), k, true)})
		}
	}
}

// underFaults runs all graphs under faults; calm is when the last fault was repaired.
func (r *GraphRun) underFaults(ctx context.Context) (calm time.Time, err error) {
	breaking := make(chan error, 2)
	ofNodes, ofWorkers := []Fault{}, []Fault{}
	for _, f := range r.o.Faults {
		if f.Target == AWorker {
			ofWorkers = append(ofWorkers, f)
		} else {
			ofNodes = append(ofNodes, f)
		}
	}
	for i, faults := range [][]Fault{ofNodes, ofWorkers} {
		go func() { breaking <- r.breakThem(ctx, faults, uint64(i)) }()
	}
	runs := make([]*client.Client, len(r.c.nodes))
	for i, n := range r.c.nodes {
		if runs[i], err = r.c.Client(graphTimeout, n); err != nil {
			return calm, err
		}
		defer runs[i].Close()
	}
	running, stop := context.WithCancel(ctx) // ends when the time for all runs is over
	defer stop()
	var clients, samplers sync.WaitGroup
	for range r.o.Active {
		clients.Go(func() {
			for running.Err() == nil {
				k := int(r.next.Add(1)) - 1
				if k >= len(r.records) {
					return
				}
				if k == len(r.records)-1 {
					close(r.over)
				}
				r.one(running, r.records[k], k%watchedEach == 0, runs[k%len(runs)], rand.New(rand.NewPCG(r.o.Seed, uint64(k)<<8)))
			}
		})
	}
	sampling, enough := context.WithCancel(running)
	for i := range r.o.Samplers {
		samplers.Go(func() { r.sample(sampling, rand.New(rand.NewPCG(r.o.Seed, uint64(i)<<16))) })
	}
	for range 2 {
		err = errors.Join(err, <-breaking)
	}
	calm = time.Now()
	if err != nil {
		stop()
	}
	bound := time.AfterFunc(r.o.Bound, stop)
	clients.Wait()
	bound.Stop()
	enough()
	samplers.Wait()
	return calm, err
}

// breakThem injects and repairs faults until all runs were submitted, and every fault was injected once.
func (r *GraphRun) breakThem(ctx context.Context, faults []Fault, stream uint64) error {
	rng := rand.New(rand.NewPCG(r.o.Seed, 40+stream))
	for i := 0; len(faults) > 0; i++ {
		select {
		case <-r.over:
			if i >= len(faults) {
				return nil
			}
		default:
		}
		f := faults[i%len(faults)]
		w, err := underFault(ctx, r.c, f, r.o.Warm, f.holds(r.o.Hold, r.o.Lease, rng), r.o.Cool, rng, nil)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.faults[f.Name]++
		r.mu.Unlock()
		fmt.Fprintf(r.o.Out, "%s %s of %s, %d of %d runs submitted\n", w.At.UTC().Format("15:04:05.000Z"), f.Name, w.Names(), min(int(r.next.Load()), len(r.records)), len(r.records))
	}
	return nil
}

// one submits one run, sends its signals, and waits for its end, and has it watched if it is to be.
func (r *GraphRun) one(ctx context.Context, rec *GraphRecord, watched bool, cl *client.Client, rng *rand.Rand) {
	began := time.Now()
	defer func() { rec.Took = time.Since(began) }()
	// The first attempt is one node's; when that one is down, all others are asked.
	err := r.until(ctx, func(again bool) error {
		if again {
			cl = r.all
		}
		call, cancel := context.WithTimeout(ctx, graphTimeout/3)
		defer cancel()
		_, err := cl.SubmitGraph(call, client.SubmitGraphOptions{ID: rec.ID, Graph: rec.Script.Graph, Input: []byte("{}")})
		return err
	})
	if err != nil {
		r.note(ctx, rec.ID+": submitting: "+err.Error())
		return
	}
	rec.Acked = true
	samples, err := NewGraphSamples(rec.ID, rec.Script)
	if err != nil {
		r.note(ctx, rec.ID+": "+err.Error())
		return
	}
	r.mu.Lock()
	r.active = append(r.active, samples)
	r.mu.Unlock()
	var signals sync.WaitGroup
	for _, name := range rec.Script.Signals {
		delay := time.Duration(rng.IntN(2500)) * time.Millisecond
		signals.Go(func() {
			if pause(ctx, delay) == nil {
				r.signal(ctx, rec.ID, name)
			}
		})
	}
	var watching sync.WaitGroup
	var seen time.Time
	shown := 0
	if watched {
		watching.Go(func() { seen, shown = r.watch(ctx, rec) })
	}
	err = r.until(ctx, func(bool) error {
		_, err := r.all.Result(ctx, rec.ID)
		if failed := new(client.ExecutionError); errors.As(err, &failed) {
			return nil // the run has failed: that is an end
		}
		return err
	})
	var reported time.Time
	if err != nil {
		r.note(ctx, rec.ID+": waiting for its end: "+err.Error())
	} else {
		reported = time.Now()
	}
	watching.Wait()
	r.watched(ctx, rec, reported, seen, shown)
	if err := r.readEnded(ctx, samples, rec); err != nil {
		r.note(ctx, rec.ID+": its status: "+err.Error())
	}
	signals.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.active, samples); i >= 0 {
		r.active = slices.Delete(r.active, i, i+1)
	}
	r.seen += samples.Seen
}

// readEnded reads the status of a run that has ended.
func (r *GraphRun) readEnded(ctx context.Context, samples *GraphSamples, rec *GraphRecord) error {
	var wrong []string
	err := r.until(ctx, func(bool) (err error) {
		wrong, err = samples.Sample(func() (*perdurev1.GraphStatus, error) {
			s, err := r.all.GraphStatus(ctx, rec.ID)
			if err == nil {
				rec.Seen = s
			}
			return s, err
		})
		return err
	})
	if err == nil && !ended(rec.Seen) {
		wrong = append(wrong, rec.ID+": its end was reported, and then it is "+rec.Seen.GetPhase())
	}
	for _, text := range wrong {
		r.note(context.Background(), text)
	}
	return err
}

// signal sends a signal until it is acknowledged, or the run does not need it any more. Sent twice it has the
// same payload, so that makes no difference.
func (r *GraphRun) signal(ctx context.Context, id, name string) {
	err := r.until(ctx, func(bool) error {
		err := r.all.Signal(ctx, id, name, SignalPayload(name))
		if api.Is(err, perdurev1.Reason_REASON_ALREADY_FINISHED) {
			return nil
		}
		return err
	})
	if err != nil {
		r.note(ctx, fmt.Sprintf("%s: signal %s: %v", id, name, err))
		return
	}
	r.signals.Add(1)
}

// until repeats a call until it is answered or the time for all runs is over.
func (r *GraphRun) until(ctx context.Context, call func(again bool) error) error {
	for again := false; ; again = true {
		err := call(again)
		open := errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
		if !open || ctx.Err() != nil {
			return err
		}
		r.repeats.Add(1)
		if pause(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// note records a violation, unless the time is over: then the run is stuck, which is found later.
func (r *GraphRun) note(ctx context.Context, text string) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, text)
}

// samplePause is between two samples of one sampler.
const samplePause = 5 * time.Millisecond

// sample reads statuses of runs under way, drawn at random, and checks them.
func (r *GraphRun) sample(ctx context.Context, rng *rand.Rand) {
	for pause(ctx, samplePause) == nil {
		r.mu.Lock()
		var s *GraphSamples
		if len(r.active) > 0 {
			s = r.active[rng.IntN(len(r.active))]
		}
		r.mu.Unlock()
		if s == nil {
			continue
		}
		wrong, err := s.Sample(func() (*perdurev1.GraphStatus, error) { return r.all.GraphStatus(ctx, s.id) })
		if api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
			wrong = append(wrong, s.id+" was acknowledged, and is not there")
		} // without an answer there is nothing to check
		for _, text := range wrong {
			r.note(ctx, text)
		}
	}
}

// nodeTimes is what functions with one attempt took beyond their script, and which took longest.
func nodeTimes(records []*GraphRecord) (Spread, string) {
	var all []time.Duration
	slowest, name := time.Duration(-1), ""
	for _, rec := range records {
		for _, n := range rec.Status.GetNodes() {
			p, isFunction := rec.Script.Plans[n.GetId()]
			if !isFunction || n.GetAttempt() != 1 || n.GetEndedMs() == 0 || p.End == EndHang || p.End == EndSuspend {
				continue
			}
			took := time.Duration(n.GetEndedMs()-n.GetStartedMs()-p.Ms) * time.Millisecond
			if all = append(all, took); took > slowest {
				slowest, name = took, fmt.Sprintf("%s, started at %s", n.GetAttemptId(), time.UnixMilli(n.GetStartedMs()).UTC().Format("15:04:05.000Z"))
			}
		}
	}
	return SpreadOf(all), name
}

// readBack asks for the status of every run again, and for the outputs of all nodes.
func (r *GraphRun) readBack(ctx context.Context) error {
	var jobs []func(context.Context) error
	for _, rec := range r.records {
		jobs = append(jobs, func(ctx context.Context) error { return r.readBackRun(ctx, rec) })
	}
	return inParallel(ctx, 16, jobs)
}

func (r *GraphRun) readBackRun(ctx context.Context, rec *GraphRecord) error {
	s, err := r.all.GraphStatus(ctx, rec.ID)
	if api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
		return nil
	} else if err != nil {
		return err
	}
	rec.Status, rec.Outputs, rec.Subs = s, map[string][]byte{}, map[string]*GraphRecord{}
	for _, n := range s.GetNodes() {
		if n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_COMPLETED {
			o, err := r.all.NodeOutcome(ctx, rec.ID, n.GetId())
			if err != nil {
				return fmt.Errorf("outcome of graph node %s of run %s: %w", n.GetId(), rec.ID, err)
			}
			rec.Outputs[n.GetId()] = o.GetOutput()
		}
		if sub := rec.Script.Subs[n.GetId()]; sub != nil {
			for _, id := range attemptIDs(n) {
				rec.Subs[id] = &GraphRecord{ID: id, Script: sub, Acked: true}
				if err := r.readBackRun(ctx, rec.Subs[id]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// String is the summary.
func (r *GraphReport) String() string {
	var b strings.Builder
	v := r.Verdict
	fmt.Fprintf(&b, "%d runs (%d in waves, %d pairs compared), %d nodes in %s; a run took %s; the last ended %s after the last fault\n",
		v.Runs, r.Waves, r.Twins, v.Nodes, short3(r.Took), r.Spread, short3(r.AfterFaults))
	fmt.Fprintf(&b, "  runs: %d completed, %d failed, LOST %d, STUCK %d, WRONG %d\n", v.Completed, v.Failed, len(v.Lost), len(v.Stuck), len(v.Wrong))
	fmt.Fprintf(&b, "  nodes: %s\n", counts(v.Ends))
	fmt.Fprintf(&b, "  a function of one attempt took, beyond its script, %s (%s)\n", r.Nodes, r.Slowest)
	fmt.Fprintf(&b, "  attempts %d; calls of the function %d, of them %d begun again because a worker or an answer was lost\n",
		v.Attempts, v.Calls, v.Repeated)
	fmt.Fprintf(&b, "  %d runs watched, %d statuses shown; a watcher saw the end later than the client by %s\n", r.Late.N, r.Shown, r.Late)
	fmt.Fprintf(&b, "  %d statuses judged while runs were under way; %d signals sent; %d calls asked again\n", r.Samples, r.Signals, r.Repeats)
	fmt.Fprintf(&b, "  faults: %s\n", counts(r.Faults))
	return b.String()
}

// counts lists what was counted, the most first.
func counts(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}
