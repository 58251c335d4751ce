package machine

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
)

// warned counts the warnings about an execution's long journal.
func (w *world) warned(objectID string) (n int) {
	for _, p := range w.parts {
		for _, r := range p.results {
			for _, ref := range r.Effects.Long {
				if ref == (state.Ref{Namespace: ns, ID: objectID}) {
					n++
				}
			}
		}
	}
	return n
}

// Each incarnation whose journal becomes long is warned about once: by its worker's entries or by those of others. A
// restart keeps fewer entries than make a journal long.
func TestLongJournalIsWarnedAbout(t *testing.T) {
	const long = 30
	if state.MaxKeptEvents >= id.JournalWarnEvents {
		t.Error("a restart may keep a long journal, about which there is no warning")
	}
	w := newWorld(t, 1, func(c *Config) { c.LongJournal = long })
	v := w.begin("a", "f")
	other := w.begin("b", "f")
	expect := func(what string, want int) {
		t.Helper()
		if got := w.warned("a"); got != want {
			t.Fatalf("%s: %d warnings, not %d", what, got, want)
		}
	}
	for len(w.journal("a")) < long-2 {
		w.do(signalCmd(w.request(), "a", "s", "x"))
		w.commit(v, "step s -> x")
	}
	expect("a short journal", 0)
	w.commit(v, "step s -> x")
	expect("the worker's entries make it long", 1)
	w.open(w.parts[0])
	w.do(signalCmd(w.request(), "a", "s", "x"))
	w.commit(v, "step s -> x")
	expect("a replica that starts again, and more entries", 1)
	w.commit(v, "continue")
	v = w.only("w2", "f")
	if n := len(w.journal("a")); n >= long {
		t.Fatalf("the new incarnation has %d entries", n)
	}
	for len(w.journal("a")) < long-1 {
		w.do(signalCmd(w.request(), "a", "t", "x"))
	}
	expect("a short journal again", 1)
	w.do(signalCmd(w.request(), "a", "t", "x"))
	expect("signals make it long", 2)
	w.commit(v, "return x")
	w.commit(other, "return x")
	if got := w.describe("a").Status; got != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || w.warned("b") != 0 {
		t.Errorf("a is %v, b has %d warnings", got, w.warned("b"))
	}
}
