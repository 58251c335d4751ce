package group

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
	"perdure/partition/watch"
	"perdure/partition/workers"
	"perdure/recovery"
)

// commands is the way into this group's log: *proposer.
type commands interface {
	Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error)
	proposeUnder(ctx context.Context, lead *leadership, cmd *commandv1.Command) (*commandv1.Reply, error)
	enterCut(ctx context.Context, need uint64) error
}

// leader performs a leader's duties, one leadership after the other.
type leader struct {
	*core
	// member is the replica as the dispatcher knows it.
	member   workers.Replica
	commands commands
	// takeDown ends what a halted replica still runs. It does not block.
	takeDown func()
	// shipping is shared by the node's shipments: shipNodeBytes.
	shipping *semaphore.Weighted
	// unclaimed counts the entries whose effects found no leadership to perform them.
	unclaimed atomic.Uint64
}

// leadership is one term as the leader: the duties beyond the log, and what the leader keeps in memory for
// them. The next leader can rebuild all of it from the state.
type leadership struct {
	r *leader
	// term is the Raft term of this leadership, set before it serves.
	term   uint64
	ctx    context.Context
	cancel context.CancelFunc
	// leasesWait: this leadership began on full disks and serves reads, but has not extended the leases of the
	// previous term. It proposes nothing before that.
	leasesWait atomic.Bool
	timer      *timer
	ship       *shipper
	done       chan struct{}
}

// leaderLoop follows Raft's elections: barrier → establish → serve → revoke. It only reads the
// notifications and never blocks on them for long, since Raft's main loop waits for its reader.
func (r *leader) leaderLoop() {
	defer close(r.ledDone)
	var current *leadership
	revoke := func() {
		if current != nil {
			current.revoke()
			current = nil
			r.metrics.Lost.Inc()
		}
	}
	defer revoke()
	halting := r.halting
	for {
		select {
		case <-halting:
			halting = nil // a halted replica applies nothing any more
			revoke()
			r.takeDown()
		case leads := <-r.raft.LeaderCh():
			// Raft reports a leadership gained, lost, or lost and regained: the previous term is over in each
			// case.
			revoke()
			if !leads {
				r.leads.wake() // the term may have ended before it served
				r.log.Info("leadership lost", "event", "leader_lost", "partition", r.id)
				continue
			}
			r.metrics.Elections.Inc()
			if r.Halted() == nil {
				current = r.startLeadership()
			}
		case <-r.stopping:
			return
		}
	}
}

// startLeadership begins a term in a goroutine; it serves once its establish has finished.
func (r *leader) startLeadership() *leadership {
	l := &leadership{r: r, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.timer = newTimer(l)
	l.ship = newShipper(l)
	go func() {
		defer close(l.done)
		if !l.establish() {
			return
		}
		go l.timer.run()
		go l.ship.run()
		l.inheritLater()
		l.raiseLevels()
		<-l.ctx.Done()
		<-l.timer.done
		<-l.ship.done
	}()
	return l
}

// barrierTimeout bounds one try to apply everything that earlier leaders have committed.
const barrierTimeout = 30 * time.Second

// inheritEvery is between two attempts of a leader that began on a full disk to inherit the leases.
const inheritEvery = 200 * time.Millisecond

// establish makes this node ready to serve, and reports whether it does. It blocks until every entry
// committed before is applied (once per term, before any read), then loads the leader's memory from the
// state. On failure it transfers the leadership, or retries if no other member can take it.
func (l *leadership) establish() bool {
	r := l.r
	for l.ctx.Err() == nil {
		started, unclaimed := r.clock.Now(), r.unclaimed.Load()
		term := r.raft.CurrentTerm()
		err := raftgroup.Await(r.raft.Barrier(barrierTimeout), r.killed, l.ctx.Done())
		if err == nil && r.raft.CurrentTerm() != term {
			// The barrier may be of either term: what this leadership reads and confirms must be of one.
			continue
		}
		if err == nil {
			l.term = term
			err = l.inheritLeases()
			if l.leasesWait.Store(api.Is(err, perdurev1.Reason_REASON_DISK_FULL)); l.leasesWait.Load() {
				err = nil // inheritLater tries again
			}
		}
		if err == nil {
			l.raiseLevelFirst()
			err = l.load()
		}
		if err == nil {
			if l.ctx.Err() != nil {
				return false
			}
			r.lead.Store(l)
			if r.unclaimed.Load() != unclaimed {
				// Effects came while it loaded and found no leadership. From now on they find this one.
				err = l.load()
			}
		}
		if err == nil {
			// Wake all watches: one that registered under the previous leader may have missed its last
			// effects. One that registers after notifyServing has missed none.
			r.watches.WakeAll()
			r.notifyServing()
			r.log.Info("leader ready", "event", "leader_ready", "partition", r.id, "took", r.clock.Now().Sub(started))
			return true
		}
		r.lead.CompareAndSwap(l, nil)
		if l.ctx.Err() != nil {
			return false
		}
		r.log.Warn("cannot establish leadership", "event", "leader_establish_failed", "partition", r.id, "error", err)
		if err := raftgroup.Await(r.raft.LeadershipTransfer(), r.killed, l.ctx.Done()); err == nil {
			return false
		}
		c, stop := r.clock.After(100 * time.Millisecond)
		select {
		case <-c:
		case <-l.ctx.Done():
		case <-r.stopping:
			stop()
			return false
		}
		stop()
	}
	return false
}

// inheritLeases extends every lease that runs in the state to its full time from now on, and blocks until
// that is applied. Workers could extend no lease since the previous leader stopped, so neither that time nor
// a clock of the new leader that is ahead counts against them. The entries carry no time, so the machine's
// clock does not advance until all leases are extended. A state below the command's feature level is left as
// it is: a member may run a program that does not know it.
func (l *leadership) inheritLeases() error {
	r := l.r
	var leased bool
	if err := r.store.View(func(r state.Reader) error {
		level, err := state.Level(r)
		if err == nil && level >= state.LevelLeases {
			leased, err = query.Leased(r)
		}
		return err
	}); err != nil || !leased {
		return err
	}
	now, extended := r.env.Now().UnixMilli(), 0
	var from []byte
	for {
		b, err := r.encode(&commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_InheritLeases{
			InheritLeases: &commandv1.InheritLeases{NowMs: now, From: from}}}}})
		if err != nil {
			return err
		}
		future, full := r.apply(b)
		if full != nil {
			return full
		}
		if err := raftgroup.Await(future, r.killed, l.ctx.Done()); err != nil {
			return err
		}
		switch res := future.Response().(type) {
		case *machine.Result:
			if refused := wire.ReplyError(res.Replies[0]); refused != nil {
				return refused
			}
			reply := res.Replies[0].GetInheritLeases()
			extended += int(reply.Extended)
			if from = reply.Next; len(from) == 0 {
				r.log.Debug("leases inherited", "event", "leases_inherited", "partition", r.id, "extended", extended)
				return nil
			}
		case error:
			return res
		default:
			return refusal.Unknown(r.id, "the entry was applied before")
		}
	}
}

// inheritLater inherits the leases once there is space, if this leadership began on full disks. It blocks until
// then, or until the leadership ends.
func (l *leadership) inheritLater() {
	r := l.r
	for l.leasesWait.Load() {
		c, stop := r.clock.After(inheritEvery)
		select {
		case <-c:
		case <-l.ctx.Done():
		}
		stop()
		if l.ctx.Err() != nil {
			return
		}
		err := l.inheritLeases()
		l.leasesWait.Store(err != nil)
		if err != nil && l.ctx.Err() == nil && !api.Is(err, perdurev1.Reason_REASON_DISK_FULL) {
			r.log.Warn("cannot extend the leases yet", "event", "leases_wait", "partition", r.id, "error", err)
		}
	}
}

// load rebuilds the leader's memory from the state.
func (l *leadership) load() error {
	r := l.r
	return r.store.View(func(state state.Reader) error {
		queues, err := query.ReadyQueues(state)
		if err != nil {
			return err
		}
		var held []machine.Assignment
		if err := query.EachHeld(state, func(ns string, task recovery.Task) {
			held = append(held, machine.Assignment{Worker: task.PID, Function: task.Target, Token: wire.Token(ns, task)})
		}); err != nil {
			return err
		}
		outgoing, err := query.Destinations(state, r.opts.Partitions)
		if err != nil {
			return err
		}
		at, ok, err := query.NextExpiration(state)
		if err != nil {
			return err
		}
		if ok {
			l.timer.at(at)
		}
		l.ship.wake(outgoing)
		r.dispatcher.Established(l, queues, held)
		r.addresses.Established(l)
		return nil
	})
}

// revoke ends this term: the leadership serves nothing and performs no duty any more. It blocks until its
// goroutines have ended.
func (l *leadership) revoke() {
	l.r.lead.CompareAndSwap(l, nil)
	l.cancel()
	<-l.done
	// Its establish may have finished just now.
	l.r.lead.CompareAndSwap(l, nil)
	l.r.leads.wake()
	l.r.dispatcher.Revoked(l)
	l.r.addresses.Revoked(l)
	l.r.watches.WakeAll()
}

// perform does what an entry wants done, in the order of the log. The present leadership performs them,
// whichever leadership proposed the entry. A leadership that is still loading may have missed some: unclaimed
// has it load again.
func (r *leader) perform(fx *machine.Effects, reserved []workers.Reservation) {
	l := r.serving()
	if l == nil {
		r.unclaimed.Add(1)
		l = r.serving()
	}
	if l != nil {
		if fx.Expired > 0 {
			r.metrics.Expired.Add(float64(fx.Expired))
		}
		if fx.Undelivered > 0 {
			r.metrics.Undelivered.Add(float64(fx.Undelivered))
		}
		for _, ref := range fx.Long {
			r.metrics.Long.Inc()
			r.log.Warn("journal is long", "event", "journal_long", "namespace", ref.Namespace, "id", ref.ID, "events", id.JournalWarnEvents)
		}
		if fx.NextExpiration > 0 {
			l.timer.at(fx.NextExpiration)
		}
		l.ship.wake(fx.Outbox)
		l.tellAddresses(fx)
	}
	r.watches.Wake(watch.Settled, fx.Settled)
	r.watches.Wake(watch.Moved, fx.Graphs)
	r.dispatcher.Applied(r.member, orNone(l), fx, reserved)
}
