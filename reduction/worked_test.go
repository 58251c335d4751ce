package reduction

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of the worked examples")

// story runs a graph, by the functions on State and in parallel by an engine, and writes down every state.
type story struct {
	t *testing.T
	r *Relation
	s State
	e *Engine
	b strings.Builder
}

func newStory(t *testing.T, title string, g Graph) *story {
	st := &story{t: t, r: must(Lower(g))}
	st.s = Initial(st.r)
	st.e = must(NewEngine(st.r, st.s))
	fmt.Fprintf(&st.b, "%s\n\nedges\n", title)
	for _, e := range st.r.Edges() {
		fmt.Fprintf(&st.b, "    %s → %s\n", e.From, e.To)
	}
	st.say("initially")
	st.show()
	st.classify(Classify(st.r, st.s))
	return st
}

func (st *story) say(format string, args ...any) { fmt.Fprintf(&st.b, "\n"+format+"\n", args...) }

func (st *story) show() {
	for _, id := range st.r.Nodes() {
		out := ""
		if v, ok := st.s.Outputs[id]; ok {
			out = fmt.Sprintf(" with output %q", v)
		}
		fmt.Fprintf(&st.b, "    %-6s %v%s\n", id, st.s.Statuses[id], out)
	}
}

func (st *story) classify(step Step) {
	st.t.Helper()
	text := fmt.Sprint(step.Phase())
	switch step := step.(type) {
	case Progressing:
		text += fmt.Sprint(" ", step.Frontier)
	case Settled:
		text = "Settled " + text
	}
	fmt.Fprintf(&st.b, "    classify: %s\n", text)
	if got := st.e.Classify(); !reflect.DeepEqual(got, step) {
		st.t.Errorf("the engine classifies %v, not %v", got, step)
	}
}

func (st *story) start(ids ...NodeID) {
	for _, id := range ids {
		st.say("%s is handed to a worker", id)
		st.s = must(Start(st.r, st.s, id))
		must(st.e.Start(id))
	}
}

// results accumulates, closes and classifies, showing each phase.
func (st *story) results(rs ...Result) {
	st.t.Helper()
	for _, r := range rs {
		st.say("%s: %v %q", r.Node, r.Outcome.Kind(), r.Outcome)
	}
	accumulated := must(Accumulate(st.r, st.s, rs...))
	st.s = accumulated
	st.b.WriteString("    accumulate\n")
	st.show()
	st.s = Close(st.r, accumulated)
	if st.s.Equal(accumulated) {
		st.b.WriteString("    close: nothing to do\n")
	} else {
		st.b.WriteString("    close\n")
		st.show()
	}
	must(st.e.Apply(rs...))
	st.classify(Classify(st.r, st.s))
}

// crashed forgets the engine and recovers from what was persisted.
func (st *story) crashed(persisted State) {
	st.t.Helper()
	st.say("crash; persisted was")
	st.s = must(DecodeState(AppendState(nil, persisted)))
	st.show()
	s, step, err := Recover(st.r, st.s, nil)
	if err != nil {
		st.t.Fatal(err)
	}
	st.s, st.e = s, must(NewEngine(st.r, s))
	st.say("recovered")
	st.show()
	st.classify(step)
	var frontier []NodeID
	if p, ok := step.(Progressing); ok {
		frontier = p.Frontier
	}
	if faults := WellFormed(st.r, s, frontier); faults != nil {
		st.t.Error(faults)
	}
}

func (st *story) golden(name string) {
	st.t.Helper()
	path := filepath.Join("testdata", name)
	got := st.b.String()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			st.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		st.t.Fatal(err)
	}
	if got != string(want) {
		st.t.Errorf("%s differs; got\n%s", path, got)
	}
}

func diamond() Graph {
	return Layered([]NodeID{"alpha"}, []NodeID{"beta", "gamma"}, []NodeID{"delta"})
}

// Staged reduction, 3.9.1.
func TestWorkedExampleDiamond(t *testing.T) {
	for name, second := range map[string][]Result{
		"beta first":  {{"beta", Succeeded{[]byte("b")}}, {"gamma", Succeeded{[]byte("c")}}},
		"gamma first": {{"gamma", Succeeded{[]byte("c")}}, {"beta", Succeeded{[]byte("b")}}},
	} {
		st := newStory(t, "Normal completion on a diamond, "+name, diamond())
		st.results(Result{"alpha", Succeeded{[]byte("a")}})
		st.results(second...)
		st.results(Result{"delta", Succeeded{[]byte("d")}})
		st.golden("diamond_" + strings.ReplaceAll(name, " ", "_") + ".txt")
	}
}

// Staged reduction, 3.9.2, and its second variant, in which the failure itself was persisted.
func TestWorkedExampleCrash(t *testing.T) {
	before := func(title string) *story {
		st := newStory(t, "Mid-frontier crash and recovery, "+title, diamond())
		st.results(Result{"alpha", Succeeded{[]byte("a")}})
		st.start("beta", "gamma")
		return st
	}
	st := before("while beta runs")
	st.crashed(must(Accumulate(st.r, st.s, Result{"gamma", Succeeded{[]byte("c")}})))
	st.results(Result{"beta", NodeFailed{[]byte("no")}})
	st.golden("crash_running.txt")

	st = before("before a failure is observed")
	st.crashed(must(Accumulate(st.r, st.s, Result{"gamma", Succeeded{[]byte("c")}}, Result{"beta", NodeFailed{[]byte("no")}})))
	st.golden("crash_failed.txt")
}
