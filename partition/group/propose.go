package group

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/partition/admission"
	"perdure/partition/disk"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
	"perdure/partition/workers"
)

// Bounds of group commit. An entry holds the commands that wait when pacer has one made.
const (
	maxEntryCommands = 64
	maxEntryBytes    = 64 << 10
	// maxInFlight bounds the entries of a group in flight: Raft writes a full one, or a large one, while the next is made.
	maxInFlight = 2
)

// proposer puts commands into the log and answers their callers. Its loop makes entries of the commands that wait; the
// resolver takes each entry's outcome in the order of the log, has its effects performed and answers.
type proposer struct {
	*core
	pending *pending
	bulk    *bulk // shared by the node's large commands
	inbound inbound
	// slots holds a value for each entry in flight, flights those that the resolver has not taken yet.
	slots   chan struct{}
	flights chan *flight
	// landings holds the entries that are over and that proposeLoop has not counted yet.
	landings chan landing
	// perform has the leader perform an entry's effects.
	perform func(fx *machine.Effects, reserved []workers.Reservation)
}

// flight is an entry that Raft has taken.
type flight struct {
	proposals []*proposal
	lane      lane
	reserved  []workers.Reservation
	future    raft.ApplyFuture
	started   time.Time
	bytes     int // of the entry
}

// Propose puts a command into the log and blocks until it is applied or ctx ends. Every failure is an
// *api.Error, a refusal by the rules among them. If ctx ends, the command is surely not applied as long as
// the log has not taken it; afterwards the outcome is unknown. A request that is queued or in flight here is
// not proposed again: both callers get its outcome.
func (r *proposer) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	r.awaitServing(ctx)
	if cmd.GetDeliver() != nil {
		return r.receive(ctx, cmd)
	}
	return r.propose(ctx, cmd)
}

func (r *proposer) propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	return r.proposeUnder(ctx, nil, cmd)
}

// proposeUnder is Propose under one leadership and no other; nil means the present one.
func (r *proposer) proposeUnder(ctx context.Context, lead *leadership, cmd *commandv1.Command) (*commandv1.Reply, error) {
	if ctx.Err() != nil {
		return nil, r.gaveUp(ctx)
	}
	w, err := r.enqueueUnder(lead, cmd)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.await(ctx)
}

// gaveUp is the error for a caller whose context ended before the log had its command.
func (r *proposer) gaveUp(ctx context.Context) *api.Error {
	return refusal.TryLater(r.id, "the caller stopped waiting before the command was proposed ("+ctx.Err().Error()+")")
}

// waiter is one caller that waits for a proposal.
type waiter struct {
	r *proposer
	p *proposal
	// joined: another caller has proposed the command. own is then the reservation of this caller's copy.
	joined bool
	own    admission.Reservation
}

// close releases the reservation of the waiter's own copy of the command.
func (w *waiter) close() {
	if w.joined {
		w.r.pending.admission.Release(w.own)
	}
}

// outcome returns the proposal's result, or otherwise while it has none. The reply belongs to the caller.
func (w *waiter) outcome(otherwise *api.Error) (*commandv1.Reply, error) {
	if !w.p.finished() {
		return nil, otherwise
	}
	res := w.p.result
	if res.err != nil {
		return nil, res.err
	}
	if refused := wire.ReplyError(res.reply); refused != nil {
		if refused.Meta["rule"] == state.RuleEntityBacklog {
			w.r.metrics.Backlogs.Inc()
		}
		return nil, refused
	}
	if w.joined {
		return proto.CloneOf(res.reply), nil
	}
	return res.reply, nil
}

// enqueue hands a command to the proposer without waiting.
func (r *proposer) enqueue(cmd *commandv1.Command) (*waiter, error) { return r.enqueueUnder(nil, cmd) }

// enqueueUnder is enqueue under one leadership and no other; nil means the present one.
func (r *proposer) enqueueUnder(lead *leadership, cmd *commandv1.Command) (*waiter, error) {
	if halted := r.Halted(); halted != nil {
		return nil, refusal.Halted(r.id, halted)
	}
	serving := r.serving()
	if lead == nil {
		lead = serving
	}
	if lead == nil || lead != serving {
		return nil, r.NotServing()
	}
	if r.isStopping() {
		return nil, refusal.Stopping(r.id)
	}
	if refused := r.Gate(cmd); refused != nil {
		return nil, refused
	}
	if full := r.refuseForDisk(cmd); full != nil {
		return nil, full
	}
	if lead.leasesWait.Load() {
		return nil, refusal.TryLater(r.id, "its leader began on a full disk and extends the leases first")
	}
	if held := lead.ship.holdBack(cmd); held != nil {
		r.metrics.Backlogs.Inc()
		return nil, held
	}
	reserved, over := r.pending.admission.Reserve(r.id, cmd)
	if over != nil {
		r.metrics.Sheds.Inc()
		return nil, over
	}
	charge, refused := r.charge(cmd)
	if refused != nil {
		r.pending.admission.Release(reserved)
		return nil, refused
	}
	p, joined, ok := r.pending.add(cmd, lead, reserved, charge)
	if joined || !ok {
		charge.Release()
	}
	if !ok {
		r.pending.admission.Release(reserved)
		r.metrics.Sheds.Inc()
		return nil, errOverloaded(r.id)
	}
	if joined {
		r.metrics.Joined.Inc()
	}
	return &waiter{r, p, joined, reserved}, nil
}

// proposeLoop makes entries of the queued commands until the replica stops.
func (r *proposer) proposeLoop() {
	defer close(r.flights)
	var pace pacer
	for {
		now, over := r.clock.Now(), r.leads.wait()
		d := pace.next(now)
		if r.pending.await(d.small, r.serving()) {
			r.proposeNext(&pace)
			continue
		}
		var fallen <-chan time.Time
		stop := func() {}
		if !d.until.IsZero() {
			fallen, stop = r.clock.After(d.until.Sub(now))
		}
		select {
		case <-r.pending.wake:
		case l := <-r.landings:
			pace.land(r.clock.Now(), l)
		case <-fallen:
		case <-over: // its commands are refused at once
		case <-r.stopping:
			stop()
			r.refuseQueued()
			return
		}
		stop()
	}
}

// proposeNext makes one entry of the queued commands.
func (r *proposer) proposeNext(pace *pacer) {
	batch := r.pending.take()
	if len(batch) == 0 { // their callers have left
		return
	}
	if f := r.launch(batch); f != nil {
		pace.launch(f.lane, len(f.proposals))
		r.slots <- struct{}{}
		r.flights <- f
	}
}

func (r *proposer) refuseQueued() {
	for _, p := range r.pending.drain() {
		r.pending.answer(p, nil, refusal.Stopping(r.id))
	}
}

// launch gives an entry to Raft. It answers at once every command that it does not give, since that is surely
// not applied. It returns nil if nothing was given.
func (r *proposer) launch(batch []*proposal) *flight {
	lead := r.serving()
	batch = slices.DeleteFunc(batch, func(p *proposal) bool {
		switch {
		case lead == nil:
			r.pending.answer(p, nil, r.NotServing())
		case p.lead != lead:
			r.pending.answer(p, nil, refusal.TryLater(r.id, "the leadership under which this command came is over"))
		default:
			return false
		}
		return true
	})
	if len(batch) == 0 {
		return nil
	}
	f := &flight{proposals: batch, lane: batch[0].lane, started: r.clock.Now()}
	if p := batch[0]; p.lane == small && p.cmd.Namespace != "" {
		r.bulk.noteSmall()
	}
	f.reserved = r.dispatcher.Reserve(r.id)
	entry := &commandv1.Entry{TimeMs: r.env.Now().UnixMilli(), Grants: workers.Grants(f.reserved), ClientRetryMs: r.env.ClientRetry.Milliseconds()}
	for _, p := range batch {
		entry.Commands = append(entry.Commands, p.cmd)
	}
	b, err := r.encode(entry)
	if err != nil {
		for _, p := range batch {
			r.pending.answer(p, nil, refusal.TryLater(r.id, "encoding the entry: "+err.Error()))
		}
		r.dispatcher.Unreserve(f.reserved)
		return nil
	}
	future, full := r.apply(b)
	if full != nil {
		for _, p := range batch {
			r.pending.answer(p, nil, full)
		}
		r.dispatcher.Unreserve(f.reserved)
		return nil
	}
	f.future, f.bytes = future, len(b)
	return f
}

// resolveLoop answers the callers of entries in the order of the log and performs the effects.
func (r *proposer) resolveLoop() {
	defer close(r.resolved)
	for f := range r.flights {
		l := r.land(f)
		<-r.slots
		select {
		case r.landings <- l:
		case <-r.stopping: // no entry follows
		}
	}
}

// land resolves an entry once its outcome is known. What it returns is of the moment before.
func (r *proposer) land(f *flight) landing {
	err := raftgroup.Await(f.future, r.killed, r.halting)
	l := landing{f.lane, len(f.proposals), r.pending.lenOf(small), r.clock.Now().Sub(f.started)}
	r.resolve(f, err)
	return l
}

func (r *proposer) resolve(f *flight, err error) {
	if err != nil {
		r.dispatcher.Unreserve(f.reserved)
		known := refusal.OfRaft(r.id, r.hint(), err)
		if isDiskFull(err) {
			known = r.errDiskFull(disk.Full)
		}
		if halted := r.Halted(); halted != nil {
			known = refusal.Unknown(r.id, halted.Error())
		}
		for _, p := range f.proposals {
			r.pending.answer(p, nil, known)
		}
		return
	}
	switch res := f.future.Response().(type) {
	case *machine.Result:
		r.metrics.CommitSeconds.Observe(r.clock.Now().Sub(f.started).Seconds())
		r.metrics.Entries.Inc()
		r.metrics.EntryBytes.Add(float64(f.bytes))
		r.perform(&res.Effects, f.reserved)
		for i, p := range f.proposals {
			r.countApplied(p.cmd, res.Replies[i])
			r.pending.answer(p, res.Replies[i], nil)
		}
	case error:
		r.dispatcher.Unreserve(f.reserved)
		for _, p := range f.proposals {
			r.pending.answer(p, nil, refusal.Unknown(r.id, res.Error()))
		}
	default:
		// The state had this index already, which cannot be for an entry of our own.
		r.dispatcher.Unreserve(f.reserved)
		for _, p := range f.proposals {
			r.pending.answer(p, nil, refusal.Unknown(r.id, "the entry was applied before"))
		}
	}
}
