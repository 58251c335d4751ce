package workers

import (
	"strings"

	"perdure/fsm/state"
	"perdure/internal/credit"
)

// ownPrefix begins the names of functions that the server itself serves. Workers cannot.
const ownPrefix = "$"

// OnStarved has the dispatcher call fn for each starved queue of the server's own functions (their names
// begin with $). A queue is starved while it holds tasks of partitions that this node leads and no session
// here has credit for them. The dispatcher calls fn at once, and after each change of credit or queues. fn
// must not block and must not call the dispatcher. fn == nil ends the calls: no call of an earlier fn is
// running when OnStarved returns.
func (d *Dispatcher) OnStarved(fn func(namespace, function string)) {
	d.mu.Lock()
	d.onStarved = fn
	d.finish()
}

// notifyStarved calls fn for a starved queue, if it is the server's own.
func (d *Dispatcher) notifyStarved(q state.Queue) {
	if d.onStarved != nil && strings.HasPrefix(q.Function, ownPrefix) {
		d.onStarved(q.Namespace, q.Function)
	}
}

// AttachOwn is Attach for a worker that is a part of this node: its capacity is for the partitions that this
// node leads, and Workers does not count it. It keeps its tasks when another node becomes the leader.
func (d *Dispatcher) AttachOwn(spec Spec) *Worker {
	d.mu.Lock()
	defer d.finish()
	return d.newWorker(spec, true)
}

// TakeCapacity takes back up to n units of the worker's announced capacity that no task uses or may use now.
// It returns how many.
func (w *Worker) TakeCapacity(n int) int {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	n = w.session.share.Withdraw(n)
	w.step(credit.Shrunk{Link: credit.Home, N: n})
	return n
}
