package jepsen

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// LateOptions say how to look for reads that late answers confirm. The zero value is ten rounds.
type LateOptions struct {
	Rounds int
	// Promises are settled and read in each round; default 24. Their partitions are drawn by their ids.
	Promises int
	// From and To bound how long the answers to the leader are lost; default 1.2 s and 2.8 s. Within them the way opens
	// up to 400 ms after reads began at the old leader, or, in every fourth round, at a moment drawn before.
	From, To time.Duration
	Seed     uint64
	Out      io.Writer
}

// LateReport is the outcome of the rounds.
type LateReport struct {
	Rounds int
	// Tried are rounds in which another leader acknowledged a settle, and a read began at the old leader after
	// that, before the way opened. Reads are all reads that began after the settle of their promise was
	// acknowledged, AtRisk those of them that began at the old leader before the way opened.
	Tried, Reads, AtRisk int
	// Stale are rounds with a stale read, StaleReads the reads.
	Stale, StaleReads int
	// Elected is how long after the way closed the first settle was acknowledged.
	Elected    Spread
	Violations []string
}

// lateRead is a read that began after its promise's settle was acknowledged.
type lateRead struct {
	op RegisterOp
	at *Node
}

// lateRound is one round under way. Its times count from its begin.
type lateRound struct {
	o      LateOptions
	c      *Cluster
	old    *Node
	prefix string
	began  time.Time
	closed time.Duration // when the way to the old leader was

	mu      sync.Mutex
	history []RegisterOp
	acked   map[string]time.Duration // when the settle of each promise was acknowledged
	reads   []lateRead
}

// Late drops the answers to a leader until another leads and has acknowledged settles. It begins reads at the
// old leader and opens the way: TCP then delivers the answers to the old leader's earlier requests. No such
// answer may confirm a read. It needs a cluster in network namespaces.
func Late(ctx context.Context, c *Cluster, o LateOptions) (*LateReport, error) {
	o.Rounds, o.Promises = fallback(o.Rounds, 10), fallback(o.Promises, 24)
	o.From, o.To = fallback(o.From, 1200*time.Millisecond), fallback(o.To, 2800*time.Millisecond)
	if o.Out == nil {
		o.Out = io.Discard
	}
	rng := rand.New(rand.NewPCG(o.Seed, 7))
	report := &LateReport{}
	var elected []time.Duration
	for i := range o.Rounds {
		nodes, err := c.choose(ctx, Leader, rng)
		if err != nil {
			return report, err
		}
		r := &lateRound{o: o, c: c, old: nodes[0], prefix: fmt.Sprintf("late-%x-%d", o.Seed, i), began: time.Now(), acked: map[string]time.Duration{}}
		opened, err := r.run(ctx, rng)
		if err != nil {
			return report, fmt.Errorf("round %d: %w", i+1, err)
		}
		report.Rounds++
		line := report.add(r, opened, &elected)
		fmt.Fprintf(o.Out, "round %d: %s\n", i+1, line)
		if err := c.settleDown(ctx); err != nil {
			return report, err
		}
	}
	report.Elected = SpreadOf(elected)
	if report.Tried == 0 {
		report.Violations = append(report.Violations, "no read began at an old leader while another had acknowledged a settle: nothing was checked")
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// settleDown waits until every node is ready and every partition has a leader.
func (c *Cluster) settleDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	return waitFor(ctx, "a leader of every partition", func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		return behind(s, nil, len(c.nodes))
	})
}

// id is the id of a promise of the round.
func (r *lateRound) id(i int) string { return fmt.Sprintf("%s-%d", r.prefix, i) }

// run is one round; opened is when the way was open again.
func (r *lateRound) run(ctx context.Context, rng *rand.Rand) (opened time.Duration, err error) {
	hold := r.o.From + time.Duration(rng.Int64N(int64(max(1, r.o.To-r.o.From))))
	nudge := time.Duration(rng.Int64N(int64(900 * time.Millisecond)))
	wait := time.Duration(rng.Int64N(int64(50 * time.Millisecond))) // from the first settle until reads begin
	var others []*Node
	for _, n := range r.c.nodes {
		if n != r.old {
			others = append(others, n)
		}
	}
	whole, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	atOthers, err := r.c.Client(healTimeout, others...)
	if err != nil {
		return 0, err
	}
	defer atOthers.Close()
	all := map[*Node]*client.Client{}
	for _, n := range r.c.nodes {
		if all[n], err = r.c.Client(10*time.Second, n); err != nil {
			return 0, err
		}
		defer all[n].Close()
	}
	var creates []func(context.Context) error
	for i := range r.o.Promises {
		creates = append(creates, func(ctx context.Context) error {
			return r.do(ctx, atOthers, RegisterOp{ID: r.id(i), Kind: RegisterCreate, Value: "late"}, nil)
		})
	}
	if err := inParallel(whole, 8, creates); err != nil {
		return 0, err
	}
	// Each node has been asked once, so that no read waits for a connection.
	for _, n := range r.c.nodes {
		if err := r.do(whole, all[n], RegisterOp{ID: r.id(0), Kind: RegisterGet}, nil); err != nil {
			return 0, err
		}
	}
	if err := r.old.Deafen(ctx); err != nil {
		return 0, err
	}
	r.closed = time.Since(r.began)
	open := time.After(hold)
	began := make(chan struct{}) // closed when reads began at the old leader
	if drawn := rng.IntN(4) == 0; !drawn {
		after := time.Duration(rng.Int64N(int64(400 * time.Millisecond)))
		timer := make(chan time.Time)
		open = timer
		go func() {
			bound, least := time.After(r.o.To), time.After(r.o.From)
			select {
			case <-began:
				_ = pause(whole, after)
				<-least
			case <-bound:
			}
			close(timer)
		}()
	}
	var running sync.WaitGroup
	// Writes at the old leader: their entries reach the followers, whose answers are lost. They never end
	// there, so the round does not wait for them; nothing reads the promises that they create.
	nudging, enough := context.WithCancel(ctx)
	defer enough()
	running.Go(func() {
		if pause(nudging, nudge) != nil {
			return
		}
		var some []func(context.Context) error
		for i := range 8 {
			some = append(some, func(ctx context.Context) error {
				_, err := all[r.old].CreatePromise(ctx, fmt.Sprintf("%s-nudge-%d", r.prefix, i), client.PromiseOptions{Timeout: promiseTimeout})
				return err
			})
		}
		_ = inParallel(nudging, 8, some) // unknown by design
	})
	// Every settle goes through the other nodes. Once one has been acknowledged, reads of settled promises begin at the
	// old leader, in the few moments after it, and at the others.
	first := make(chan struct{})
	var once sync.Once
	settling, noMore := context.WithCancel(whole)
	defer noMore()
	for i := range r.o.Promises {
		running.Go(func() {
			if r.do(settling, atOthers, RegisterOp{ID: r.id(i), Kind: RegisterSettle, Value: "resolved done"}, nil) == nil && r.moved(r.id(i)) {
				once.Do(func() { close(first) })
			}
		})
	}
	reading, stop := context.WithCancel(whole)
	defer stop()
	running.Go(func() {
		select {
		case <-first:
		case <-reading.Done():
			return
		}
		_ = pause(reading, wait) // or the round is over
		close(began)
		for i := range r.o.Promises {
			if !r.moved(r.id(i)) {
				continue
			}
			for _, n := range r.c.nodes {
				running.Go(func() {
					_ = r.do(reading, all[n], RegisterOp{ID: r.id(i), Kind: RegisterGet}, n) // without an answer it shows nothing
				})
			}
		}
	})
	select {
	case <-open:
	case <-ctx.Done():
	}
	err = r.old.Unmute(context.WithoutCancel(ctx))
	opened = time.Since(r.began)
	if err != nil {
		stop()
		noMore()
	}
	enough()
	running.Wait()
	return opened, err
}

// noElection is the time within which no other node is elected. A write that is acknowledged within it had
// one leader all the time.
const noElection = 300 * time.Millisecond

// moved reports whether the settle of a promise was acknowledged late enough for a new leader to have done
// it.
func (r *lateRound) moved(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked[id] > r.closed+noElection
}

// do makes one operation and records it; reads at a node are counted too.
func (r *lateRound) do(ctx context.Context, cl *client.Client, op RegisterOp, at *Node) error {
	var p *perdurev1.Promise
	var err error
	op.Called = time.Since(r.began)
	switch op.Kind {
	case RegisterCreate:
		p, err = cl.CreatePromise(ctx, op.ID, client.PromiseOptions{Param: []byte(op.Value), Timeout: promiseTimeout})
	case RegisterSettle:
		p, err = cl.SettlePromise(ctx, op.ID, perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(strings.TrimPrefix(op.Value, "resolved "))}})
	default:
		p, err = cl.GetPromise(ctx, op.ID)
	}
	op.Answered = time.Since(r.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		op.Seen = seen(p)
	case op.Kind == RegisterGet:
		return err
	default:
		op.Open = true
	}
	r.history = append(r.history, op)
	if err == nil && op.Kind == RegisterSettle {
		r.acked[op.ID] = op.Answered
	}
	if at != nil {
		r.reads = append(r.reads, lateRead{op, at})
	}
	return err
}

// add checks a round and describes it.
func (report *LateReport) add(r *lateRound, opened time.Duration, elected *[]time.Duration) string {
	risk, stale := 0, 0
	var when time.Duration
	moved := 0
	for id, at := range r.acked {
		if !r.moved(id) {
			continue
		}
		moved++
		if when == 0 || at < when {
			when = at
		}
	}
	for _, read := range r.reads {
		report.Reads++
		if read.at == r.old && read.op.Called < opened {
			risk++
		}
		if read.op.Called > r.acked[read.op.ID] && read.op.Seen.Value == "" {
			stale++
			report.Violations = append(report.Violations, fmt.Sprintf("stale read at %s: %s settled at %.3f s (way closed at %.3f s, opened at %.3f s): %v",
				read.at.Name, read.op.ID, r.acked[read.op.ID].Seconds(), r.closed.Seconds(), opened.Seconds(), read.op))
		}
	}
	if v := CheckRegister(r.history, 0, 0); !v.OK() && stale == 0 {
		report.Violations = append(report.Violations, append(v.Violations, v.Undecided...)...)
	}
	report.AtRisk += risk
	report.StaleReads += stale
	if risk > 0 {
		report.Tried++
	}
	if stale > 0 {
		report.Stale++
	}
	if when > 0 {
		*elected = append(*elected, when-r.closed)
	}
	return fmt.Sprintf("%s got no message for %s, first settle by another leader after %s, %d of them, %d reads, %d at risk, %d STALE", r.old.Name, short3(opened-r.closed),
		short3(max(0, when-r.closed)), moved, len(r.reads), risk, stale)
}

// String is the summary.
func (report *LateReport) String() string {
	return fmt.Sprintf("%d rounds, in %d of them a read began at the old leader after a settle was acknowledged (%d such reads of %d); first settle after %s\n"+
		"  STALE: %d reads in %d rounds\n", report.Rounds, report.Tried, report.AtRisk, report.Reads, report.Elected, report.StaleReads, report.Stale)
}
