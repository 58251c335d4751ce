package partition

import (
	"context"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream/async"
	"perdure/partition/group"
	"perdure/partition/watch"
)

// Proposal is a command whose caller does not block. The caller ends it with an Outcome that is final, or with Wait.
type Proposal struct {
	r         *Router
	partition uint32
	cmd       *commandv1.Command
	began     time.Time
	begun     group.Begun
	replied   *commandv1.Reply
	failed    error
}

// Begin hands a command to its partition's log as Propose does, and does not block. n is notified when an Outcome
// may be there. Without a first attempt, since this node does not lead the partition, Outcome asks for Wait at once.
func (p *Proposal) Begin(r *Router, cmd *commandv1.Command, now time.Time, n async.Notifier) {
	*p = Proposal{r: r, partition: r.PartitionOf(cmd.Namespace, cmd.Id), cmd: cmd, began: now}
	if p.begun, p.failed = r.local(p.partition).Begin(cmd, n); p.begun.None() {
		n.Notify()
	}
}

// Refused returns the error of a command that Begin refused for good. Then nothing of it is under way: Outcome says the same.
func (p *Proposal) Refused() error {
	if p.begun.None() && final(p.failed) {
		return p.failed
	}
	return nil
}

// Outcome returns the reply or the error if it is final (async.Done). Otherwise there is none yet, or only Wait, which
// may try again, finds it.
func (p *Proposal) Outcome() (*commandv1.Reply, async.Next, error) {
	if !p.begun.None() {
		reply, err, done := p.begun.Outcome()
		if !done {
			return nil, async.Waits, nil
		}
		p.begun, p.replied, p.failed = group.Begun{}, reply, err
	}
	if p.replied == nil && !final(p.failed) {
		return nil, async.Blocks, nil
	}
	return p.replied, async.Done, p.failed
}

// final reports whether no attempt follows one that failed so: it says what became of the command.
func final(err error) bool {
	e, ours := api.FromStatus(err)
	if !ours {
		return false
	}
	switch e.Reason {
	case perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_SHUTTING_DOWN,
		perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, perdurev1.Reason_REASON_OUTCOME_UNKNOWN, perdurev1.Reason_REASON_CORRUPT:
		return false
	}
	return true
}

// Wait blocks until the command has an outcome, as Propose does.
func (p *Proposal) Wait(ctx context.Context) (*commandv1.Reply, error) {
	var first func(context.Context) (*commandv1.Reply, error)
	switch {
	case p.replied != nil:
		return p.replied, nil
	case !p.begun.None():
		first = p.begun.Wait
	case p.failed != nil:
		first = func(context.Context) (*commandv1.Reply, error) { return nil, p.failed }
	}
	return p.r.deliver(ctx, p.partition, p.cmd, p.began, first)
}

// NotifySettled returns a wait for the settlement of an object. n is notified after it, as long as this node leads
// the object's partition, and possibly without it.
func (r *Router) NotifySettled(namespace, id string, n async.Notifier) *watch.Watch {
	return r.shared.Watches.Notify(watch.Settled, namespace, id, n)
}

// ReadSettled answers q from this node's replica if it is found to be final: see group.Finding.
func (r *Router) ReadSettled(q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, found group.Finding) {
	return r.local(r.PartitionOf(q.Namespace, q.Id)).ReadSettled(q)
}
