package workers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// returnTimeout bounds the return of tasks.
const returnTimeout = 10 * time.Second

// returnUnsent returns tasks that a worker was surely never sent: no message about them was written. It does not
// block. A task that cannot be returned waits for the end of its lease.
//
// No other node may have sent such a task either, or a worker could begin a task that has gone to another
// one. A later leader would send it, since its state says which worker holds it; so would this leader to a
// later session of the worker. So only the dispatcher of the leader that acquired a task returns it, in the
// same term. It sends the task again neither before (resent) nor during the return (returning). A task that
// another leader has assigned goes back to that one.
func (d *Dispatcher) returnUnsent(queue []Delivery) {
	queue = slices.DeleteFunc(slices.Clone(queue), func(q Delivery) bool {
		if q.replica == nil {
			return q.Cancelling || q.again || q.link == nil || q.term == 0
		}
		return q.Cancelling || q.again || !d.canReturn(q)
	})
	if len(queue) == 0 {
		return
	}
	for _, q := range queue {
		if q.replica != nil {
			d.returning[creditTask(q.Token)] = true
		}
	}
	d.spawn(func() { d.release(queue) })
}

// canReturn reports whether this node may still return a task that it has assigned: the leadership that
// assigned it still leads, and has not sent it again.
func (d *Dispatcher) canReturn(q Delivery) bool {
	led := d.led[q.replica.ID()]
	return led != nil && led.lead == q.lead && !led.resent.has(creditTask(q.Token))
}

// ErrNotReturned reports that a task cannot be returned any more: its term is over, or it was sent again.
var ErrNotReturned = errors.New("the task is not returned")

// Return puts a task back into its queue that another node acquired in a term of this node's replica and never sent to
// its worker. It blocks until the task is queued or ctx ends.
func (d *Dispatcher) Return(ctx context.Context, r Replica, term uint64, release *commandv1.Command) (*commandv1.Reply, error) {
	q := Delivery{Token: release.GetRelease().GetTask(), replica: r, lead: r.Leadership()}
	if q.Token == nil || q.lead == nil || q.lead.Term() != term {
		return nil, ErrNotReturned
	}
	d.mu.Lock()
	may := d.canReturn(q)
	if may {
		d.returning[creditTask(q.Token)] = true
	}
	d.mu.Unlock()
	if !may {
		return nil, ErrNotReturned
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.returning, creditTask(q.Token))
	}()
	return r.ProposeIn(ctx, q.lead, release)
}

// resentTasks are the tasks that a leadership has sent again. It remembers maxResent of them; after more, it
// counts every task as sent again.
type resentTasks struct {
	tasks map[credit.Task]struct{}
	all   bool
}

const maxResent = 65_536

func (m *resentTasks) add(k credit.Task) {
	switch {
	case m.all:
	case len(m.tasks) >= maxResent:
		m.tasks, m.all = nil, true
	default:
		if m.tasks == nil {
			m.tasks = map[credit.Task]struct{}{}
		}
		m.tasks[k] = struct{}{}
	}
}

func (m *resentTasks) has(k credit.Task) bool {
	_, sent := m.tasks[k]
	return sent || m.all
}

// returners bounds the tasks that are returned at the same time.
const returners = 16

func (d *Dispatcher) release(queue []Delivery) {
	ctx, cancel := context.WithTimeout(d.ctx, returnTimeout)
	defer cancel()
	slots := make(chan struct{}, returners)
	var all sync.WaitGroup
	for _, q := range queue {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if q.replica == nil {
				d.returnTo(ctx, q)
				return
			}
			_, _ = q.replica.ProposeIn(ctx, q.lead, releaseOf(q.Token)) // or the lease ends the wait
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.returning, creditTask(q.Token))
		})
	}
	all.Wait()
}

// returnTo returns a task to the leader that has assigned it. If that fails, the task waits for the end of
// its lease.
func (d *Dispatcher) returnTo(ctx context.Context, q Delivery) {
	client, err := d.env.Peer(q.link.server)
	if err != nil {
		return
	}
	_, _ = client.Propose(ctx, &commandv1.ProposeRequest{Partition: d.env.PartitionOf(q.Token.Namespace, q.Token.Id),
		Command: releaseOf(q.Token), ReturnedInTerm: q.term})
}

func releaseOf(token *perdurev1.TaskToken) *commandv1.Command {
	return &commandv1.Command{Namespace: token.Namespace, Id: token.Id, Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: token}}}
}
