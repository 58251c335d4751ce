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

// Begin opens a transaction. Commit keeps all changes of the calls that follow, Rollback reverts all of them;
// the cost depends on the change, not on the graph. Begin panics if a transaction is already open.
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
