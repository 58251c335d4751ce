package workers

import (
	"strings"

	"perdure/fsm/state"
	"perdure/internal/credit"
)

// ownPrefix begins the names of functions that the server itself serves. Workers cannot.
const ownPrefix = "$"

// OnStarved has fn called for each queue of the server's own functions (their names begin with $) that holds tasks which no
// session here has credit for, in partitions that this node leads: at once, and whenever credit or queues change and it is
// still so. fn must not block and must not call the dispatcher. nil ends it: no call of an earlier fn is under way then.
func (d *Dispatcher) OnStarved(fn func(namespace, function string)) {
	d.mu.Lock()
	d.onStarved = fn
	d.finish()
}

// notifyStarved reports a queue that no session has credit for, if it is the server's own.
func (d *Dispatcher) notifyStarved(q state.Queue) {
	if d.onStarved != nil && strings.HasPrefix(q.Function, ownPrefix) {
		d.onStarved(q.Namespace, q.Function)
	}
}

// AttachOwn is Attach for a worker that is a part of this node: its capacity is for the partitions that this node
// leads, and it is no stream that Workers counts. What it holds stays its own when another node comes to lead.
func (d *Dispatcher) AttachOwn(spec Spec) *Worker {
	d.mu.Lock()
	defer d.finish()
	return d.newWorker(spec, true)
}

// TakeCapacity takes back up to n units of the capacity that the worker has announced, which no task uses or may use now. It
// answers how many.
func (w *Worker) TakeCapacity(n int) int {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	n = w.session.share.Withdraw(n)
	w.step(credit.Shrunk{Link: credit.Home, N: n})
	return n
}
