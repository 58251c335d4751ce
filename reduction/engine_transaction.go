package reduction

// undo remembers what a transaction has overwritten, in order.
type undo struct {
	old []oldNode
}

type oldNode struct {
	n      int32
	status Status
	output []byte
}

// save does nothing outside a transaction.
func (u *undo) save(n int32, status Status, output []byte) {
	if u != nil {
		u.old = append(u.old, oldNode{n, status, output})
	}
}

// Begin opens a transaction: what the calls that follow change is kept by Commit or taken back by Rollback,
// all of it, at a cost that depends on the change and not on the graph. A transaction that is already open is
// an error of the caller, and Begin panics.
func (e *Engine) Begin() {
	if e.undo != nil {
		panic("reduction: Begin inside a transaction")
	}
	e.undo = new(undo)
}

// Commit keeps what was changed since Begin. Without a transaction it does nothing.
func (e *Engine) Commit() { e.undo = nil }

// Rollback takes back what was changed since Begin. Without a transaction it does nothing, so it can be
// deferred.
func (e *Engine) Rollback() {
	u := e.undo
	if u == nil {
		return
	}
	e.undo = nil
	for i := len(u.old) - 1; i >= 0; i-- {
		e.set(u.old[i].n, u.old[i].status, u.old[i].output, nil)
	}
}
