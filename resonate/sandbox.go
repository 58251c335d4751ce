package resonate

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/internal/clock"
	"perdure/partition/addresses"
	"perdure/partition/group"
)

const (
	// sweepPeriod is how often a sandbox runs what has expired by the wall's clock.
	sweepPeriod = 100 * time.Millisecond
	// maxSandbox bounds the bytes that clients have a sandbox write from one reset to the next.
	maxSandbox = 256 << 20
)

// SandboxOptions configure a Sandbox.
type SandboxOptions struct {
	// Namespace is that of the promises.
	Namespace string
	// DottedIDs is [Options.DottedIDs].
	DottedIDs bool
	// Retry is after what time the address of a pending task is told again; 0 means 30 s.
	Retry time.Duration
	// MaxStreams bounds the streams of messages.
	MaxStreams int
	Logger     *slog.Logger
}

// Sandbox is a partition in the memory of one node, for debug mode. It runs the machine that the partitions of a cluster
// run, and checks the protocol's invariants after each command. Nothing of it is replicated or stored.
//
// Its clock is the wall's until debug.start; from then on it stands still but for the times that requests name. It never
// runs backwards, as that of a partition never does: an earlier time than the latest is the latest, until Reset.
type Sandbox struct {
	opts      SandboxOptions
	store     *leaders
	schedules *Scheduler
	streams   *addresses.Dispatcher
	now       func() time.Time
	stop      context.CancelFunc
	running   sync.WaitGroup

	// sweeping is held during a sweep or a reset.
	sweeping sync.Mutex
	// mu guards the rest. The dispatcher is called with it held, and calls back without its own lock.
	mu sync.Mutex
	// term is the state since the last reset. stopped says that no sweep runs by the wall's clock.
	term    *term
	stopped bool
}

// NewSandbox makes an empty sandbox and starts its sweeps. Close ends it.
func NewSandbox(opts SandboxOptions) (*Sandbox, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Sandbox{opts: opts, now: time.Now, stop: stop}
	s.streams = addresses.New(addresses.Env{Clock: clock.System{}, Lifetime: ctx, ServerID: "sandbox", MaxStreams: opts.MaxStreams})
	s.store = &leaders{router: s, namespace: opts.Namespace, ids: ids{dotted: opts.DottedIDs}, now: s.time}
	s.schedules = &Scheduler{leaders: s.store, log: opts.Logger}
	if err := s.Reset(); err != nil {
		stop()
		s.streams.Close()
		return nil, err
	}
	s.running.Go(func() { s.sweepPeriodically(ctx) })
	return s, nil
}

// Close ends the streams and the sweeps, and waits for them.
func (s *Sandbox) Close() {
	s.stop()
	s.running.Wait()
	s.streams.Close()
}

// Store is the Store over the sandbox.
func (s *Sandbox) Store() Store { return s.store }

// Streams has the streams of messages for the sandbox's addresses.
func (s *Sandbox) Streams() *addresses.Dispatcher { return s.streams }

// Reset deletes everything, and sets the clock back.
func (s *Sandbox) Reset() error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := newTerm(s)
	if err != nil {
		return err
	}
	s.term = next
	s.streams.Established(next)
	return nil
}

// Stop ends the sweeps by the wall's clock if stopped says so, and lets the clock stand still; else both go on.
func (s *Sandbox) Stop(stopped bool) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = stopped
}

// sweepPeriodically sweeps by the wall's clock until ctx ends.
func (s *Sandbox) sweepPeriodically(ctx context.Context) {
	ticks := time.NewTicker(sweepPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		s.mu.Lock()
		stopped := s.stopped
		s.mu.Unlock()
		if stopped {
			continue
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("cannot sweep", "event", "resonate_sweep_failed", "error", err)
		}
	}
}

// Sweep runs everything that has expired at the time of ctx: promises, leases and retries in the protocol's order, then
// schedules.
func (s *Sandbox) Sweep(ctx context.Context) error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	for done := uint32(1); done > 0; {
		reply, err := s.Propose(ctx, &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{}}})
		if err != nil {
			return err
		}
		done = reply.GetTick().GetDone()
	}
	s.schedules.runDue(ctx, s.time(ctx), func(ctx context.Context, q *commandv1.Query) (*commandv1.QueryReply, error) {
		reply, _, err := s.Read(ctx, 0, group.Linearizable, q)
		return reply, err
	})
	return nil
}

// debugTime is the key of a request's time in its context.
type debugTime struct{}

// withDebugTime has the operations of ctx happen at a time, in Unix milliseconds.
func withDebugTime(ctx context.Context, ms int64) context.Context {
	return context.WithValue(ctx, debugTime{}, ms)
}

// time is the time of an operation in Unix milliseconds.
func (s *Sandbox) time(ctx context.Context) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.stamp(ctx), s.term.machine.Clock())
}

// stamp is the time of an entry. The lock is held.
func (s *Sandbox) stamp(ctx context.Context) int64 {
	if ms, ok := ctx.Value(debugTime{}).(int64); ok {
		return ms
	}
	if s.stopped {
		return 0 // the machine's clock is the maximum of all entries
	}
	return s.now().UnixMilli()
}

// Propose implements partitions.
func (s *Sandbox) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cmd.GetTick() == nil && s.term.bytes > maxSandbox {
		return nil, refuse(http.StatusTooManyRequests, "debug mode has written %d bytes since the last debug.reset, more than %d", s.term.bytes, maxSandbox)
	}
	replies, err := s.term.apply(s.stamp(ctx), cmd)
	if err != nil {
		return nil, err
	}
	if refused := wire.ReplyError(replies[0]); refused != nil {
		return nil, refused
	}
	return replies[0], nil
}

// Read implements partitions. Every read is linearizable. It first brings the clock to the time of ctx.
func (s *Sandbox) Read(ctx context.Context, _ uint32, _ group.Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.stamp(ctx); at > s.term.machine.Clock() {
		if _, err := s.term.apply(at); err != nil {
			return nil, 0, err
		}
	}
	reply, err := s.term.ask(q)
	if err != nil {
		return nil, 0, err
	}
	if refused := wire.QueryError(reply); refused != nil {
		return nil, 0, refused
	}
	return reply, s.term.index, nil
}

// PartitionOf implements partitions: there is one.
func (s *Sandbox) PartitionOf(string, string) uint32 { return 0 }

// Partitions implements partitions.
func (s *Sandbox) Partitions() uint32 { return 1 }

// brokenError says that the machine has stopped, by a defect of its own.
func brokenError(err error) error {
	return api.Errorf(perdurev1.Reason_REASON_CORRUPT, "debug mode has stopped until debug.reset: %v", err)
}
