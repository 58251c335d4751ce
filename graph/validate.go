package graph

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/near"
)

// Validate checks whether a graph can be run. It returns nil or an *Error that lists the problems. Its work
// grows with nodes and edges, and for inputs that come from further away than the node before, with the edges
// once for each 64 different nodes they come from.
func Validate(g *perdurev1.Graph) error {
	var e Error
	v := &validator{}
	v.yield = func(p func() Problem) {
		if len(e.Problems) == MaxProblems {
			e.More++
			return
		}
		e.Problems = append(e.Problems, p())
	}
	v.graph(g, 0)
	if len(e.Problems) == 0 {
		return nil
	}
	return &e
}

// Problems yields all problems that Validate looks for, without a bound: for tools that choose among them.
func Problems(g *perdurev1.Graph) []Problem {
	var all []Problem
	v := &validator{yield: func(p func() Problem) { all = append(all, p()) }}
	v.graph(g, 0)
	return all
}

// A validator finds the problems of one graph.
type validator struct {
	path  FieldPath // where the walk is
	yield func(func() Problem)
	hints int // guesses made; each costs a walk over the nodes
}

// report records a problem at a path below the present one. It builds the text only for problems that are
// listed.
func (v *validator) report(rule string, below FieldPath, format string, args ...any) {
	v.yield(func() Problem {
		return Problem{Path: slices.Concat(v.path, below), Rule: rule, Message: fmt.Sprintf(format, args...)}
	})
}

// hint guesses which node was meant, for as many problems as an Error describes.
func (v *validator) hint(l *level, id string) string {
	if v.hints++; v.hints > MaxProblems {
		return ""
	}
	if l.known == nil {
		for _, n := range l.nodes {
			l.known = append(l.known, n.GetId())
		}
	}
	return near.Hint(id, l.known)
}

func (v *validator) enter(s Step) { v.path = append(v.path, s) }
func (v *validator) leave()       { v.path = v.path[:len(v.path)-1] }

// field and item make a path of one step.
func field(name string) FieldPath           { return FieldPath{{Field: name, Index: -1}} }
func item(name string, index int) FieldPath { return FieldPath{{Field: name, Index: index}} }

// graph checks one graph, depth levels below the one that was submitted.
func (v *validator) graph(g *perdurev1.Graph, depth int) {
	if g.GetName() != "" {
		v.name("graph", g.GetName(), "name")
	}
	nodes := g.GetNodes()
	switch {
	case depth > MaxDepth:
		v.report(RuleDepth, nil, "subgraphs nest at most %d deep", MaxDepth)
		return
	case len(nodes) == 0:
		v.report(RuleNoNodes, field("nodes"), "a graph needs at least one node")
		return
	case len(nodes) > MaxNodes:
		v.report(RuleNodes, field("nodes"), "%d nodes, at most %d are allowed", len(nodes), MaxNodes)
		return
	}
	edges := 0
	for _, n := range nodes {
		edges += len(n.GetAfter())
	}
	if edges > MaxEdges {
		v.report(RuleEdges, field("nodes"), "%d edges, at most %d are allowed", edges, MaxEdges)
		return
	}

	l := v.ids(nodes)
	v.edges(l, edges)
	for i, n := range nodes {
		v.enter(Step{Field: "nodes", Index: i, Node: n.GetId()})
		v.settings(n)
		v.kind(n, depth)
		v.inputs(l, i)
		v.leave()
	}
	v.distant(l)
}

// A level is one graph while it is checked. Nodes are known by their position.
type level struct {
	nodes []*perdurev1.GraphNode
	index map[string]int32 // the first node of each id
	next  int32            // the node after the one that find has found last
	seen  []int32          // seen[p] == n+1: p was met as a predecessor of n
	known []string         // the ids in order, for guesses; made when first needed

	start  []int32 // predecessors of n: pred[start[n]:start[n+1]]
	pred   []int32
	order  []int32 // topological; nil if there is a cycle
	wanted []query // inputs from further away
}

func (l *level) before(n int32) []int32 { return l.pred[l.start[n]:l.start[n+1]] }

// find is index[id]. Predecessors are mostly listed in the order of the nodes, so it tries the node after the last one first, which
// costs less than a look into the map; unless an id is missing or given twice.
func (l *level) find(id string) (n int32, ok bool) {
	if n = l.next; int(n) < len(l.nodes) && l.nodes[n].GetId() == id && len(l.index) == len(l.nodes) {
		l.next++
		return n, true
	}
	if n, ok = l.index[id]; ok {
		l.next = n + 1
	}
	return n, ok
}

func (v *validator) ids(nodes []*perdurev1.GraphNode) *level {
	l := &level{nodes: nodes, index: make(map[string]int32, len(nodes)), seen: make([]int32, len(nodes))}
	for i, n := range nodes {
		id := n.GetId()
		at := func() FieldPath { return FieldPath{{Field: "nodes", Index: i, Node: id}, {Field: "id", Index: -1}} }
		if why := badID(id); why != "" {
			v.report(RuleID, at(), "%s", why)
			if id == "" {
				continue
			}
		}
		if first, taken := l.index[id]; taken {
			v.report(RuleTwice, at(), "%s is the id of nodes[%d] already", quoted(id), first)
			continue
		}
		l.index[id] = int32(i)
	}
	return l
}

// edges checks and collects the edges; later checks omit the invalid ones.
func (v *validator) edges(l *level, count int) {
	l.start = make([]int32, 1, len(l.nodes)+1)
	l.pred = make([]int32, 0, count)
	for i, n := range l.nodes {
		at := func(j int) FieldPath {
			return append(FieldPath{{Field: "nodes", Index: i, Node: n.GetId()}}, item("after", j)...)
		}
		for j, id := range n.GetAfter() {
			p, known := l.find(id)
			switch {
			case !known:
				v.report(RuleAfter, at(j), "there is no node %s%s", quoted(id), v.hint(l, id))
			case id == n.GetId():
				v.report(RuleAfterSelf, at(j), "a node cannot come after itself")
			case l.seen[p] == int32(i)+1:
				v.report(RuleAfterOnce, at(j), "%s is named twice", quoted(id))
			default:
				l.seen[p] = int32(i) + 1
				l.pred = append(l.pred, p)
			}
		}
		l.start = append(l.start, int32(len(l.pred)))
	}
	if cycle := l.sort(); cycle != nil {
		v.cycle(l, cycle)
	}
}

// maxCycleShown bounds the nodes of a cycle that are written out.
const maxCycleShown = 12

// cycle reports a cycle at the edge that leads back to its first node.
func (v *validator) cycle(l *level, cycle []int32) {
	first, last := cycle[0], cycle[len(cycle)-1]
	names := make([]string, 0, maxCycleShown+2)
	for i, n := range cycle {
		if i == maxCycleShown {
			names = append(names, fmt.Sprintf("… %d more …", len(cycle)-i))
			break
		}
		names = append(names, l.nodes[n].GetId())
	}
	names = append(names, l.nodes[first].GetId())
	path := FieldPath{{Field: "nodes", Index: int(first), Node: l.nodes[first].GetId()}}
	for j, id := range l.nodes[first].GetAfter() {
		if id == l.nodes[last].GetId() {
			path = append(path, item("after", j)...)
			break
		}
	}
	v.report(RuleCycle, path, "cycle: %s", strings.Join(names, " → "))
}

// settings checks what every kind of node has.
func (v *validator) settings(n *perdurev1.GraphNode) {
	v.duration("timeout_ms", n.GetTimeoutMs(), 0)
	v.known("on_failure", perdurev1.OnFailure_name, int32(n.GetOnFailure()))
	v.known("output", perdurev1.ValueType_name, int32(n.GetOutput()))
	if _, sub := n.GetKind().(*perdurev1.GraphNode_Subgraph); sub {
		switch n.GetOutput() {
		case perdurev1.ValueType_VALUE_TYPE_ANY, perdurev1.ValueType_VALUE_TYPE_OBJECT:
		default:
			v.report(RuleType, field("output"), "the output of a subgraph is an object, not %s", TypeName(n.GetOutput()))
		}
	}
	if n.GetRetry() != nil {
		v.enter(Step{Field: "retry", Index: -1})
		v.retry(n.GetRetry())
		v.leave()
	}
}

func (v *validator) retry(r *perdurev1.NodeRetry) {
	if r.GetAttempts() > MaxAttempts {
		v.report(RuleRetry, field("attempts"), "%d attempts, at most %d are allowed", r.GetAttempts(), MaxAttempts)
	}
	v.duration("initial_ms", r.GetInitialMs(), 0)
	v.duration("max_ms", r.GetMaxMs(), 0)
	if f := r.GetFactorPercent(); f != 0 && (f < MinFactorPercent || f > MaxFactorPercent) {
		v.report(RuleRetry, field("factor_percent"), "a factor of %d percent, %d to %d are allowed",
			f, MinFactorPercent, MaxFactorPercent)
	}
}

// duration checks a number of milliseconds.
func (v *validator) duration(name string, ms, least int64) {
	switch {
	case ms < least && least > 0:
		v.report(RuleDuration, field(name), "%d ms, at least %d is needed", ms, least)
	case ms < least:
		v.report(RuleDuration, field(name), "%d ms is negative", ms)
	case ms > MaxDurationMs:
		v.report(RuleDuration, field(name), "%d ms is more than ten years", ms)
	}
}

// known checks an enum's value.
func (v *validator) known(name string, names map[int32]string, value int32) {
	if _, ok := names[value]; !ok {
		v.report(RuleEnum, field(name), "the value %d is not known", value)
	}
}

// name checks the name of a function, a signal, an input or a graph, which is in the given field.
func (v *validator) name(what, s, in string) {
	switch {
	case s == "":
		v.report(RuleName, field(in), "the %s has no name", what)
	case len(s) > MaxNameBytes:
		v.report(RuleName, field(in), "the name has %d bytes, at most %d are allowed", len(s), MaxNameBytes)
	case !utf8.ValidString(s):
		v.report(RuleName, field(in), "the name is not valid UTF-8")
	case hasControl(s):
		v.report(RuleName, field(in), "the name %s has a control character", quoted(s))
	}
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// badID says what is wrong with a node's id, or "".
func badID(id string) string {
	if id == "" {
		return "the node has no id"
	}
	if len(id) > MaxIDBytes {
		return fmt.Sprintf("the id has %d bytes, at most %d are allowed", len(id), MaxIDBytes)
	}
	for _, r := range id {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' {
			continue
		}
		return fmt.Sprintf("the id %s has %q; letters, digits, '_', '-' and '.' are allowed", quoted(id), r)
	}
	return ""
}
