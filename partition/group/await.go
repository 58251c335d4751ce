package group

import (
	"context"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/refusal"
	"perdure/partition/watch"
)

const (
	// awaitRecheck is how often a wait asks whether this node still leads.
	awaitRecheck = 10 * time.Second
	// awaitPoll is how often a wait reads for which the node has no watch left.
	awaitPoll = 2 * time.Second
)

// Settled reports whether an answer to Await has the final value of the result, the promise or the entity's call.
func Settled(reply *commandv1.QueryReply) bool {
	switch k := reply.GetKind().(type) {
	case *commandv1.QueryReply_Result:
		return k.Result.Done
	case *commandv1.QueryReply_Promise:
		return k.Promise.GetPromise().GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING
	case *commandv1.QueryReply_EntityAnswer:
		return k.EntityAnswer.Done
	}
	return false
}

// immutable reports whether no later state answers q differently, so that any replica may answer. It is so
// for what a start or a call of the caller's own has brought about. Without an incarnation an id may have
// been started again since.
func (a answer) immutable(q *commandv1.Query) bool {
	if a.refused != nil || !Settled(a.reply) {
		return false
	}
	switch k := a.reply.Kind.(type) {
	case *commandv1.QueryReply_Result:
		asked := q.GetResult().GetIncarnation()
		return asked != 0 && k.Result.Incarnation >= asked
	case *commandv1.QueryReply_EntityAnswer:
		return true
	}
	return false
}

// older reports whether a result is of an earlier incarnation than q asks for.
func (a answer) older(q *commandv1.Query) bool {
	return q.GetResult().GetIncarnation() > a.reply.GetResult().GetIncarnation()
}

// Await answers q, about a result, a promise or an entity's call, once that has settled, or after wait. It blocks for
// wait and one confirmation of leadership at most. The answer is linearizable, or can never change. Refusals are
// *api.Error: those of Query, and why this node does not lead, or no longer does.
func (r *reader) Await(ctx context.Context, q *commandv1.Query, wait time.Duration) (*commandv1.QueryReply, uint64, error) {
	over, stop := r.clock.After(max(wait, 0))
	defer stop()
	for expired := wait <= 0; ; {
		if halted := r.Halted(); halted != nil {
			return nil, 0, refusal.Halted(r.id, halted)
		}
		lead := r.awaitServing(ctx)
		if lead == nil {
			return nil, 0, r.NotServing()
		}
		w := r.watches.Add(watch.Settled, q.Namespace, q.Id)
		a, err := r.awaited(ctx, q, expired)
		if err != nil || a.refused != nil || expired || Settled(a.reply) {
			w.Stop()
			if err == nil && a.refused != nil {
				err = a.refused
			}
			if err != nil {
				return nil, a.index, err
			}
			return a.reply, a.index, nil
		}
		every := awaitRecheck
		if !w.Registered() {
			every = awaitPoll
		}
		again, stopAgain := r.clock.After(every)
		select {
		case <-w.C:
		case <-again:
			err = r.confirm(ctx)
		case <-over:
			expired = true
		case <-lead.ctx.Done():
			err = r.NotServing()
		case <-r.stopping:
			err = refusal.Stopping(r.id)
		case <-ctx.Done():
			err = ctx.Err()
		}
		stopAgain()
		w.Stop()
		if err != nil {
			return nil, 0, err
		}
	}
}

// awaited reads for an Await. A former leader that has not noticed its successor may find the object pending
// and waits until it notices. Every other answer is confirmed, except for one that cannot change;
// last asks for any answer. What has settled is not read again if the leadership under which it was read is the one
// confirmed: no other leader can have changed it before the read.
func (r *reader) awaited(ctx context.Context, q *commandv1.Query, last bool) (answer, error) {
	lead := r.serving()
	a, err := r.read(q)
	if err != nil || a.immutable(q) {
		return a, err
	}
	settled := a.refused == nil && Settled(a.reply) && !a.older(q)
	if !last && a.refused == nil && !settled && !a.older(q) {
		return a, nil
	}
	if err := r.confirm(ctx); err != nil {
		return a, err
	}
	if settled && lead != nil && r.serving() == lead {
		return a, nil
	}
	return r.read(q)
}
