package workers

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// maxSplitHeld bounds split.held. Beyond it the node forgets them, and may send the worker a task twice.
const maxSplitHeld = 200_000

// split is what this node keeps of a worker that splits its capacity itself. The worker's ledger is in its own process;
// here is a share, as for a worker of another node. The dispatcher's lock guards it.
type split struct {
	// held are the tasks that the worker holds, as far as this node knows: it is sent them once.
	held credit.Held
	// wanted: the worker knows that its session wants credit. nodes is the list that it was sent last.
	wanted bool
	nodes  *perdurev1.NodeList
}

// Revoke asks for up to n units of the credit of a worker that splits its capacity. Next answers once.
func (w *Worker) Revoke(n int) {
	if n <= 0 || !w.Splits {
		return
	}
	w.d.mu.Lock()
	defer w.d.finish()
	if !w.over {
		w.session.revoke(n)
	}
}

// notice is the next message about credit or the cluster; ok is false if there is none. The lock is held.
func (w *Worker) notice() (d Delivery, ok bool) {
	s := w.session
	switch {
	case !w.Splits:
		return Delivery{}, false
	case s.mayAnswer():
		return Delivery{Notice: &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_CreditReturned{
			CreditReturned: &perdurev1.CreditReturned{Tasks: uint32(s.giveUp())}}}}, true
	case s.wanted != w.split.wanted:
		w.split.wanted = s.wanted
		return Delivery{Notice: &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_CreditWanted{
			CreditWanted: &perdurev1.CreditWanted{Wanted: s.wanted}}}}, true
	case w.d.known.Nodes != nil && w.d.known.Nodes != w.split.nodes:
		w.split.nodes = w.d.known.Nodes
		return Delivery{Notice: &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Nodes{Nodes: w.split.nodes}}}, true
	}
	return Delivery{}, false
}

// holds reports whether a task is the worker's, as far as this node knows.
func (w *Worker) holds(t credit.Task) bool {
	if w.Splits {
		return w.split.held.Has(t)
	}
	return w.ledger.Holds(t)
}

// hold notes that a task goes to the worker.
func (w *Worker) hold(t credit.Task) {
	if len(w.split.held) >= maxSplitHeld { // tasks that end over other nodes stay in it
		clear(w.split.held)
	}
	w.split.held.Add(t)
}

// undelivered gives back the credit of a task that is over before it was sent.
func (w *Worker) undelivered(q Delivery, sent bool) {
	if sent || w.over {
		return
	}
	w.split.held.Remove(creditTask(q.Token))
	if !q.again {
		w.session.grant(1)
	}
}

// Nodes is the cluster as workers reach it; nil while it is unknown.
func (d *Dispatcher) Nodes() *perdurev1.NodeList {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known.Nodes
}
