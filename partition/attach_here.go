package partition

import (
	"strings"

	"perdure/fsm/state"
	"perdure/internal/credit"
)

// ownPrefix begins the names of functions that the server itself serves. Workers cannot.
const ownPrefix = "$"

// OnStarved has fn told of each queue of the server's own functions (their names begin with $) that holds tasks
// which no seat here has room for, in partitions that this node leads: at once, and whenever room or queues
// change and it is still so. fn must not block and must not call the dispatcher. nil ends it: no call of an
// earlier fn is under way then.
func (d *Dispatcher) OnStarved(fn func(namespace, function string)) {
	d.mu.Lock()
	d.onStarved = fn
	d.finish()
}

// tellStarved tells of a queue that no seat has room for, if it is the server's own.
func (d *Dispatcher) tellStarved(q state.Queue) {
	if d.onStarved != nil && strings.HasPrefix(q.Function, ownPrefix) {
		d.onStarved(q.Namespace, q.Function)
	}
}

// AttachHere is Attach for a worker that is a part of this node: its room is for the partitions that this node
// leads, and it is no stream that Workers counts. What it holds stays its own when another node comes to lead.
func (d *Dispatcher) AttachHere(spec WorkerSpec) *Worker {
	d.mu.Lock()
	defer d.finish()
	return d.newWorker(spec, true)
}

// TakeRoom takes back up to n tasks' room that the worker has announced and nothing uses or may use now. It
// answers how much that was.
func (w *Worker) TakeRoom(n int) int {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	n = w.seat.share.Withdraw(n)
	w.step(credit.Shrunk{Link: credit.Home, N: n})
	return n
}
