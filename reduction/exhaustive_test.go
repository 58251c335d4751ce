package reduction

import (
	"reflect"
	"slices"
	"testing"

	"perdure/internal/testkit"
)

// The graphs of up to 4 nodes are few enough to leave nothing to chance. Where the names matter (which node is
// listed first, and so walked first) all 573 labelled graphs are taken; where only the order of dependence
// does, the 76 whose edges go from lesser to greater names, among which every graph is up to its names.

// ordered calls f for the graphs whose edges all go from lesser to greater names: 1, 1, 2, 8, 64 of them.
func ordered(n int, f func(nodes []NodeID, edges []Edge)) {
	allDAGs(n, func(nodes []NodeID, edges []Edge) {
		if ascend(edges) {
			f(nodes, edges)
		}
	})
}

func ascend(edges []Edge) bool {
	return !slices.ContainsFunc(edges, func(e Edge) bool { return e.From > e.To })
}

// labelled is allDAGs, or of 4 nodes, without -long, ordered.
func labelled(n int, f func(nodes []NodeID, edges []Edge)) {
	if n == 4 && !testkit.Long() {
		ordered(n, f)
		return
	}
	allDAGs(n, f)
}

// stateOf gives every node the status of its number: the six kinds, then none at all.
func stateOf(nodes []NodeID, kinds []int) State {
	s := State{make(map[NodeID]Status, len(nodes)), map[NodeID][]byte{}}
	for i, id := range nodes {
		switch k := StatusKind(kinds[i] + 1); k {
		case StatusWaiting + 1:
		case StatusWaiting:
			s.Statuses[id] = Waiting("go")
		case StatusCompleted:
			s.Outputs[id] = nil
			fallthrough
		default:
			s.Statuses[id] = Status{Kind: k}
		}
	}
	return s
}

// Every state of every graph: readiness, closure, classification and Definition 1 are what they are defined
// to be, and frontiers are antichains.
func TestAllStatesOfAllSmallGraphs(t *testing.T) {
	cases, stuck := 0, 0
	for n := range 5 {
		kinds := 7
		if n == 4 {
			kinds = 6
		}
		labelled(n, func(nodes []NodeID, edges []Edge) {
			r, w := must(Declare(nodes, edges)), newTwin(nodes, edges)
			assignments(n, kinds, func(value []int) {
				cases++
				s := stateOf(nodes, value)
				frontier := Ready(r, s)
				if !slices.Equal(frontier, w.ready(s)) {
					t.Fatalf("%v, %v: frontier %v", edges, s, frontier)
				}
				closed := Close(r, s)
				if !closed.Equal(w.close(s)) || !below(s, closed) {
					t.Fatalf("%v, %v: closes to %v", edges, s, closed)
				}
				step := Classify(r, s)
				if !reflect.DeepEqual(step, w.classify(s)) {
					t.Fatalf("%v, %v: %#v", edges, s, step)
				}
				if step.Phase() == PhaseStuck {
					stuck++
					if len(s.Statuses) == n {
						t.Fatalf("%v, %v: stuck", edges, s)
					}
				}
				if n == 4 && !ascend(edges) {
					return // the rest does not depend on the names
				}
				bad := w.wrong(s, frontier)
				var found [7]bool
				for _, v := range WellFormed(r, s, frontier) {
					found[v.Item] = true
				}
				for _, v := range Persisted(r, s) {
					found[v.Item] = true
				}
				if found != bad {
					t.Fatalf("%v, %v: found %v, want %v", edges, s, found, bad)
				}
				if !bad[0] && !bad[1] {
					for i, a := range frontier {
						for _, b := range frontier[i+1:] {
							if w.reaches(a, b) || w.reaches(b, a) {
								t.Fatalf("%v, %v: %s and %s are comparable", edges, s, a, b)
							}
						}
					}
				}
			})
		})
	}
	t.Logf("%d states, %d stuck", cases, stuck)
}

// The closure laws for all pairs of comparable states of all graphs.
func TestAllClosures(t *testing.T) {
	const failed = int(StatusFailed) - 1
	pairs := 0
	for n := range 5 {
		ordered(n, func(nodes []NodeID, edges []Edge) {
			r := must(Declare(nodes, edges))
			place := func(kinds []int) int {
				p := 0
				for _, k := range kinds {
					p = 6*p + k
				}
				return p
			}
			// The closure of every state, by its place in the list of all.
			closure := map[int][]int{}
			assignments(n, 6, func(value []int) {
				closed := Close(r, stateOf(nodes, value))
				kinds := make([]int, n)
				for i, id := range nodes {
					kinds[i] = int(closed.Statuses[id].Kind) - 1
				}
				closure[place(value)] = kinds
			})
			assignments(n, 6, func(value []int) {
				of := closure[place(value)]
				if !slices.Equal(closure[place(of)], of) {
					t.Fatalf("%v: closure of %v is not idempotent", edges, value)
				}
				more := make([]int, n)
				assignments(n, 2, func(fail []int) { // every state above it
					for i := range more {
						more[i] = value[i]
						if fail[i] == 1 {
							more[i] = failed
						}
					}
					pairs++
					for i, k := range closure[place(more)] {
						if value[i] == failed && k != failed || k != of[i] && k != failed {
							t.Fatalf("%v: %v closes to %v, %v above it to %v", edges, value, of, more, closure[place(more)])
						}
					}
				})
			})
		})
	}
	t.Logf("%d pairs", pairs)
}

// Every fact of one node, in every state that accumulation can leave, of every graph: engine, functions on
// State and twin agree, the result is well-formed, and a rollback takes it back.
func TestAllFactsOfAllSmallGraphs(t *testing.T) {
	states, taken, refused := 0, 0, 0
	for n := range 5 {
		labels := labelled
		if n == 4 {
			labels = ordered
		}
		labels(n, func(nodes []NodeID, edges []Edge) {
			r, w := must(Declare(nodes, edges)), newTwin(nodes, edges)
			assignments(n, 6, func(value []int) {
				if !testkit.Long() && slices.Contains(value, int(StatusSkipped)-1) {
					return // as completed, without an output
				}
				s := stateOf(nodes, value)
				if w.wrong(s, nil)[0] || !w.close(s).Equal(s) {
					return
				}
				states++
				e := must(NewEngine(r, s))
				agree(t, e, w, s)
				for _, id := range nodes {
					for _, o := range allOutcomes {
						fact := Result{id, o}
						e.Begin()
						_, err := e.Apply(fact)
						if rule := w.refusal(s, fact); rule != "" {
							refused++
							if got, ok := err.(*FactError); !ok || got.Rule != rule {
								t.Fatalf("%v, %v, %v: %v, want %s", edges, s, fact, err, rule)
							}
							e.Rollback()
							continue
						}
						taken++
						after := w.close(w.apply(s, fact))
						batch, step, batchErr := Reduce(r, s, fact)
						if err != nil || batchErr != nil || !e.State().Equal(after) || !batch.Equal(after) || step.Phase() != e.Phase() {
							t.Fatalf("%v, %v, %v: engine %v, %v, batch %v, %v, want %v", edges, s, fact, e.State(), err, batch, batchErr, after)
						}
						if faults := e.Check(); faults != nil {
							t.Fatalf("%v, %v, %v: %v", edges, s, fact, faults)
						}
						e.Rollback()
					}
				}
				agree(t, e, w, s)
			})
		})
	}
	t.Logf("%d states, %d facts taken, %d refused", states, taken, refused)
}

// Every crash: in every state that a run can be in before its frontier is handed out, for every set of
// results of that frontier and every part of it that was persisted before the crash. Results commute, so the
// parts represent the prefixes of all orders.
func TestAllCrashesOfAllSmallGraphs(t *testing.T) {
	crashes := 0
	for n := range 5 {
		outcomes := []Outcome{Succeeded{[]byte("v")}, Skipped{}, SuspendedOn{"go"}, NodeTimedOut{}, NodeShutdown{}}
		kinds := []StatusKind{StatusPending, StatusCompleted, StatusFailed, StatusSkipped, StatusWaiting}
		if n == 4 { // what behaves like another is left out
			outcomes = []Outcome{Succeeded{nil}, SuspendedOn{"go"}, NodeFailed{nil}, NodeRunCancelled{}}
			kinds = kinds[:3]
		}
		ordered(n, func(nodes []NodeID, edges []Edge) {
			if n == 4 && !testkit.Long() && len(edges) != 4 {
				return
			}
			d := dag{Relation: must(Declare(nodes, edges)), w: newTwin(nodes, edges)}
			value := make([]int, n)
			assignments(n, len(kinds), func(choice []int) {
				for i, c := range choice {
					value[i] = int(kinds[c]) - 1
				}
				s := stateOf(nodes, value)
				if d.w.wrong(s, nil)[0] || !d.w.close(s).Equal(s) {
					return
				}
				frontier := d.w.ready(s)
				assignments(len(frontier), 1+2*len(outcomes), func(which []int) {
					var s1, s2 []Result
					for i, x := range which {
						switch {
						case x == 0: // no result
						case x%2 == 0:
							s1 = append(s1, Result{frontier[i], outcomes[(x-1)/2]})
						default:
							s2 = append(s2, Result{frontier[i], outcomes[(x-1)/2]})
						}
					}
					crashes++
					crash(t, d, s, s1, s2)
				})
			})
		})
	}
	t.Logf("%d crashes", crashes)
}
