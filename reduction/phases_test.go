package reduction

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// takers are the nodes that may have a result in a state: the frontier of the normalised view, and what waits.
func takers(s State, w *twin) []NodeID {
	out := w.ready(w.normalize(s))
	for _, id := range w.nodes {
		if s.Statuses[id].Kind == StatusWaiting {
			out = append(out, id)
		}
	}
	return out
}

// accepted draws a frontier result set that every node of it may have.
func (d dag) accepted(s State) []Result {
	var out []Result
	for _, r := range d.results(takers(s, d.w)) {
		if d.w.refusal(s, r) == "" {
			out = append(out, r)
		}
	}
	return out
}

func failures(s State) map[NodeID]bool {
	out := map[NodeID]bool{}
	for id, at := range s.Statuses {
		if at.Kind == StatusFailed {
			out[id] = true
		}
	}
	return out
}

func subset(a, b map[NodeID]bool) bool {
	for id := range a {
		if !b[id] {
			return false
		}
	}
	return true
}

// Lemma 1: no two ready nodes are comparable in a state that accumulation leaves.
func TestFrontierIsAnAntichain(t *testing.T) {
	pairs := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		if s := d.anyState(true); !slices.Equal(Ready(d.Relation, s), d.w.ready(s)) {
			t.Fatalf("frontier %v, want %v", Ready(d.Relation, s), d.w.ready(s))
		}
		for _, s := range []State{d.causalState(true), d.causalState(false), Initial(d.Relation)} {
			s = Normalize(s)
			frontier := Ready(d.Relation, s)
			if !slices.Equal(frontier, d.w.ready(s)) {
				t.Fatalf("frontier %v, want %v", frontier, d.w.ready(s))
			}
			for i, a := range frontier {
				for _, b := range frontier[:i] {
					pairs++
					if d.w.reaches(a, b) || d.w.reaches(b, a) {
						t.Fatalf("%s and %s are comparable", a, b)
					}
				}
			}
		}
	})
	n.saw(t, "pairs", pairs, 10_000)
}

// The lemma needs the causal history: where a node is done before what comes before it, the induction of its
// proof has no step to the node before. Such a state is refused wherever one enters.
func TestFrontierNeedsCausalHistory(t *testing.T) {
	r := must(Lower(Path("a", "b", "c")))
	s := Initial(r)
	s.Statuses["b"] = Status{Kind: StatusSkipped}
	if frontier := Ready(r, s); !slices.Equal(frontier, []NodeID{"a", "c"}) || WellFormed(r, s, frontier) != nil {
		t.Errorf("frontier %v", frontier)
	}
	faults := Persisted(r, s)
	if len(faults) != 1 || faults[0].Rule != RuleCausal || faults[0].Node != "b" {
		t.Errorf("faults %v", faults)
	}
	if _, err := NewEngine(r, s); err == nil {
		t.Error("the engine takes it")
	}
	if _, _, err := Recover(r, s, nil); err == nil {
		t.Error("recovery takes it")
	}
}

// Lemma 2: results of two different nodes of a frontier may be accumulated in either order.
func TestAccumulationCommutes(t *testing.T) {
	pairs := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := d.causalState(true)
		results := d.accepted(s)
		one := func(s State, r Result) State {
			out, err := Accumulate(d.Relation, s, r)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		for i := range min(len(results), 12) {
			for j := range i {
				pairs++
				a, b := results[i], results[j]
				before := copyOf(s)
				ab, ba := one(one(s, a), b), one(one(s, b), a)
				if !ab.Equal(ba) || !ab.Equal(d.w.apply(s, a, b)) {
					t.Fatalf("%v then %v: %v, the other way round: %v", a, b, ab, ba)
				}
				if !s.Equal(before) {
					t.Fatalf("%v changed its argument", a)
				}
			}
		}
	})
	n.saw(t, "pairs", pairs, 1000)
}

// Proposition 2, Theorem 2: the reduction does not depend on the order of the results. Nor does it differ
// from the definition.
func TestPermutationInvariance(t *testing.T) {
	several := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := d.causalState(d.chance(50))
		results := d.accepted(s)
		if len(results) > 1 {
			several++
		}
		state, step, err := Reduce(d.Relation, s, results...)
		if err != nil {
			t.Fatal(err)
		}
		want := d.w.close(d.w.apply(s, results...))
		if !state.Equal(want) || !reflect.DeepEqual(step, d.w.classify(want)) {
			t.Fatalf("%v, %v, want %v, %v", state, step, want, d.w.classify(want))
		}
		for range 3 {
			again, sameStep, err := Reduce(d.Relation, s, d.shuffled(results)...)
			if err != nil || !again.Equal(state) || !reflect.DeepEqual(sameStep, step) {
				t.Fatalf("%v: %v, %v, %v, want %v, %v", results, again, sameStep, err, state, step)
			}
		}
	})
	n.saw(t, "sets of several results", several, 100)
}

// below is the order that closure is monotone in: t has the failures of s and is otherwise the same.
func below(s, t State) bool {
	for id, at := range s.Statuses {
		if after := t.Statuses[id]; after != at && after.Kind != StatusFailed {
			return false
		}
	}
	return len(s.Statuses) == len(t.Statuses)
}

// Close is a closure operator: extensive, monotone, idempotent; and it fails no more than it must.
func TestClosureLaws(t *testing.T) {
	derived, strict := 0, 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := d.anyState(d.chance(30))
		before := copyOf(s)
		closed := Close(d.Relation, s)
		if !s.Equal(before) {
			t.Fatal("Close changed its argument")
		}
		if !closed.Equal(d.w.close(s)) {
			t.Fatalf("Close(%v) = %v, want %v", s, closed, d.w.close(s))
		}
		if !below(s, closed) || !subset(failures(s), failures(closed)) {
			t.Fatalf("not extensive: %v closes to %v", s, closed)
		}
		if again := Close(d.Relation, closed); !again.Equal(closed) {
			t.Fatalf("not idempotent: %v closes to %v", closed, again)
		}
		for id := range failures(closed) {
			if at := s.Statuses[id].Kind; at != StatusFailed {
				derived++
				if at != StatusPending && at != StatusWaiting {
					t.Fatalf("%s was %v", id, at)
				}
			}
		}
		more := copyOf(s)
		for _, id := range d.Nodes() {
			if _, ok := s.Statuses[id]; ok && d.chance(10) {
				more.Statuses[id] = Status{Kind: StatusFailed}
			}
		}
		moreClosed := Close(d.Relation, more)
		if !below(closed, moreClosed) || !subset(failures(closed), failures(moreClosed)) {
			t.Fatalf("not monotone: %v is below %v, but %v is not below %v", s, more, closed, moreClosed)
		}
		if len(failures(moreClosed)) > len(failures(closed)) {
			strict++
		}
	})
	n.saw(t, "derived failures", derived, 200)
	n.saw(t, "times strictly more", strict, 200)
}

// Every state is classified as exactly one of the four, as the definition says; and no state with a status
// for every node is stuck.
func TestClassificationIsExhaustive(t *testing.T) {
	phases := map[Phase]int{}
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		for _, s := range []State{d.anyState(false), d.anyState(true), d.causalState(true), d.causalState(false)} {
			step := Classify(d.Relation, s)
			if want := d.w.classify(s); !reflect.DeepEqual(step, want) {
				t.Fatalf("%v: %#v, want %#v", s, step, want)
			}
			phases[step.Phase()]++
			switch step := step.(type) {
			case Progressing:
				if len(step.Frontier) == 0 {
					t.Fatal("progressing without a frontier")
				}
			case Settled:
				if step.Failed != (step.Phase() == PhaseFailed) || !step.Phase().Settled() {
					t.Fatalf("%v is %v", step, step.Phase())
				}
			case Suspended:
				if len(step.Waits) == 0 || step.Phase().Settled() {
					t.Fatal("suspended without a wait")
				}
			case Stuck:
				if len(s.Statuses) == d.Len() {
					t.Fatalf("stuck with a status for every node: %v", step.Diagnosis)
				}
			default:
				t.Fatalf("%T", step)
			}
		}
	})
	for p := PhaseProgressing; p <= PhaseStuck; p++ {
		n.saw(t, p.String(), phases[p], 10)
	}
}

// The case split itself, over all small numbers.
func TestPhaseOf(t *testing.T) {
	for ready := range 3 {
		for unsettled := range 3 {
			for waiting := range unsettled + 1 {
				for failed := range 3 {
					want := PhaseStuck
					if waiting > 0 {
						want = PhaseSuspended
					}
					if unsettled == 0 {
						want = PhaseCompleted
						if failed > 0 {
							want = PhaseFailed
						}
					}
					if ready > 0 {
						want = PhaseProgressing
					}
					if got := phaseOf(ready, unsettled, waiting, failed); got != want {
						t.Errorf("%d ready, %d unsettled, %d waiting, %d failed: %v, want %v", ready, unsettled, waiting, failed, got, want)
					}
				}
			}
		}
	}
}

// Sequential = batch: closing and classifying after every result ends where closing once does.
func TestSequentialIsBatch(t *testing.T) {
	results := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := Close(d.Relation, d.causalState(false))
		rs := d.accepted(s)
		results += len(rs)
		batch, batchStep, err := Reduce(d.Relation, s, rs...)
		if err != nil {
			t.Fatal(err)
		}
		step := Classify(d.Relation, s)
		for _, r := range rs {
			if s, step, err = Reduce(d.Relation, s, r); err != nil {
				t.Fatal(err)
			}
		}
		if !s.Equal(batch) || !reflect.DeepEqual(step, batchStep) {
			t.Fatalf("one by one %v, %v; at once %v, %v", s, step, batch, batchStep)
		}
	})
	n.saw(t, "results", results, 1000)
}

// A run of forward outcomes only moves every node up, or leaves it, at every step; with resets it does not.
func TestForwardOutcomesAreMonotone(t *testing.T) {
	steps, downs := 0, 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := d.causalState(true)
		for range 4 {
			for _, r := range d.accepted(s) {
				if s.Statuses[r.Node].Kind == StatusWaiting {
					continue // it ends outside the order, if not by its signal
				}
				after, _, err := Reduce(d.Relation, s, r)
				if err != nil {
					t.Fatal(err)
				}
				_, forward := r.Outcome.(Forward)
				for id, at := range s.Statuses {
					switch up := at.AtMost(after.Statuses[id]); {
					case up:
					case forward:
						t.Fatalf("%v took %s from %v to %v", r, id, at, after.Statuses[id])
					default:
						downs++
					}
				}
				steps++
				s = after
			}
		}
	})
	n.saw(t, "steps", steps, 2000)
	n.saw(t, "nodes taken down by resets", downs, 30)
}

var (
	allOutcomes = []Outcome{Succeeded{[]byte("v")}, Skipped{}, SuspendedOn{"go"}, NodeFailed{[]byte("why")}, NodeTimedOut{},
		NodeCancelled{}, NodeShutdown{}, NodeRunCancelled{}}
	allStatuses = []Status{{Kind: StatusPending}, {Kind: StatusRunning}, {Kind: StatusCompleted}, {Kind: StatusFailed},
		{Kind: StatusSkipped}, Waiting("go"), Waiting("stop")}
)

// The order of the forward fragment is the one that the paper draws, and a partial order.
func TestStatusOrder(t *testing.T) {
	for i, a := range allStatuses {
		for j, b := range allStatuses {
			want := i == j || i == 0 || i == 1 && j > 1
			if a.AtMost(b) != want {
				t.Errorf("%v at most %v: %v", a, b, !want)
			}
			if i != j && a.AtMost(b) && b.AtMost(a) {
				t.Errorf("%v and %v are below each other", a, b)
			}
			for _, c := range allStatuses {
				if a.AtMost(b) && b.AtMost(c) && !a.AtMost(c) {
					t.Errorf("%v, %v, %v: not transitive", a, b, c)
				}
			}
		}
	}
}

// Every outcome is in one class, and from every status that a worker's result finds, the class says which way
// it goes.
func TestOutcomeClasses(t *testing.T) {
	r := must(Lower(Vertex("a")))
	classes := ""
	for i, o := range allOutcomes {
		_, forward := o.(Forward)
		_, reset := o.(Reset)
		if forward == reset {
			t.Errorf("%v is forward %v, reset %v", o.Kind(), forward, reset)
		}
		if o.Kind() != OutcomeKind(i+1) || o.Kind().String() != reflect.TypeOf(o).Name() {
			t.Errorf("%T has kind %d, %v", o, o.Kind(), o.Kind())
		}
		for _, at := range allStatuses[:2] {
			s := State{map[NodeID]Status{"a": at}, nil}
			after, err := Accumulate(r, s, Result{"a", o})
			if err != nil {
				t.Fatal(err)
			}
			to := after.Statuses["a"]
			if to != o.Target() {
				t.Errorf("%v leads to %v, not %v", o.Kind(), to, o.Target())
			}
			if forward && (to == at || !at.AtMost(to)) {
				t.Errorf("%v: from %v to %v is not forward", o.Kind(), at, to)
			}
			if reset && to != allStatuses[0] {
				t.Errorf("%v: from %v to %v is no reset", o.Kind(), at, to)
			}
		}
		classes += map[bool]string{true: "f", false: "r"}[forward]
	}
	if classes != "fffffrrr" {
		t.Errorf("classes %s", classes)
	}
	for _, k := range []OutcomeKind{0, 9} {
		if k.String() != map[OutcomeKind]string{0: "OutcomeKind(0)", 9: "OutcomeKind(9)"}[k] {
			t.Error(k.String())
		}
	}
}

// A failure under OnFailureSkip is a skip, of which nothing follows; nothing else is different.
func TestPolicy(t *testing.T) {
	for _, o := range allOutcomes {
		want := o
		if o.Target().Kind == StatusFailed {
			want = Skipped{}
		}
		if got := OnFailureSkip.Translate(o); !reflect.DeepEqual(got, want) {
			t.Errorf("skip makes %v of %v", got, o)
		}
		if got := OnFailurePropagate.Translate(o); !reflect.DeepEqual(got, o) {
			t.Errorf("propagate makes %v of %v", got, o)
		}
	}
	for p, name := range map[Policy]string{OnFailurePropagate: "propagate", OnFailureSkip: "skip", 2: "Policy(2)"} {
		if p.String() != name || p.Valid() != (p < 2) {
			t.Errorf("%v is not %s", p, name)
		}
		if got, ok := ParsePolicy(name); ok != p.Valid() || ok && got != p {
			t.Errorf("%s parses as %v, %v", name, got, ok)
		}
	}
	r := must(Lower(Path("a", "b", "c")))
	for policy, want := range map[Policy]Step{OnFailureSkip: Progressing{[]NodeID{"b"}}, OnFailurePropagate: Settled{Failed: true}} {
		s, step, err := Reduce(r, Initial(r), Result{"a", policy.Translate(NodeTimedOut{})})
		if err != nil || !reflect.DeepEqual(step, want) || WellFormed(r, s, Ready(r, s)) != nil {
			t.Errorf("%v: %v, %v", policy, step, err)
		}
	}
}

// With skipping failures the reduction keeps its laws: it is the same reduction of other outcomes.
func TestPoliciesKeepTheLaws(t *testing.T) {
	softened := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		policy := map[NodeID]Policy{}
		for _, id := range d.Nodes() {
			policy[id] = Policy(d.rng.IntN(2))
		}
		s := d.causalState(true)
		rs := d.accepted(s)
		waits := maps.Clone(s.Statuses)
		for i, r := range rs {
			if rs[i].Outcome = policy[r.Node].Translate(r.Outcome); !reflect.DeepEqual(rs[i].Outcome, r.Outcome) {
				softened++
			}
		}
		// A waiting node takes no skip.
		rs = slices.DeleteFunc(rs, func(r Result) bool { return waits[r.Node].Kind == StatusWaiting })
		state, step, err := Reduce(d.Relation, s, d.shuffled(rs)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			if s, _, err = Reduce(d.Relation, s, r); err != nil {
				t.Fatal(err)
			}
		}
		normal := Normalize(state)
		if !s.Equal(state) || !reflect.DeepEqual(step, Classify(d.Relation, s)) || WellFormed(d.Relation, normal, Ready(d.Relation, normal)) != nil {
			t.Fatalf("%v and %v", s, state)
		}
	})
	n.saw(t, "softened", softened, 50)
}
