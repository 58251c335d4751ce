package reduction

import "slices"

// Engine holds a run in memory, always closed, and maintains its frontier and its counts. The cost of a fact
// depends on its change (the edges out of its node and of the nodes that fail with it), not on the size of
// the graph. Engine has the same results as the functions on [State], fact by fact, in the normalised view.
//
// An Engine is not safe for concurrent use. A call that returns an error has changed nothing.
type Engine struct {
	r       *Relation
	status  []Status
	output  [][]byte // of the completed nodes
	missing []int32  // by node: predecessors that are neither completed nor skipped
	ready   bitset   // open nodes that miss nothing
	count   [StatusWaiting + 1]int
	waiters map[string][]int32 // by signal, in no order; looked up, never ranged over
	place   []int32            // by waiting node: its index among the waiters of its signal
	held    int                // bytes of outputs and signals
	undo    *undo              // nil or &spare
	spare   undo               // memory of one transaction at a time
	work    int                // statuses written and edges walked so far: what the tests of cost count
}

// Delta is what one call has changed.
type Delta struct {
	// Changed lists the nodes with a new status: those that the facts were about in the order given, each
	// followed by the nodes that failed in consequence, nearest first. No node is listed twice.
	Changed []Change
	// Ready lists, in ascending order, the nodes to start after this call: those whose last missing
	// predecessor is done, and those that returned to pending.
	Ready []NodeID
	// Phase is the phase after the call.
	Phase Phase
}

// Change is one node's new status.
type Change struct {
	Node     NodeID
	From, To Status
}

// NewEngine loads a run in one walk over the graph. It closes the state but leaves running nodes running: the
// caller may know their workers. (To learn what closing changes, or to resolve signals, use [Recover] first.)
// If [Persisted] reports a violation in s, the error is a *StateError. The engine keeps the outputs of s
// without copying their bytes.
func NewEngine(r *Relation, s State) (*Engine, error) {
	if faults := Persisted(r, s); len(faults) > 0 {
		return nil, &StateError{faults}
	}
	e := unset(r)
	s = Close(r, s)
	for n, id := range r.ids {
		e.set(int32(n), s.Statuses[id], s.Outputs[id], nil)
	}
	return e, nil
}

// InitialEngine loads a run before anything has happened. It is NewEngine of [Initial], without the maps of that.
func InitialEngine(r *Relation) *Engine {
	e := unset(r)
	for n := range e.status {
		e.status[n] = Status{Kind: StatusPending}
		e.mark(int32(n))
	}
	e.count[StatusPending] = r.Len()
	return e
}

// unset is an engine whose nodes have no status yet.
func unset(r *Relation) *Engine {
	e := &Engine{
		r:       r,
		status:  make([]Status, r.Len()),
		output:  make([][]byte, r.Len()),
		missing: make([]int32, r.Len()),
		ready:   newBitset(r.Len()),
		waiters: make(map[string][]int32),
		place:   make([]int32, r.Len()),
	}
	for n := range e.missing {
		e.missing[n] = int32(len(r.pred.of(int32(n))))
	}
	return e
}

// set gives a node its status and output. No other function changes an engine's state. ready, if not nil,
// collects the nodes that this makes startable.
func (e *Engine) set(n int32, to Status, output []byte, ready *[]int32) {
	from := e.status[n]
	e.undo.save(n, from, e.output[n])
	e.work++
	e.held += len(output) - len(e.output[n]) + len(to.Signal) - len(from.Signal)
	e.status[n], e.output[n] = to, output
	e.count[from.Kind]--
	e.count[to.Kind]++
	if from.Kind == StatusWaiting {
		e.unwait(n, from.Signal)
	}
	if to.Kind == StatusWaiting {
		e.place[n] = int32(len(e.waiters[to.Signal]))
		e.waiters[to.Signal] = append(e.waiters[to.Signal], n)
	}
	if was, is := from.Kind.satisfies(), to.Kind.satisfies(); was != is {
		for _, m := range e.r.succ.of(n) {
			e.work++
			if was {
				e.missing[m]++
			} else {
				e.missing[m]--
			}
			if e.mark(m) && ready != nil && e.status[m].Kind == StatusPending {
				*ready = append(*ready, m)
			}
		}
	}
	if e.mark(n) && ready != nil && to.Kind == StatusPending {
		*ready = append(*ready, n)
	}
}

// mark puts a node into the frontier or takes it out, as its status and what it misses say, and reports
// whether it is in.
func (e *Engine) mark(n int32) bool {
	in := e.missing[n] == 0 && e.status[n].Kind.open()
	e.ready.put(n, in)
	return in
}

// unwait removes a node from a signal's waiters; the last waiter takes its position.
func (e *Engine) unwait(n int32, signal string) {
	list := e.waiters[signal]
	last := list[len(list)-1]
	list[e.place[n]] = last
	e.place[last] = e.place[n]
	if list = list[:len(list)-1]; len(list) == 0 {
		delete(e.waiters, signal)
		return
	}
	e.waiters[signal] = list
}

// Relation returns the graph of the run.
func (e *Engine) Relation() *Relation { return e.r }

// Status returns the status of a node; the zero Status if the graph does not have the node.
func (e *Engine) Status(node NodeID) Status {
	n, ok := e.r.number[node]
	if !ok {
		return Status{}
	}
	return e.status[n]
}

// Output returns what a completed node has put out, which must not be written to.
func (e *Engine) Output(node NodeID) ([]byte, bool) {
	n, ok := e.r.number[node]
	if !ok || e.status[n].Kind != StatusCompleted {
		return nil, false
	}
	return e.output[n], true
}

// Count is the number of nodes of a status; 0 for an invalid one.
func (e *Engine) Count(k StatusKind) int {
	if !k.Valid() {
		return 0
	}
	return e.count[k]
}

// Frontier lists the nodes that are ready in the normalised view, in ascending order: those that a recovering
// machine would start, running ones among them.
func (e *Engine) Frontier() []NodeID { return e.r.names(e.ready.list()) }

// Startable lists the nodes of the frontier that are not running, in ascending order.
func (e *Engine) Startable() []NodeID {
	var out []NodeID
	for _, n := range e.ready.list() {
		if e.status[n].Kind == StatusPending {
			out = append(out, e.r.ids[n])
		}
	}
	return out
}

// WaitingOn lists the nodes that wait for a signal, in ascending order.
func (e *Engine) WaitingOn(signal string) []NodeID {
	waiters := slices.Clone(e.waiters[signal])
	slices.Sort(waiters)
	return e.r.names(waiters)
}

// Phase is the phase of the run, at no cost.
func (e *Engine) Phase() Phase {
	unsettled := e.count[StatusPending] + e.count[StatusRunning] + e.count[StatusWaiting]
	return phaseOf(e.ready.len, unsettled, e.count[StatusWaiting], e.count[StatusFailed])
}

// Classify is [Classify] of the run's state. Progressing costs the frontier it lists; Suspended and Stuck cost
// a walk over the nodes.
func (e *Engine) Classify() Step {
	switch phase := e.Phase(); phase {
	case PhaseProgressing:
		return Progressing{e.Frontier()}
	case PhaseSuspended:
		var waits []Wait
		for n, at := range e.status {
			if at.Kind == StatusWaiting {
				waits = append(waits, Wait{e.r.ids[n], at.Signal})
			}
		}
		return Suspended{waits}
	case PhaseStuck:
		return Stuck{diagnose(e.r, Normalize(e.State()))}
	default:
		return Settled{Failed: phase == PhaseFailed}
	}
}

// State returns the state of the run, closed, with running nodes as running. It costs a walk over the nodes.
func (e *Engine) State() State {
	s := State{make(map[NodeID]Status, len(e.status)), make(map[NodeID][]byte, e.count[StatusCompleted])}
	for n, id := range e.r.ids {
		s.Statuses[id] = e.status[n]
		if e.status[n].Kind == StatusCompleted {
			s.Outputs[id] = e.output[n]
		}
	}
	return s
}

// Check verifies the engine's own frontier and normalised state by Definition 1 and returns the violations.
// It walks the whole graph.
func (e *Engine) Check() []Violation {
	return WellFormed(e.r, Normalize(e.State()), e.Frontier())
}

// Size estimates the memory that the engine holds besides its relation, in bytes, for the accounting of a
// cache. It runs in constant time.
func (e *Engine) Size() int {
	const perNode = 24 + 24 + 4 + 4 // a status, an output's header, two numbers
	const perWaiter = 64            // a place in the map of signals
	return perNode*len(e.status) + 8*len(e.ready.words) + perWaiter*e.count[StatusWaiting] + e.held
}
