package entity

// Operation is a queued operation as a worker sees it.
type Operation struct {
	Origin  Party
	Request string
	Name    string
	Input   []byte
	// Call reports that the origin gets the result.
	Call bool
}

// Batch is a work item: operations to be run one after the other on a value (durable functions semantics,
// section 5). Any number of workers may have the same one; at most one commit of them is admitted.
type Batch struct {
	Entity ID
	// Incarnation and Version are what the commit must present.
	Incarnation, Version uint64
	// Exists and Value are the value to start from.
	Exists bool
	Value  []byte
	// Lane reports that the operations are scheduled signals, of [State.Lane].
	Lane       bool
	Operations []Operation
}

// Batch returns what a worker should run next, and false if nothing can run now. It holds the first
// operations of one list that may run: at most operations of them (at least one), and no more than fit into bytes of
// input, but always the first. The version's parity selects the list, so neither starves the other. Batch changes
// nothing, so a lost batch costs nothing.
func (s *State) Batch(operations, bytes int) (Batch, bool) {
	b := Batch{Entity: s.ID, Incarnation: s.Incarnation, Version: s.Version, Exists: s.Exists, Value: s.Value}
	b.Lane = s.may(true) && (s.Version%2 == 0 || !s.may(false))
	for _, o := range s.eligible(b.Lane) {
		work := o.work()
		bytes -= len(work.Input)
		if len(b.Operations) > 0 && (len(b.Operations) >= operations || bytes < 0) {
			break
		}
		b.Operations = append(b.Operations, work)
	}
	return b, len(b.Operations) > 0
}
