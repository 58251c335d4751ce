package jepsen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// EntitySignalOptions say how many signals go to entities. The zero value is 20,000 signals under EntitySignalFaults.
type EntitySignalOptions struct {
	// N signals go from Functions executions and Clients clients to Entities entities, from each origin to each entity
	// alike; clients send ClientShare of a hundred of them. Every Every-th signal is scheduled.
	N, Functions, Clients, Entities, ClientShare, Every int
	// Chunk is how many signals an incarnation of an execution sends before it continues as new.
	Chunk int
	// Workers, Lease, Faults, Rounds, Warm, Hold and Cool are as with Bank.
	Workers          int
	Lease            time.Duration
	Faults           []Fault
	Rounds           int
	Warm, Hold, Cool time.Duration
	// Bound is when all signals have to have run.
	Bound time.Duration
	// MaxMemory is how many resident bytes a node may take.
	MaxMemory int64
	Prefix    string
	Seed      uint64
	Out       io.Writer
}

// EntitySignalFaults change leaders and restart nodes and workers.
const EntitySignalFaults = "kill-leader,kill-worker,rolling-restart,isolate-leader,kill-follower,stop-worker"

func (o *EntitySignalOptions) fill() {
	o.N, o.Functions, o.Clients, o.Entities = fallback(o.N, 20_000), fallback(o.Functions, 8), fallback(o.Clients, 2), fallback(o.Entities, 10)
	o.ClientShare, o.Every, o.Chunk = fallback(o.ClientShare, 2), fallback(o.Every, 50), fallback(o.Chunk, 2000)
	o.Workers, o.Lease = fallback(o.Workers, 3), fallback(o.Lease, 5*time.Second)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults(EntitySignalFaults)
	}
	o.Rounds = fallback(o.Rounds, len(o.Faults))
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, 2*time.Second), fallback(o.Hold, 4*time.Second), fallback(o.Cool, 2*time.Second)
	o.Bound, o.MaxMemory = fallback(o.Bound, 20*time.Minute), fallback(o.MaxMemory, 800_000_000)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("tally-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// EntitySignalReport is the outcome of entity signals.
type EntitySignalReport struct {
	N, Scheduled int
	// Sent is when the last origin had sent its last signal, Took when the last signal had run.
	Sent, Took time.Duration
	// Rate is signals that ran per second, over the whole run with its faults.
	Rate float64
	// Backlog is the most operations that waited at one entity.
	Backlog    int
	Faults     []string
	Memory     []ScaleMemory
	Violations []string
}

// String is the report for people.
func (r *EntitySignalReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d signals, %d of them scheduled; sent in %s, run in %s, %.0f/s; at most %d waited at an entity\nfaults: %s\n", r.N, r.Scheduled,
		short3(r.Sent), short3(r.Took), r.Rate, r.Backlog, strings.Join(r.Faults, ", "))
	for _, m := range r.Memory {
		fmt.Fprintf(&b, "  memory of %s in MB: at the start %d, at most %d, at the end %d\n", m.Name, m.Start/1_000_000, m.Most/1_000_000, m.End/1_000_000)
	}
	return b.String()
}

// tallyWord is the k-th signal of an origin to an entity. Scheduled signals are numbered for themselves.
type tallyWord struct {
	Origin    string `json:"o"`
	N         int    `json:"n"`
	Scheduled bool   `json:"s,omitempty"`
}

// wordOf returns the k-th signal of an origin to an entity, of which every every-th is scheduled, and its delay.
func wordOf(origin string, k, every int) (tallyWord, time.Duration) {
	if k%every == every-1 {
		return tallyWord{Origin: origin, N: k / every, Scheduled: true}, time.Duration(1+k/every%30) * 100 * time.Millisecond
	}
	return tallyWord{Origin: origin, N: k - k/every}, 0
}

// tally is an entity's value: what it got from each origin.
type tally struct {
	From map[string]*tallied `json:"f"`
	// Wrong is what came in a wrong order, or again, the first of it.
	Wrong []string `json:"w,omitempty"`
}

// tallied is what came from one origin: the signals below Next, and the scheduled ones of Spans, in ascending order.
type tallied struct {
	Next  int      `json:"n"`
	Spans [][2]int `json:"s,omitempty"`
}

func (t *tally) add(w tallyWord) {
	if t.From == nil {
		t.From = map[string]*tallied{}
	}
	f := t.From[w.Origin]
	if f == nil {
		f = &tallied{}
		t.From[w.Origin] = f
	}
	problem := ""
	switch {
	case w.Scheduled && !f.span(w.N):
		problem = fmt.Sprintf("%s: scheduled signal %d came twice", w.Origin, w.N)
	case !w.Scheduled && w.N != f.Next:
		problem = fmt.Sprintf("%s: signal %d came, %d was next", w.Origin, w.N, f.Next)
	}
	if !w.Scheduled {
		f.Next = max(f.Next, w.N+1)
	}
	if problem != "" && len(t.Wrong) < 20 {
		t.Wrong = append(t.Wrong, problem)
	}
}

// span adds a number to the spans. It returns false if it is there already.
func (f *tallied) span(n int) bool {
	at := slices.IndexFunc(f.Spans, func(s [2]int) bool { return n <= s[1] })
	if at < 0 {
		at = len(f.Spans)
	} else if n >= f.Spans[at][0] && n < f.Spans[at][1] {
		return false
	}
	switch before, after := at < len(f.Spans) && f.Spans[at][1] == n, at < len(f.Spans) && f.Spans[at][0] == n+1; {
	case before:
		f.Spans[at][1]++
		if at+1 < len(f.Spans) && f.Spans[at+1][0] == n+1 {
			f.Spans[at][1] = f.Spans[at+1][1]
			f.Spans = slices.Delete(f.Spans, at+1, at+2)
		}
	case after:
		f.Spans[at][0]--
	default:
		f.Spans = slices.Insert(f.Spans, at, [2]int{n, n + 1})
	}
	return true
}

// check returns what is wrong with an entity that has got so many signals from each origin.
func (t *tally) check(want map[string]int, every int) []string {
	wrong := slices.Clone(t.Wrong)
	for origin, n := range want {
		f := t.From[origin]
		if f == nil {
			f = &tallied{}
		}
		if ordered := n - n/every; f.Next != ordered {
			wrong = append(wrong, fmt.Sprintf("%s: %d signals came, %d were sent", origin, f.Next, ordered))
		}
		if scheduled := n / every; scheduled == 0 && len(f.Spans) > 0 || scheduled > 0 && !slices.Equal(f.Spans, [][2]int{{0, scheduled}}) {
			wrong = append(wrong, fmt.Sprintf("%s: the scheduled signals %v came, %d were sent", origin, f.Spans, scheduled))
		}
	}
	for origin := range t.From {
		if _, known := want[origin]; !known {
			wrong = append(wrong, fmt.Sprintf("%s is no origin", origin))
		}
	}
	slices.Sort(wrong)
	return wrong
}

const tallyName, originName = "jepsen-tally", "jepsen-origin"

// tallyEntity is the entity that the signals go to.
var tallyEntity = durable.NewEntity(tallyName,
	durable.Op("tell", func(_ *durable.EntityContext, t *tally, w tallyWord) (struct{}, error) {
		t.add(w)
		return struct{}{}, nil
	}),
)

// originInput is the input of an origin: it has sent the signals below From, of N to all entities together.
type originInput struct {
	Origin                string
	Entities              []durable.EntityID
	From, N, Chunk, Every int
}

// originFunction sends signals to the entities in turn, and continues as new after each chunk.
var originFunction = durable.NewFunction(originName, func(ctx durable.Context, in originInput) (int, error) {
	until := min(in.From+in.Chunk, in.N)
	for i := in.From; i < until; i++ {
		w, delay := wordOf(in.Origin, i/len(in.Entities), in.Every)
		var opts []durable.SignalOption
		if delay > 0 {
			opts = append(opts, durable.SignalDelay(delay))
		}
		if err := durable.SignalEntity(ctx, in.Entities[i%len(in.Entities)], "tell", w, opts...); err != nil {
			return 0, err
		}
	}
	if until == in.N {
		return in.N, nil
	}
	in.From = until
	return 0, durable.ContinueAsNew(ctx, in)
})

// signalRun is a run of entity signals under way.
type signalRun struct {
	o        EntitySignalOptions
	c        *Cluster
	cl       *client.Client
	entities []durable.EntityID
	// want is how many signals each origin sends to each entity.
	want    map[string]int
	began   time.Time
	done    atomic.Bool
	report  *EntitySignalReport
	backlog atomic.Int64
}

// EntitySignals has executions and clients signal entities while the cluster is broken and repaired. Each entity notes
// gaps, repetitions and changes of order for each of its origins; at the end all signals must be there. An error means
// that the run could not be made.
func EntitySignals(ctx context.Context, c *Cluster, o EntitySignalOptions) (*EntitySignalReport, error) {
	o.fill()
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, o.Lease); err != nil {
			return nil, err
		}
	}
	if err := c.waitLevel(ctx); err != nil {
		return nil, err
	}
	cl, err := c.Client(o.Bound)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	r := &signalRun{o: o, c: c, cl: cl, want: map[string]int{}, began: time.Now(), report: &EntitySignalReport{}}
	for i := range o.Entities {
		r.entities = append(r.entities, tallyEntity.ID(o.Prefix+"-"+strconv.Itoa(i)))
	}
	ctx, cancel := context.WithTimeout(ctx, o.Bound)
	defer cancel()
	memory := &memorySeries{}
	var watch sync.WaitGroup
	defer watch.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch.Go(func() { memory.run(watching, c) })
	watch.Go(func() { r.progress(watching, memory) })
	ended := make(chan error, 1)
	go func() { ended <- r.send(ctx) }()
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	for i := 0; (i < o.Rounds || !r.done.Load()) && err == nil && ctx.Err() == nil; i++ {
		f := o.Faults[i%len(o.Faults)]
		var w *Wound
		if w, err = underFault(ctx, c, f, o.Warm, f.holds(o.Hold, o.Lease, rng), o.Cool, rng, nil); err == nil {
			fmt.Fprintf(o.Out, "%s: fault %d: %s of %s\n", short3(time.Since(r.began)), i+1, w.Fault.Name, w.Names())
			r.report.Faults = append(r.report.Faults, w.Fault.Name)
		}
	}
	if err != nil {
		cancel()
	}
	if sent := <-ended; err == nil {
		err = sent
	}
	stop()
	watch.Wait()
	if err != nil {
		return nil, err
	}
	r.report.Memory, r.report.Backlog = memory.report(), int(r.backlog.Load())
	for _, m := range r.report.Memory {
		if strings.HasPrefix(m.Name, "n") && m.Most > o.MaxMemory {
			r.report.Violations = append(r.report.Violations, fmt.Sprintf("%s took %d MB, at most %d are allowed", m.Name, m.Most/1_000_000, o.MaxMemory/1_000_000))
		}
	}
	r.report.Violations = append(r.report.Violations, Aftermath(ctx, c)...)
	return r.report, nil
}

// send sends all signals and waits until they have run.
func (r *signalRun) send(ctx context.Context) error {
	defer r.done.Store(true)
	o := r.o
	ofClients := o.N * o.ClientShare / 100
	var origins []func(context.Context) error
	share := func(total, parts int) int { return total / parts / o.Entities } // to each entity
	for i := range o.Functions {
		origin := fmt.Sprint("f", i)
		each := share(o.N-ofClients, o.Functions)
		r.want[origin] = each
		origins = append(origins, func(ctx context.Context) error {
			h, err := originFunction.Start(ctx, r.cl, o.Prefix+"-"+origin, originInput{Origin: origin, Entities: r.entities,
				N: each * o.Entities, Chunk: o.Chunk, Every: o.Every})
			if err == nil {
				_, err = h.Result(ctx)
			}
			return err
		})
	}
	for i := range o.Clients {
		origin := fmt.Sprint("c", i)
		each := share(ofClients, o.Clients)
		r.want[origin] = each
		for _, to := range r.entities {
			origins = append(origins, func(ctx context.Context) error { return r.client(ctx, origin, to, each) })
		}
	}
	for _, n := range r.want {
		r.report.N += n * o.Entities
		r.report.Scheduled += n / o.Every * o.Entities
	}
	if err := inParallel(ctx, len(origins), origins); err != nil {
		return err
	}
	r.report.Sent = time.Since(r.began)
	for _, to := range r.entities {
		t := tally{}
		err := waitFor(ctx, string(to)+" to have run all", func(ctx context.Context) error {
			e, err := r.cl.GetEntity(ctx, string(to))
			if err != nil {
				return err
			}
			if n := e.GetQueued() + e.GetScheduled(); n > 0 {
				return fmt.Errorf("%d signals are still queued", n)
			}
			t = tally{}
			if err := json.Unmarshal(e.GetValue(), &t); err != nil {
				return err
			}
			// A signal may be on its way from another partition still. What is wrong stays wrong.
			if wrong := t.check(r.want, o.Every); len(wrong) > 0 && len(t.Wrong) == 0 && time.Since(r.began) < r.report.Sent+arrivalTime {
				return fmt.Errorf("%s", wrong[0])
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, text := range t.check(r.want, o.Every) {
			r.report.Violations = append(r.report.Violations, fmt.Sprintf("%s: %s", to, text))
		}
	}
	r.report.Took = time.Since(r.began)
	r.report.Rate = float64(r.report.N) / r.report.Took.Seconds()
	return nil
}

// arrivalTime bounds how long a signal may be on its way after its origin has ended.
const arrivalTime = time.Minute

// client sends one client's signals to one entity, one after the other.
func (r *signalRun) client(ctx context.Context, origin string, to durable.EntityID, n int) error {
	for k := range n {
		w, delay := wordOf(origin, k, r.o.Every)
		input, err := json.Marshal(w)
		if err == nil {
			err = r.cl.SignalEntity(ctx, string(to), "tell", input, delay)
		}
		if err != nil {
			return fmt.Errorf("%s to %s, signal %d: %w", origin, to, k, err)
		}
	}
	return nil
}

// progress says every ten seconds how long the backlogs are, and notes the longest.
func (r *signalRun) progress(ctx context.Context, memory *memorySeries) {
	for i := 1; pause(ctx, time.Second) == nil; i++ {
		var queued []string
		for _, to := range r.entities {
			e, err := r.cl.GetEntity(ctx, string(to))
			if err != nil {
				return
			}
			n := waitingAt(e)
			queued = append(queued, strconv.Itoa(n))
			r.backlog.Store(max(r.backlog.Load(), int64(n)))
		}
		if i%10 == 0 {
			fmt.Fprintf(r.o.Out, "%s: %s wait; memory%s\n", short3(time.Since(r.began)), strings.Join(queued, " "), memory.now())
		}
	}
}

func waitingAt(e *perdurev1.Entity) int { return int(e.GetQueued() + e.GetScheduled()) }
