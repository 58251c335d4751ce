package reduction

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// mustBeWellFormed holds a recovered state against Definition 1, by the package and by the twin.
func mustBeWellFormed(t reporter, r *Relation, w *twin, s State, step Step) {
	t.Helper()
	var frontier []NodeID
	if p, ok := step.(Progressing); ok {
		frontier = p.Frontier
	}
	if faults := WellFormed(r, s, frontier); faults != nil {
		t.Fatalf("recovered %v with frontier %v: %v", s, frontier, faults)
	}
	if bad := w.wrong(s, frontier); bad != [7]bool{} {
		t.Fatalf("recovered %v with frontier %v: items %v", s, frontier, bad)
	}
	if want := w.classify(s); !reflect.DeepEqual(step, want) {
		t.Fatalf("recovered %v, step %v, want %v", s, step, want)
	}
}

// crash checks Proposition 1 and Theorem 3 for one crash: of the results S1 and S2 of the frontier of the
// closed state s0, whose nodes had all been started, only those of S1 were persisted. It reports how many
// failures recovery derived.
func crash(t reporter, d dag, s0 State, s1, s2 []Result) int {
	t.Helper()
	started := copyOf(s0)
	for _, r := range append(slices.Clone(s1), s2...) {
		if started.Statuses[r.Node].Kind == StatusPending {
			started.Statuses[r.Node] = Status{Kind: StatusRunning}
		}
	}
	persisted := d.w.apply(started, s1...)
	before := copyOf(persisted)
	recovered, step, err := Recover(d.Relation, persisted, nil)
	if err != nil {
		t.Fatalf("persisted %v: %v", persisted, err)
	}
	if !persisted.Equal(before) {
		t.Fatalf("Recover changed its argument")
	}
	if want := d.w.close(d.w.normalize(persisted)); !recovered.Equal(want) {
		t.Fatalf("recovered %v, want %v", recovered, want)
	}
	mustBeWellFormed(t, d.Relation, d.w, recovered, step)

	// A closure of the failures before the crash makes no difference, nor does a second crash.
	for _, s := range []State{d.w.close(persisted), recovered} {
		again, sameStep, err := Recover(d.Relation, s, nil)
		if err != nil || !again.Equal(recovered) || !reflect.DeepEqual(step, sameStep) {
			t.Fatalf("recovered from %v: %v, %v, %v", s, again, sameStep, err)
		}
	}

	// The resume frontier takes the rest, derived failures stay, and the run is where it would have been.
	after, step, err := Reduce(d.Relation, recovered, s2...)
	if err != nil {
		t.Fatalf("replaying %v on %v: %v", s2, recovered, err)
	}
	if !subset(failures(recovered), failures(after)) {
		t.Fatalf("replaying %v took back a failure of %v", s2, recovered)
	}
	through := d.w.normalize(d.w.close(d.w.apply(started, append(slices.Clone(s1), s2...)...)))
	if !after.Equal(through) || !reflect.DeepEqual(step, d.w.classify(through)) {
		t.Fatalf("after crash and replay %v, %v; without a crash %v, %v", after, step, through, d.w.classify(through))
	}
	return len(failures(recovered)) - len(failures(persisted))
}

// Proposition 1, Theorem 3: from every prefix of every frontier's results, on the way of a run from its
// beginning to its end.
func TestRecoverFromEveryPrefix(t *testing.T) {
	prefixes, derived := 0, 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := Initial(d.Relation)
		if d.chance(20) {
			s = Normalize(d.causalState(true))
		}
		for range 6 {
			results := d.accepted(s)
			for k := range len(results) + 1 {
				if k > 1 && k < len(results)-1 && d.Len() > 40 && !d.chance(2) {
					continue // a wide frontier of a large graph: some of its prefixes
				}
				prefixes++
				derived += crash(t, d, s, results[:k], results[k:])
			}
			next, step, err := Reduce(d.Relation, s, results...)
			if err != nil {
				t.Fatal(err)
			}
			if s = next; step.Phase().Settled() {
				return
			}
		}
	})
	n.saw(t, "prefixes", prefixes, 4000)
	n.saw(t, "derived failures", derived, 500)
}

// Delivered signals complete who waits for them, before anything else is decided.
func TestRecoverResolvesSignals(t *testing.T) {
	resolved := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := d.causalState(d.chance(50))
		payloads := map[string][]byte{}
		for _, signal := range []string{"go", "stop"} {
			if d.chance(60) {
				payloads[signal] = d.output()
			}
		}
		want := copyOf(s)
		for id, at := range s.Statuses {
			if payload, ok := payloads[at.Signal]; ok && at.Kind == StatusWaiting {
				resolved++
				want.Statuses[id] = Status{Kind: StatusCompleted}
				want.Outputs[id] = payload
			}
		}
		before := copyOf(s)
		if got := ResolveSignals(d.Relation, s, BySignal(payloads)); !got.Equal(want) || !s.Equal(before) {
			t.Fatalf("resolved %v, want %v", got, want)
		}
		recovered, step, err := Recover(d.Relation, s, BySignal(payloads))
		if err != nil || !recovered.Equal(d.w.close(d.w.normalize(want))) {
			t.Fatalf("recovered %v, %v, want %v", recovered, err, want)
		}
		mustBeWellFormed(t, d.Relation, d.w, recovered, step)
	})
	n.saw(t, "resolved", resolved, 80)
}

// Deliveries are handed out in ascending order of the nodes, so each can be given once.
func TestDeliveriesAreAskedInOrder(t *testing.T) {
	r := must(Lower(Vertices("c", "a", "b", "d")))
	s := Initial(r)
	for _, id := range []NodeID{"c", "b", "a"} {
		s.Statuses[id] = Waiting("go")
	}
	queue := []string{"first", "second"}
	s = ResolveSignals(r, s, func(node NodeID, signal string) ([]byte, bool) {
		if signal != "go" || len(queue) == 0 {
			return nil, false
		}
		next := queue[0]
		queue = queue[1:]
		return []byte(next), true
	})
	if string(s.Outputs["a"]) != "first" || string(s.Outputs["b"]) != "second" || s.Statuses["c"] != Waiting("go") || s.Statuses["d"].Kind != StatusPending {
		t.Errorf("%v %q", s.Statuses, s.Outputs)
	}
}

// damage makes a state wrong in some way, or its frontier.
func (d dag) damage(s State, frontier []NodeID) (State, []NodeID) {
	id := d.ids[d.rng.IntN(d.Len())]
	switch d.rng.IntN(12) {
	case 0:
		delete(s.Statuses, id)
	case 1:
		s.Statuses["foreign"] = d.status(StatusKind(1 + d.rng.IntN(6)))
	case 2:
		s.Outputs["foreign"] = nil
	case 3:
		s.Outputs[id] = nil
	case 4:
		delete(s.Outputs, id)
	case 5:
		s.Statuses[id] = Status{Kind: StatusRunning}
	case 6:
		s.Statuses[id] = Status{Kind: StatusFailed}
	case 7:
		s.Statuses[id] = Status{Kind: []StatusKind{0, StatusWaiting, 7}[d.rng.IntN(3)]}
	case 8:
		s.Statuses[id] = Status{StatusSkipped, "stray"}
	case 9:
		frontier = append(frontier, id)
	case 10:
		frontier = append(frontier, "foreign")
	case 11:
		if len(frontier) > 0 {
			frontier = frontier[1:]
		}
	}
	return s, frontier
}

// WellFormed and Persisted find an item broken exactly if its definition says so, and each names the nodes.
func TestDamageIsFound(t *testing.T) {
	items := [7]int{}
	sound := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		s := d.w.normalize(d.causalState(true))
		frontier := d.w.ready(s)
		for range d.rng.IntN(4) {
			s, frontier = d.damage(s, frontier)
		}
		faults := WellFormed(d.Relation, s, frontier)
		var found [7]bool
		for i, v := range faults {
			found[v.Item] = true
			if i > 0 && v.Item < faults[i-1].Item {
				t.Fatalf("not in the order of the items: %v", faults)
			}
			if v.Status != s.Statuses[v.Node] || v.Rule == "" || v.Detail == "" {
				t.Fatalf("%#v", v)
			}
		}
		want := d.w.wrong(s, frontier)
		causal := want[0]
		if want[0] = false; found != want {
			t.Fatalf("%v, frontier %v: found %v, want %v", s, frontier, faults, want)
		}

		var first [4]bool
		for _, v := range Persisted(d.Relation, s) {
			first[v.Item] = true
		}
		if first != [4]bool{causal, want[1], want[2], want[3]} {
			t.Fatalf("%v: Persisted found %v, want %v, %v", s, Persisted(d.Relation, s), want, causal)
		}
		_, _, err := Recover(d.Relation, s, nil)
		_, engineErr := NewEngine(d.Relation, s)
		if first != [4]bool{} {
			var refused *StateError
			if !errors.As(err, &refused) || !reflect.DeepEqual(refused.Violations, Persisted(d.Relation, s)) || engineErr == nil {
				t.Fatalf("%v: %v, %v", s, err, engineErr)
			}
		} else if err != nil || engineErr != nil {
			t.Fatalf("%v: %v, %v", s, err, engineErr)
		}
		if len(faults) == 0 && !causal {
			sound++
		}
		want[0] = causal
		for i, bad := range want {
			if bad {
				items[i]++
			}
		}
	})
	n.saw(t, "sound", sound, 100)
	for i, broken := range items {
		n.saw(t, []string{"causal history", "item 1", "item 2", "item 3", "item 4", "item 5", "item 6"}[i], broken, 15)
	}
}

// Each violation in words.
func TestViolations(t *testing.T) {
	r := must(Lower(Overlay(Path("a", "b", "c"), Vertex("d"))))
	sound := func() (State, []NodeID) {
		s := Initial(r)
		s.Statuses["a"], s.Outputs["a"] = Status{Kind: StatusCompleted}, nil
		return s, []NodeID{"b", "d"}
	}
	at := func(id NodeID, k StatusKind) func(*State, *[]NodeID) {
		return func(s *State, _ *[]NodeID) { s.Statuses[id] = Status{Kind: k} }
	}
	for _, tc := range []struct {
		damage func(s *State, frontier *[]NodeID)
		want   []string
	}{
		{func(*State, *[]NodeID) {}, nil},
		{func(_ *State, f *[]NodeID) { slices.Reverse(*f) }, nil},
		{func(s *State, _ *[]NodeID) { delete(s.Statuses, "c") },
			[]string{`reduction: every_node_has_a_status (Definition 1, item 1): node "c", absent: a node without a valid status`}},
		{func(s *State, _ *[]NodeID) { s.Statuses["c"] = Waiting("") },
			[]string{`item 1): node "c", Waiting(""): a node without a valid status`}},
		{func(s *State, _ *[]NodeID) { s.Statuses["z"] = Waiting("go") },
			[]string{`item 1): node "z", Waiting("go"): a status without a node`}},
		{func(s *State, _ *[]NodeID) { s.Outputs["z"] = nil },
			[]string{`outputs_belong_to_nodes (Definition 1, item 2): node "z", absent: an output without a node`,
				`output_iff_completed (Definition 1, item 3): node "z", absent: an output, but not completed`}},
		{func(s *State, _ *[]NodeID) { s.Outputs["b"] = nil },
			[]string{`item 3): node "b", Pending: an output, but not completed`}},
		{func(s *State, _ *[]NodeID) { delete(s.Outputs, "a") },
			[]string{`item 3): node "a", Completed: completed without an output`}},
		{at("b", StatusRunning),
			[]string{`no_node_is_running (Definition 1, item 4): node "b", Running: the state is not normalised`,
				`frontier_is_what_is_ready (Definition 1, item 6): node "b", Running: in the frontier without being ready`}},
		{at("b", StatusFailed),
			[]string{`nothing_open_after_a_failure (Definition 1, item 5): node "c", Pending: it comes after "b", which has failed`,
				`item 6): node "b", Failed: in the frontier without being ready`}},
		{func(_ *State, f *[]NodeID) { *f = []NodeID{"b"} },
			[]string{`item 6): node "d", Pending: ready, but not in the frontier`}},
		{func(_ *State, f *[]NodeID) { *f = []NodeID{"b", "d", "c", "d", "z"} },
			[]string{`node "c", Pending: in the frontier without being ready`, `node "d", Pending: listed twice in the frontier`,
				`node "z", absent: in the frontier without being a node`}},
		{at("c", StatusSkipped), nil},
	} {
		s, frontier := sound()
		tc.damage(&s, &frontier)
		faults := WellFormed(r, s, frontier)
		ok := len(faults) == len(tc.want)
		for i := range min(len(faults), len(tc.want)) {
			ok = ok && strings.Contains(faults[i].Error(), tc.want[i])
		}
		if !ok {
			t.Errorf("found %v\nwant %v", faults, tc.want)
		}
	}
	s, _ := sound()
	s.Statuses["c"] = Status{Kind: StatusSkipped}
	s.Statuses["d"] = Status{}
	_, _, err := Recover(r, s, nil)
	if want := `reduction: every_node_has_a_status (Definition 1, item 1): node "d", absent: a node without a valid status (and 1 more)`; fmt.Sprint(err) != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	s.Statuses["d"] = Status{Kind: StatusFailed}
	_, _, err = Recover(r, s, nil)
	if want := `reduction: nothing_happens_before_its_time: node "c", Skipped: before it, "b" is Pending`; fmt.Sprint(err) != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// A stuck run says which nodes and why.
func TestStuckDiagnosis(t *testing.T) {
	r := must(Lower(Overlay(Path("a", "b", "c"), EdgeOf("d", "c"))))
	s := Initial(r)
	delete(s.Statuses, "a")
	s.Statuses["d"] = Status{Kind: StatusSkipped}
	step := Classify(r, s)
	stuck, ok := step.(Stuck)
	if want := `"a" is absent; "b" is Pending after "a" which is absent; "c" is Pending after "b" which is Pending`; !ok || stuck.Diagnosis.String() != want {
		t.Errorf("%v", step)
	}
	s.Statuses["d"] = Status{Kind: StatusKind(9)}
	if got, want := Classify(r, s).(Stuck).Diagnosis.String(), `"c" is Pending after "b" which is Pending, "d" which is StatusKind(9); "d" is StatusKind(9)`; !strings.HasSuffix(got, want) {
		t.Errorf("%s", got)
	}
}

// A graph without nodes is done before it begins, and the zero State is its state.
func TestNothingToDo(t *testing.T) {
	r := must(Lower(Empty()))
	s, step, err := Recover(r, State{}, BySignal(nil))
	if err != nil || step != (Settled{}) || !s.Equal(Initial(r)) || s.Statuses == nil || s.Outputs == nil {
		t.Errorf("%v, %v, %v", s, step, err)
	}
	if e := must(NewEngine(r, State{})); e.Phase() != PhaseCompleted || len(e.Frontier()) != 0 {
		t.Errorf("%v, %v", e.Phase(), e.Frontier())
	}
}
