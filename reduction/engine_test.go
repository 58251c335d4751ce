package reduction

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// agree holds everything that an engine says against the state it should have.
func agree(t reporter, e *Engine, w *twin, s State) {
	t.Helper()
	if got := e.State(); !got.Equal(s) {
		t.Fatalf("engine has %v, want %v", got, s)
	}
	view := w.normalize(s)
	frontier := e.Frontier()
	if want := w.ready(view); !slices.Equal(frontier, want) {
		t.Fatalf("frontier %v, want %v", frontier, want)
	}
	if want := w.ready(s); !slices.Equal(e.Startable(), want) {
		t.Fatalf("startable %v, want %v", e.Startable(), want)
	}
	if bad := w.wrong(view, frontier); bad != [7]bool{} {
		t.Fatalf("%v is not well-formed: %v", view, bad)
	}
	step := w.classify(s)
	if got := e.Classify(); !reflect.DeepEqual(got, step) || e.Phase() != step.Phase() {
		t.Fatalf("engine says %v, %v, want %v", got, e.Phase(), step)
	}
	var count [StatusWaiting + 2]int
	waiting := map[string][]NodeID{}
	for _, id := range w.nodes {
		at := s.Statuses[id]
		count[at.Kind]++
		if at.Kind == StatusWaiting {
			waiting[at.Signal] = append(waiting[at.Signal], id)
		}
		out, ok := e.Output(id)
		if want, has := s.Outputs[id]; e.Status(id) != at || ok != has || string(out) != string(want) {
			t.Fatalf("%s: %v, %q, want %v, %q", id, e.Status(id), out, at, want)
		}
	}
	for k := range count {
		if got := e.Count(StatusKind(k)); got != count[k] {
			t.Fatalf("%d are %v, want %d", got, StatusKind(k), count[k])
		}
	}
	for _, signal := range []string{"go", "stop", "x", "never"} {
		if got := e.WaitingOn(signal); !slices.Equal(got, waiting[signal]) {
			t.Fatalf("%v wait for %s, want %v", got, signal, waiting[signal])
		}
	}
}

// checkDelta holds what a call says it changed against the states before and after it.
func checkDelta(t reporter, d Delta, w *twin, before, after State, facts ...NodeID) {
	t.Helper()
	changed := map[NodeID]bool{}
	for _, c := range d.Changed {
		if changed[c.Node] || c.From == c.To || c.From != before.Statuses[c.Node] || c.To != after.Statuses[c.Node] {
			t.Fatalf("change %v, from %v to %v", c, before.Statuses[c.Node], after.Statuses[c.Node])
		}
		changed[c.Node] = true
	}
	for id := range after.Statuses {
		if before.Statuses[id] != after.Statuses[id] && !changed[id] {
			t.Fatalf("%s changed from %v to %v untold", id, before.Statuses[id], after.Statuses[id])
		}
	}
	var ready []NodeID
	was := w.ready(before)
	for _, id := range w.ready(after) {
		if !slices.Contains(was, id) || slices.Contains(facts, id) {
			ready = append(ready, id)
		}
	}
	if !slices.Equal(d.Ready, ready) {
		t.Fatalf("ready %v, want %v", d.Ready, ready)
	}
	if want := w.classify(after).Phase(); d.Phase != want {
		t.Fatalf("phase %v, want %v", d.Phase, want)
	}
}

// badResult draws a result that is probably refused.
func (d dag) badResult() Result {
	r := Result{d.ids[d.rng.IntN(d.Len())], d.outcome()}
	switch d.rng.IntN(8) {
	case 0:
		r.Node = "unknown"
	case 1:
		r.Outcome = nil
	case 2:
		r.Outcome = &Succeeded{}
	case 3:
		r.Outcome = SuspendedOn{}
	}
	return r
}

// engineStep makes one random call of an engine and the same by the functions on State, and returns the state
// after it.
func engineStep(t *rapid.T, d dag, e *Engine, s State, tally map[string]int) State {
	var rs []Result
	after, facts := s, []NodeID(nil)
	var delta Delta
	var err, want error
	op := ""
	switch d.rng.IntN(10) {
	case 0, 1, 2:
		op = "start"
		id := NodeID("unknown")
		if frontier := e.Frontier(); len(frontier) > 0 && d.chance(80) {
			id = frontier[d.rng.IntN(len(frontier))]
		} else if d.chance(90) {
			id = d.ids[d.rng.IntN(d.Len())]
		}
		delta, err = e.Start(id)
		after, want = Start(d.Relation, s, id)
	case 3:
		op = "resolve"
		id, signal := d.ids[d.rng.IntN(d.Len())], d.signal()
		if waiting := e.WaitingOn(signal); len(waiting) > 0 {
			id = waiting[d.rng.IntN(len(waiting))]
		} else if d.chance(20) {
			id = "unknown"
		}
		payload := d.output()
		delta, err = e.Resolve(id, signal, payload)
		if at := s.Statuses[id]; at == Waiting(signal) {
			after = ResolveSignals(d.Relation, s, func(node NodeID, _ string) ([]byte, bool) { return payload, node == id })
			facts = []NodeID{id}
		} else {
			rule := RuleWaitsFor
			if !d.Has(id) {
				rule = RuleKnownNode
			}
			want = &FactError{Rule: rule, Node: id, Status: at}
		}
	default:
		op = "apply"
		rs = d.accepted(s)
		if d.chance(70) {
			rs = rs[:min(len(rs), 1)]
		}
		if d.chance(15) {
			rs = append(rs, d.badResult())
		}
		if len(rs) > 0 && d.chance(5) {
			rs = append(rs, rs[0])
		}
		rs = d.shuffled(rs)
		delta, err = e.Apply(rs...)
		after, _, want = Reduce(d.Relation, s, rs...)
		for _, r := range rs {
			facts = append(facts, r.Node)
		}
		// The twin has its own idea of what is refused.
		refused := ""
		for _, r := range rs {
			if refused = d.w.refusal(s, r); refused != "" {
				break
			}
		}
		if refused == "" && len(slices.Compact(slices.Sorted(slices.Values(facts)))) < len(rs) {
			refused = RuleOnce
		}
		got := ""
		if fault := new(FactError); errors.As(err, &fault) {
			got = fault.Rule
		}
		if got != refused {
			t.Fatalf("%v on %v: %v, want %q", rs, s, err, refused)
		}
	}
	if !reflect.DeepEqual(err, want) {
		t.Fatalf("%s %v: engine says %v, the definition %v", op, rs, err, want)
	}
	if err != nil {
		tally[err.(*FactError).Rule]++
		agree(t, e, d.w, s)
		return s
	}
	tally[op]++
	checkDelta(t, delta, d.w, s, after, facts...)
	agree(t, e, d.w, after)
	return after
}

// The engine, the functions on State and the twin agree on every fact of random runs, accepted or refused;
// and a transaction that is rolled back has never been.
func TestEngineAgreesWithItsTwins(t *testing.T) {
	tally := map[string]int{}
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		e, s := InitialEngine(d.Relation), Initial(d.Relation)
		if d.chance(50) {
			s = d.causalState(d.chance(50))
			e = must(NewEngine(d.Relation, s))
			s = d.w.close(s)
		}
		agree(t, e, d.w, s)
		steps := 25
		if d.Len() > 40 {
			steps = 6
		}
		for range steps {
			if !d.chance(25) {
				s = engineStep(t, d, e, s, tally)
				continue
			}
			e.Begin()
			inside := s
			for range 1 + d.rng.IntN(4) {
				inside = engineStep(t, d, e, inside, tally)
			}
			if d.chance(50) {
				e.Commit()
				s = inside
				tally["commit"]++
			} else {
				e.Rollback()
				tally["rollback"]++
			}
			agree(t, e, d.w, s)
		}
		if faults := e.Check(); faults != nil {
			t.Fatalf("%v", faults)
		}
		if again := must(NewEngine(d.Relation, e.State())); again.Size() != e.Size() {
			t.Fatalf("size %d, loaded again %d", e.Size(), again.Size())
		}
	})
	for _, key := range []string{"start", "resolve", "apply", "commit", "rollback", RuleKnownNode, RuleOutcome, RuleSignal, RuleOnce,
		RuleReady, RuleOpen, RuleWaiting, RuleStart, RuleWaitsFor} {
		n.saw(t, key, tally[key], 10)
	}
}

// The cost of a run is proportional to its graph. The cost of one fact is that of its node's edges and of the
// nodes that fail in consequence, for any size of the rest.
func TestFactsCostWhatTheyChange(t *testing.T) {
	facts := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		e := must(NewEngine(d.Relation, Initial(d.Relation)))
		start := e.work
		for e.Phase() == PhaseProgressing {
			frontier := e.Frontier()
			id := frontier[d.rng.IntN(len(frontier))]
			o := Outcome(Succeeded{})
			if d.chance(5) {
				o = NodeFailed{}
			}
			before := e.work
			delta, err := e.Apply(Result{id, o})
			if err != nil {
				t.Fatal(err)
			}
			facts++
			bound := 0
			for _, c := range delta.Changed {
				bound += 1 + 2*len(d.Successors(c.Node))
			}
			if cost := e.work - before; cost > bound {
				t.Fatalf("%v changed %v at a cost of %d", o, delta.Changed, cost)
			}
		}
		if cost := e.work - start; cost > 2*(d.Len()+d.EdgeCount()) {
			t.Fatalf("%d nodes and %d edges cost %d", d.Len(), d.EdgeCount(), cost)
		}
		if e.Count(StatusPending) != 0 || !e.Phase().Settled() {
			t.Fatalf("ended as %v", e.Classify())
		}
	})
	n.saw(t, "facts", facts, 2000)
}

// Consequences follow their fact, nearest first; results of one call are reported in its order.
func TestDeltaOrder(t *testing.T) {
	r := must(Lower(Overlays(Path("c", "z", "a"), EdgeOf("c", "b"), Path("d", "e"))))
	e := must(NewEngine(r, Initial(r)))
	delta, err := e.Apply(Result{"d", Succeeded{}}, Result{"c", NodeTimedOut{}})
	pending, failed := Status{Kind: StatusPending}, Status{Kind: StatusFailed}
	want := Delta{
		Changed: []Change{{"d", pending, Status{Kind: StatusCompleted}}, {"c", pending, failed}, {"b", pending, failed}, {"z", pending, failed}, {"a", pending, failed}},
		Ready:   []NodeID{"e"},
		Phase:   PhaseProgressing,
	}
	if err != nil || !reflect.DeepEqual(delta, want) {
		t.Errorf("%+v, %v", delta, err)
	}
}

// A reset node is to be started again, whether it was known to run or not, and whether it waited.
func TestResetIsReadyAgain(t *testing.T) {
	r := must(Lower(EdgeOf("a", "b")))
	for _, at := range []Status{{Kind: StatusPending}, {Kind: StatusRunning}, Waiting("go")} {
		s := Initial(r)
		s.Statuses["a"] = at
		e := must(NewEngine(r, s))
		delta, err := e.Apply(Result{"a", NodeShutdown{}})
		if err != nil || !slices.Equal(delta.Ready, []NodeID{"a"}) || len(delta.Changed) != min(1, int(at.Kind)-1) {
			t.Errorf("%v: %+v, %v", at, delta, err)
		}
		agree(t, e, newTwin(r.Nodes(), r.Edges()), Initial(r))
	}
}

func TestTransactions(t *testing.T) {
	r := must(Lower(EdgeOf("a", "b")))
	e := must(NewEngine(r, Initial(r)))
	e.Rollback() // without a transaction: nothing
	e.Commit()
	e.Begin()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a transaction inside a transaction")
			}
		}()
		e.Begin()
	}()
	if _, err := e.Apply(Result{"a", Succeeded{[]byte("out")}}); err != nil {
		t.Fatal(err)
	}
	size := e.Size()
	e.Rollback()
	e.Rollback()
	agree(t, e, newTwin(r.Nodes(), r.Edges()), Initial(r))
	if e.Size() != size-3 {
		t.Errorf("size %d with an output of 3 bytes, %d without", size, e.Size())
	}
	// A transaction takes back its own changes, and not those of one before it.
	e.Begin()
	if _, err := e.Apply(Result{"a", Succeeded{[]byte("out")}}); err != nil {
		t.Fatal(err)
	}
	e.Commit()
	kept := e.State()
	e.Begin()
	e.Rollback()
	agree(t, e, newTwin(r.Nodes(), r.Edges()), kept)
	if e.Relation() != r {
		t.Error("another relation")
	}
	if _, ok := e.Output("zz"); ok || e.Status("zz") != (Status{}) || e.Count(9) != 0 {
		t.Error("zz is known")
	}
}

// Stuck is out of an engine's reach, because it takes no state without a status for every node. Should its
// counts ever say otherwise, it says so instead of ending the run or waiting for ever.
func TestDamagedEngineIsStuck(t *testing.T) {
	r := must(Lower(EdgeOf("a", "b")))
	e := must(NewEngine(r, Initial(r)))
	e.ready.put(0, false)
	if stuck, ok := e.Classify().(Stuck); !ok || e.Phase() != PhaseStuck || len(stuck.Diagnosis) != 2 {
		t.Errorf("%v", e.Classify())
	}
	if faults := e.Check(); len(faults) != 1 || faults[0].Item != 6 || faults[0].Node != "a" {
		t.Errorf("%v", faults)
	}
}

// Each refusal in words, the same from the engine and from the functions on State.
func TestRefusedFacts(t *testing.T) {
	r := must(Lower(Overlay(Path("a", "b"), Vertices("done", "wait"))))
	s := Initial(r)
	s.Statuses["done"] = Status{Kind: StatusSkipped}
	s.Statuses["wait"] = Waiting("go")
	for _, tc := range []struct {
		results []Result
		want    string
	}{
		{[]Result{{"z", Skipped{}}}, `reduction: node_in_graph: node "z" is absent`},
		{[]Result{{"a", nil}}, `reduction: outcome_known: node "a" is Pending`},
		{[]Result{{"a", &NodeCancelled{}}}, `reduction: outcome_known: node "a" is Pending`},
		{[]Result{{"a", SuspendedOn{}}}, `reduction: signal_named: node "a" is Pending`},
		{[]Result{{"a", Skipped{}}, {"a", Skipped{}}}, `reduction: one_result_per_node: node "a" is Pending`},
		{[]Result{{"a", Skipped{}}, {"b", Skipped{}}}, `reduction: predecessors_satisfied: node "b" is Pending, and "a" before it is not done`},
		{[]Result{{"done", NodeCancelled{}}}, `reduction: node_not_terminal: node "done" is Skipped`},
		{[]Result{{"wait", Succeeded{}}}, `reduction: wait_ends_by_signal_reset_or_failure: node "wait" is Waiting("go")`},
		{[]Result{{"wait", Skipped{}}}, `reduction: wait_ends_by_signal_reset_or_failure: node "wait" is Waiting("go")`},
		{[]Result{{"wait", SuspendedOn{"x"}}}, `reduction: wait_ends_by_signal_reset_or_failure: node "wait" is Waiting("go")`},
	} {
		e := must(NewEngine(r, s))
		_, err := Accumulate(r, s, tc.results...)
		_, engineErr := e.Apply(tc.results...)
		if err == nil || err.Error() != tc.want || !reflect.DeepEqual(err, engineErr) {
			t.Errorf("%v: %v, engine %v", tc.results, err, engineErr)
		}
		if !e.State().Equal(s) {
			t.Errorf("%v: half applied", tc.results)
		}
	}
	// A node of the graph that a damaged state does not know.
	delete(s.Statuses, "a")
	if _, err := Accumulate(r, s, Result{"a", Skipped{}}); err == nil || err.Error() != `reduction: node_in_graph: node "a" is absent` {
		t.Error(err)
	}
	if _, err := Start(r, s, "a"); err == nil || err.Error() != `reduction: node_in_graph: node "a" is absent` {
		t.Error(err)
	}
}
