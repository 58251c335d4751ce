package machine

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
	"perdure/reduction"
)

// graphRun caches one graph run in memory: its graph, its node rows, and the reduction over them. The stored state
// alone determines it: a replica that reloads the run behaves like a replica that has cached it.
type graphRun struct {
	// graph is without its edges.
	graph *perdurev1.Graph
	input []byte
	rel   *reduction.Relation
	// number maps each node of rel to its index in graph.Nodes.
	number []int32
	engine *reduction.Engine
	// rows are the nodes, in the order of the graph. Outputs that were observed are the engine's.
	rows []state.NodeRow
	// byChild maps each child number to its node.
	byChild []int32
	// startable are the nodes that may start: those that count for max_parallel, and those that do not.
	startable [2]indexSet
	// unobserved are the nodes whose results wait for the end of their wave.
	unobserved []int32
	counts     runCounts
	fixed      int // bytes of the graph
	// alone: when the run began, no promise had an id below the run's. Each of its nodes and attempts has an id of its
	// own, so none of them needs a read to see that its id is free. A run that was read again does not know it.
	alone bool

	// busy: advance is running; ended holds the attempts that end meanwhile, of which it has taken the first. None of these
	// outlasts a transaction.
	busy  bool
	ended []recovery.Promise
	taken int
	// undo is nil between transactions; spare is the memory of the next one's.
	undo, spare *runUndo
}

// runCounts are sums over the rows.
type runCounts struct {
	// active nodes run, pause between attempts, or sleep; slots are those without the sleeping ones; attempts
	// are running executions. held is the size of the rows in bytes.
	active, slots, attempts, held int
}

// runUndo holds what a transaction has changed.
type runUndo struct {
	rows       []oldRow
	toggled    []int32
	children   int
	unobserved []int32
	counts     runCounts
}

type oldRow struct {
	n   int32
	row state.NodeRow
}

func (r *graphRun) begin() {
	if r == nil {
		return
	}
	r.engine.Begin()
	u := r.spare
	if r.spare = nil; u == nil {
		u = &runUndo{}
	}
	u.children, u.unobserved, u.counts = len(r.byChild), r.unobserved, r.counts
	r.undo = u
}

func (r *graphRun) commit() {
	if r == nil {
		return
	}
	r.engine.Commit()
	r.over()
}

func (r *graphRun) rollback() {
	if r == nil || r.undo == nil {
		return
	}
	u := r.undo
	r.engine.Rollback()
	for i := len(u.rows) - 1; i >= 0; i-- {
		r.rows[u.rows[i].n] = u.rows[i].row
	}
	for _, n := range u.toggled {
		set := &r.startable[r.setOf(n)]
		set.put(n, !set.has(n))
	}
	r.byChild, r.unobserved, r.counts = r.byChild[:u.children], u.unobserved, u.counts
	r.over()
}

// over ends the transaction. The memory of a large one is not kept.
func (r *graphRun) over() {
	const kept = 64
	if u := r.undo; u != nil && cap(u.rows) <= kept && cap(u.toggled) <= kept {
		clear(u.rows)
		u.rows, u.toggled, u.unobserved = u.rows[:0], u.toggled[:0], nil
		r.spare = u
	}
	r.undo = nil
	r.forget()
}

// forget ends advance. The memory of many ended attempts is not kept.
func (r *graphRun) forget() {
	const kept = 16
	clear(r.ended)
	r.busy, r.ended, r.taken = false, r.ended[:0], 0
	if cap(r.ended) > kept {
		r.ended = nil
	}
}

// size estimates the memory that the run holds, in bytes.
func (r *graphRun) size() int {
	if r == nil {
		return 0
	}
	const perNode = 160
	return r.engine.Size() + r.fixed + perNode*len(r.rows) + r.counts.held
}

func (r *graphRun) node(n int32) *perdurev1.GraphNode { return r.graph.Nodes[n] }
func (r *graphRun) name(n int32) reduction.NodeID     { return reduction.NodeID(r.graph.Nodes[n].Id) }

// index is the place of a node of the relation.
func (r *graphRun) index(node reduction.NodeID) int32 {
	i, ok := r.rel.Number(node)
	if !ok {
		panic(state.Fault{Err: fmt.Errorf("fsm: a graph without a node %q was said to have one", node)})
	}
	return r.number[i]
}

// takesSlot reports whether a node counts for max_parallel while it runs.
func (r *graphRun) takesSlot(n int32) bool {
	switch r.node(n).Kind.(type) {
	case *perdurev1.GraphNode_Signal, *perdurev1.GraphNode_Sleep:
		return false
	}
	return true
}

func (r *graphRun) sleeps(n int32) bool {
	_, ok := r.node(n).Kind.(*perdurev1.GraphNode_Sleep)
	return ok
}

func (r *graphRun) setOf(n int32) int {
	if r.takesSlot(n) {
		return 0
	}
	return 1
}

func (r *graphRun) mayStart(n int32, may bool) {
	set := &r.startable[r.setOf(n)]
	if set.has(n) == may {
		return
	}
	set.put(n, may)
	if r.undo != nil {
		r.undo.toggled = append(r.undo.toggled, n)
	}
}

// next returns the node to start: the first in graph order that max_parallel admits.
func (r *graphRun) next() (int32, bool) {
	free, hasFree := r.startable[1].min()
	if most := int(r.graph.MaxParallel); most == 0 || r.counts.slots < most {
		if n, ok := r.startable[0].min(); ok && (!hasFree || n < free) {
			return n, true
		}
	}
	return free, hasFree
}

// weigh adds a row to the counts, or takes it out.
func (r *graphRun) weigh(n int32, by int) {
	row := &r.rows[n]
	r.counts.held += by * (len(row.Failure) + len(row.Output) + len(row.Signal))
	if row.Status != reduction.StatusRunning {
		return
	}
	r.counts.active += by
	if r.sleeps(n) {
		return
	}
	r.counts.slots += by
	if row.RetryAt == 0 {
		r.counts.attempts += by
	}
}

// remember changes a row in memory.
func (r *graphRun) remember(n int32, row state.NodeRow) {
	if r.undo != nil {
		r.undo.rows = append(r.undo.rows, oldRow{n, r.rows[n]})
	}
	r.weigh(n, -1)
	r.rows[n] = row
	r.weigh(n, 1)
}

// putRow changes a row.
func (t *txn) putRow(ex *execution, n int32, row state.NodeRow) {
	ex.run.remember(n, row)
	t.put(keys.NodeOf(ex.ns, ex.h.ID, ex.h.Incarnation, uint32(n)), row.Encode())
}

// putGraph stores the graph and input of a new graph run.
func (t *txn) putGraph(ex *execution, b birth) {
	t.level = state.LevelGraphs
	t.put(keys.GraphOf(ex.ns, ex.h.ID, ex.h.Incarnation), b.stored)
	if b.former == 0 {
		t.firstRun(ex, b)
	}
	for _, s := range b.signals {
		t.deliver(ex, s)
	}
}

// graph returns the graph run of an execution, and reads it from its rows if it is not in memory.
func (t *txn) graph(ex *execution) *graphRun {
	if ex.run == nil {
		ex.run = t.readGraph(ex)
		ex.run.begin()
	}
	return ex.run
}

func (t *txn) readGraph(ex *execution) *graphRun {
	h := &ex.h
	key := keys.GraphOf(ex.ns, h.ID, h.Incarnation)
	b, ok := t.get(key)
	if !ok {
		state.PanicCorrupt("graph", key, errors.New("a graph run without a graph"))
	}
	g, _, input, err := state.DecodeGraph(b)
	if err != nil {
		state.PanicCorrupt("graph", key, err)
	}
	r, err := newGraphRun(g, input)
	if err != nil {
		state.PanicCorrupt("graph", key, err)
	}
	prefix := keys.NodePrefix(ex.ns, h.ID, h.Incarnation)
	t.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		n, err := state.NodeOfKey(key, prefix, len(g.Nodes))
		if err == nil {
			r.rows[n], err = state.DecodeRow(slices.Clone(value))
		}
		if err != nil {
			state.PanicCorrupt("node", key, err)
		}
		return true
	})
	for n := range r.rows {
		if row := &r.rows[n]; row.From != 0 {
			row.Output = t.keptOutput(ex, uint32(n), row.From)
		}
	}
	if err := r.reduce(h.Wave); err != nil {
		state.PanicCorrupt("nodes of a graph", prefix, err)
	}
	for n := range r.rows {
		row := &r.rows[n]
		switch {
		case !row.Observed(h.Wave):
			r.unobserved = append(r.unobserved, int32(n))
		default:
			row.Output = nil
		}
		if !row.Kept && uint64(row.Child) > h.Events {
			state.PanicCorrupt("node", keys.NodeOf(ex.ns, h.ID, h.Incarnation, uint32(n)),
				fmt.Errorf("its promise is number %d, and the journal has %d entries", row.Child-1, h.Events))
		}
		if row.Child != 0 && !row.Kept {
			for uint32(len(r.byChild)) < row.Child {
				r.byChild = append(r.byChild, -1)
			}
			r.byChild[row.Child-1] = int32(n)
		}
		r.weigh(int32(n), 1)
	}
	r.findStartable()
	return r
}

// newGraphRun is a run of a graph whose nodes are all pending, without its engine.
func newGraphRun(g *perdurev1.Graph, input []byte) (r *graphRun, err error) {
	r = &graphRun{graph: withoutEdges(g), input: input, rows: make([]state.NodeRow, len(g.Nodes))}
	if r.rel, err = state.RelationOf(g); err != nil {
		return nil, err
	}
	const decoded = 4 // times the size of the encoding, about
	r.fixed = decoded*proto.Size(r.graph) + len(input) + r.rel.Size()
	r.number = make([]int32, len(g.Nodes))
	for i, n := range g.Nodes {
		at, _ := r.rel.Number(reduction.NodeID(n.Id))
		r.number[at] = int32(i)
		r.rows[i].Status = reduction.StatusPending
	}
	return r, nil
}

// withoutEdges copies a graph without the lists of predecessors, which the relation has in less memory.
func withoutEdges(g *perdurev1.Graph) *perdurev1.Graph {
	out := &perdurev1.Graph{Name: g.Name, MaxParallel: g.MaxParallel, Wave: g.Wave, Nodes: make([]*perdurev1.GraphNode, len(g.Nodes))}
	nodes := make([]perdurev1.GraphNode, len(g.Nodes))
	for i, n := range g.Nodes {
		c := &nodes[i]
		c.Id, c.Inputs, c.Retry, c.TimeoutMs, c.OnFailure, c.Output, c.Kind = n.Id, n.Inputs, n.Retry, n.TimeoutMs, n.OnFailure, n.Output, n.Kind
		out.Nodes[i] = c
	}
	return out
}

// reduce makes the engine from the rows of a run that has reached the given wave.
func (r *graphRun) reduce(wave uint64) (err error) {
	r.engine, err = reduction.NewEngine(r.rel, state.ReductionState(r.graph, r.rows, wave))
	return err
}

func (r *graphRun) findStartable() {
	r.startable = [2]indexSet{newIndexSet(len(r.rows)), newIndexSet(len(r.rows))}
	for _, node := range r.engine.Startable() {
		r.mayStart(r.index(node), true)
	}
}

// firstRun makes the run of a new execution whose id had no run before. It is what readGraph reads.
func (t *txn) firstRun(ex *execution, b birth) {
	r, err := newGraphRun(b.graph, slices.Clone(b.input))
	t.mustNot(ex, err)
	r.engine = reduction.InitialEngine(r.rel)
	r.findStartable()
	r.alone = t.noneBelow(ex.ns, ex.h.ID)
	ex.run = r
	r.begin()
}

// keptOutput reads a node's output from the incarnation of the run in which the node completed.
func (t *txn) keptOutput(ex *execution, n uint32, incarnation uint64) []byte {
	key := keys.NodeOf(ex.ns, ex.h.ID, incarnation, n)
	b, ok := t.get(key)
	if !ok {
		state.PanicCorrupt("node", key, errors.New("a later incarnation of the run refers to its output, which is missing"))
	}
	row, err := state.DecodeRow(b)
	if err != nil {
		state.PanicCorrupt("node", key, err)
	}
	return row.Output
}

// latch is a signal that a run has received.
type latch struct {
	name    string
	payload []byte
}
