package reduction

import "slices"

// Start records that a ready node was handed to a worker. The frontier does not change: it is that of the
// normalised view. The error is a *FactError.
func (e *Engine) Start(node NodeID) (Delta, error) {
	n, err := e.find(node)
	if err != nil {
		return Delta{}, err
	}
	if at := e.status[n]; at.Kind != StatusPending {
		return Delta{}, &FactError{Rule: RuleStart, Node: node, Status: at}
	}
	if err := e.satisfied(n); err != nil {
		return Delta{}, err
	}
	var c call
	c.write(e, n, Status{Kind: StatusRunning}, nil)
	return c.delta(e), nil
}

// Apply takes the results of one frontier: it accumulates each, closes, and classifies, as [Reduce] does, in
// O(edges out of their nodes + nodes and edges of the failures that follow). Usually there is one result.
// Several have the same effect as one after the other, in any order, except that one refusal refuses all. The
// error is a *FactError.
func (e *Engine) Apply(results ...Result) (Delta, error) {
	numbers := make([]int32, len(results))
	for i, result := range results {
		n, err := e.admit(result)
		if err != nil {
			return Delta{}, err
		}
		numbers[i] = n
	}
	if i := firstRepeated(numbers); i >= 0 {
		return Delta{}, &FactError{Rule: RuleOnce, Node: results[i].Node, Status: e.status[numbers[i]]}
	}
	var c call
	for i, result := range results {
		c.accumulate(e, numbers[i], result.Outcome)
	}
	return c.delta(e), nil
}

// Resolve completes one waiting node with the payload of the signal that it waits for. The error is a
// *FactError.
func (e *Engine) Resolve(node NodeID, signal string, payload []byte) (Delta, error) {
	n, err := e.find(node)
	if err != nil {
		return Delta{}, err
	}
	if at := e.status[n]; at.Kind != StatusWaiting || at.Signal != signal {
		return Delta{}, &FactError{Rule: RuleWaitsFor, Node: node, Status: at}
	}
	var c call
	c.write(e, n, Status{Kind: StatusCompleted}, payload)
	return c.delta(e), nil
}

func (e *Engine) find(node NodeID) (int32, error) {
	n, ok := e.r.number[node]
	if !ok {
		return 0, &FactError{Rule: RuleKnownNode, Node: node}
	}
	return n, nil
}

func (e *Engine) admit(result Result) (int32, error) {
	n, err := e.find(result.Node)
	if err != nil {
		return 0, err
	}
	if err := admit(result, e.status[n]); err != nil {
		return 0, err
	}
	return n, e.satisfied(n)
}

// satisfied refuses a node that misses a predecessor. Only the refusal looks for it.
func (e *Engine) satisfied(n int32) error {
	if e.missing[n] == 0 {
		return nil
	}
	before := e.r.pred.of(n)
	i := slices.IndexFunc(before, func(p int32) bool { return !e.status[p].Kind.satisfies() })
	return &FactError{Rule: RuleReady, Node: e.r.ids[n], Status: e.status[n], Predecessor: e.r.ids[before[i]]}
}

// call collects what one call changes.
type call struct {
	changed []Change
	ready   []int32
}

func (c *call) write(e *Engine, n int32, to Status, output []byte) {
	if from := e.status[n]; from != to {
		c.changed = append(c.changed, Change{e.r.ids[n], from, to})
	}
	e.set(n, to, output, &c.ready)
}

func (c *call) accumulate(e *Engine, n int32, outcome Outcome) {
	var output []byte
	if done, ok := outcome.(Succeeded); ok {
		output = done.Output
	}
	to := outcome.Target()
	c.write(e, n, to, output)
	if to.Kind == StatusFailed {
		c.close(e, n)
	}
}

// close fails the descendants of n. The state was closed before n failed, and no node can have started after
// one that was not done. So each descendant of n is pending, or failed with all its own descendants.
func (c *call) close(e *Engine, n int32) {
	queue := []int32{n}
	for i := 0; i < len(queue); i++ {
		for _, m := range e.r.succ.of(queue[i]) {
			e.work++
			if e.status[m].Kind.yields() {
				c.write(e, m, Status{Kind: StatusFailed}, nil)
				queue = append(queue, m)
			}
		}
	}
}

func (c *call) delta(e *Engine) Delta {
	slices.Sort(c.ready)
	d := Delta{Changed: c.changed, Phase: e.Phase()}
	if len(c.ready) > 0 {
		d.Ready = e.r.names(c.ready)
	}
	return d
}
