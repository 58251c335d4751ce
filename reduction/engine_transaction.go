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
	e.undo = &e.spare
}

// Commit keeps what was changed since Begin. Without a transaction it does nothing.
func (e *Engine) Commit() {
	if e.undo != nil {
		e.end()
	}
}

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
	e.end()
}

// end ends the transaction and forgets what it has overwritten. The memory of a large one is not kept.
func (e *Engine) end() {
	const kept = 64
	clear(e.spare.old)
	e.undo, e.spare.old = nil, e.spare.old[:0]
	if cap(e.spare.old) > kept {
		e.spare.old = nil
	}
}
