package group

import (
	"context"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/callstream/async"
	"perdure/partition/refusal"
)

// Begun is a command on its way into the log whose caller does not block. The caller ends it with an Outcome that is
// there, or with Wait. The zero value is none.
type Begun struct{ w *waiter }

// None reports whether there is no such command.
func (b Begun) None() bool { return b.w == nil }

// Begin hands a command to the log as Propose does, and does not block. n is notified once there is an outcome, possibly
// before Begin returns. It returns none and no error if only Propose can say what becomes of the command: this node
// does not serve the group yet, or the command is a shipment.
func (r *proposer) Begin(cmd *commandv1.Command, n async.Notifier) (Begun, error) {
	if r.serving() == nil || cmd.GetDeliver() != nil {
		return Begun{}, nil
	}
	w, err := r.enqueue(cmd)
	if err != nil {
		return Begun{}, err
	}
	r.pending.notify(w.p, n)
	return Begun{w}, nil
}

// Outcome returns what Propose would return, if done; else there is no outcome yet.
func (b Begun) Outcome() (reply *commandv1.Reply, err error, done bool) {
	if !b.w.p.finished() {
		return nil, nil, false
	}
	defer b.w.close()
	reply, err = b.w.outcome(nil)
	return reply, err, true
}

// Wait blocks until there is an outcome or ctx ends, as Propose does.
func (b Begun) Wait(ctx context.Context) (*commandv1.Reply, error) {
	defer b.w.close()
	return b.w.await(ctx)
}

// await blocks until the proposal is finished or ctx ends.
func (w *waiter) await(ctx context.Context) (*commandv1.Reply, error) {
	r := w.r
	select {
	case <-w.p.done:
		return w.outcome(nil)
	case <-ctx.Done():
		if r.pending.leave(w.p) {
			r.metrics.GivenUp.Inc()
			return nil, r.gaveUp(ctx)
		}
		return w.outcome(refusal.Unknown(r.id, "the caller stopped waiting ("+ctx.Err().Error()+")"))
	case <-r.stopped:
		// The proposer answers the commands that it has; this ends only a command that it will never see.
		return w.outcome(refusal.Unknown(r.id, "the node is stopping"))
	}
}

// notify has n notified when the proposal is finished, or now if it is.
func (q *pending) notify(p *proposal, n async.Notifier) {
	q.mu.Lock()
	finished := p.finished()
	if !finished {
		p.notify = append(p.notify, n)
	}
	q.mu.Unlock()
	if finished {
		n.Notify()
	}
}

// Finding is what an applied state says about the result, promise or call that a query awaits.
type Finding uint8

const (
	// Unclear: only Await can answer.
	Unclear Finding = iota
	// Pending: this node serves the group, and what the query awaits has not settled. A watch that was registered before the
	// read wakes when it settles or when this node leads no more.
	Pending
	// Final: it has settled, and the answer can never change.
	Final
)

// ReadSettled answers q from this replica's applied state if it finds the answer final. It does not confirm that this node
// leads; see Await.
func (r *reader) ReadSettled(q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, found Finding) {
	if r.Halted() != nil {
		return nil, 0, Unclear
	}
	a, err := r.read(q)
	switch {
	case err != nil || a.refused != nil:
	case a.immutable(q):
		return a.reply, a.index, Final
	case !Settled(a.reply) && !a.older(q) && r.serving() != nil:
		return nil, a.index, Pending
	}
	return nil, 0, Unclear
}
