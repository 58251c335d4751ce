package machine

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
)

// isOpen reports whether an open execution has its journal in its header.
func (w *world) isOpen(objectID string) bool {
	w.t.Helper()
	h, ok, err := state.ReadHeader(w.at(objectID).state, ns, objectID)
	if !ok || err != nil {
		w.t.Fatalf("%s: %v, %v", objectID, ok, err)
	}
	return len(h.Open) > 0
}

// later is the only task of "f" when an execution is so old that a large journal leaves its header. Its first lease has expired.
func later(w *world) *view {
	w.pass(state.InlineMS + 1)
	return w.only("w1", "f")
}

// A query answers the same about an open execution whose journal is in its header as about rows, at each moment of its life, also after
// refused commands, after restarts of the replica, and when the journal gets its rows later.
func TestOpenReadsAsRows(t *testing.T) {
	large := strings.Repeat("x", state.InlineBytes)
	long := strings.Repeat("x", 2000) // its header is encoded when it is read
	for _, story := range [][]string{
		{"step s -> " + long, "step t -> y", "wait s timeout=400", "signal", "step u -> " + long, "return x"},
		{"child g " + long + "; await 0", "child", "step s -> " + long, "cancel", "step t -> y", "cancelled ok"},
		{"sleep 50; await 0", "wake", "step s -> x", "random 8; time 5", "step t -> y", "return x"},
		{"wait s timeout=400", "signal", "step t -> y", "return x"},
		{"signal", "wait s timeout=400", "fail app:no"},
		{"child g x; await 0", "child", "return x"},
		{"step s -> x", "step s -> " + large, "step t -> y", "return x"},
		{"step s -> x", "later", "step s -> " + strings.Repeat("x", state.OpenBytes), "step t -> y", "return x"},
		{"step s -> x", "later", "step t -> y", "return x"},
		{"step s -> x", "cancel", "step t -> y", "cancelled ok"},
		{"step s -> x", "cleanup 500", "return x"},
		{"step s -> x", "terminate"},
		{"step s -> x", "continue in", "step s -> y", "return y"},
		{"step s -> x", "restart", "step s -> y", "return y"},
	} {
		var said, stored [2]string
		for i, level := range []uint64{state.LevelPromise, state.LevelOpen} {
			for _, reopen := range []bool{false, true} {
				w := newWorldAt(t, level, 1)
				v := w.begin("a", "f")
				var now, rows string
				for _, ops := range story {
					if reopen {
						w.open(w.parts[0])
					}
					switch ops {
					case "wake":
						w.pass(60)
						v = w.only("w1", "f")
					case "signal":
						w.do(signalCmd(w.request(), "a", "s", "hello"))
						if tasks := w.take("w1", 1, "f"); len(tasks) > 0 {
							v = tasks[0]
						}
					case "child":
						w.commit(w.only("w2", "g"), "return 1")
						v = w.only("w1", "f")
					case "later":
						v = later(w)
					case "cancel":
						w.do(cancelCmd("a", "why", 1000))
					case "terminate":
						w.do(terminateCmd("a", "enough"))
					case "restart":
						w.do(restartCmd(w.request(), "a", fromStart, 0))
						w.pass(60)
						v = w.only("w1", "f")
					case "continue in":
						w.commit(v, ops)
						w.pass(60)
						v = w.only("w1", "f")
					default:
						if w.describe("a").GetCancelReason() == "" { // which admits late results
							w.commitRefused(v, "step s -> "+large+"; await 77", perdurev1.Reason_REASON_RULE_BROKEN, "")
						}
						if reopen {
							w.open(w.parts[0])
						}
						w.commit(v, ops)
					}
					w.sound(w.parts[0])
					rows += ops + fmt.Sprintln(w.familiesOf("a"))
					h, _, _ := state.ReadHeader(w.parts[0].state, ns, "a")
					if n := w.familiesOf("a")["journal"]; n > 0 && len(h.Open) > 0 {
						t.Errorf("%v at level %d: it has %d rows and its header has the journal", story, level, n)
					}
					now += ops + "\n" + strings.Join(showEntries(w.journal("a")), "\n") + "\n" + w.describe("a").String() + "\n"
					for from := range 3 {
						q := &commandv1.Query{Id: "a", Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{FromSeq: uint64(from), Limit: 1}}}
						now += w.query(q).String() + "\n"
					}
				}
				if reopen && now != said[i] {
					t.Errorf("%v at level %d: a replica that starts again says\n%s\nnot\n%s", story, level, now, said[i])
				}
				if reopen && rows != stored[i] {
					t.Errorf("%v at level %d: a replica that starts again has the rows\n%s\nnot\n%s", story, level, rows, stored[i])
				}
				said[i], stored[i] = now, rows
			}
		}
		if said[0] != said[1] {
			t.Errorf("%v: in rows\n%s\nin the header\n%s", story, said[0], said[1])
		}
	}
}

// The bounds of a journal in the header of an open execution.
func TestOpenBounds(t *testing.T) {
	for _, c := range []struct {
		what string
		run  func(w *world, v *view)
		want bool
	}{
		{"begun", func(*world, *view) {}, true},
		{"the most entries", func(w *world, v *view) { w.commit(v, strings.Repeat("time 5; ", state.InlineEvents-2)+"time 5") }, true},
		{"too many entries", func(w *world, v *view) { w.commit(v, strings.Repeat("time 5; ", state.InlineEvents-1)+"time 5") }, false},
		{"a large result", func(w *world, v *view) { w.commit(v, "step s -> "+strings.Repeat("x", state.InlineBytes-200)) }, true},
		{"too large a result", func(w *world, v *view) { w.commit(v, "step s -> "+strings.Repeat("x", state.InlineBytes)) }, false},
		{"old", func(w *world, _ *view) { w.commit(later(w), "step s -> x") }, true},
		{"old and large", func(w *world, _ *view) {
			w.commit(later(w), "step s -> "+strings.Repeat("x", state.OpenBytes))
		}, false},
		{"large, and becomes old", func(w *world, v *view) {
			w.commit(v, "step s -> "+strings.Repeat("x", state.OpenBytes))
			later(w)
		}, true},
	} {
		w := newWorldAt(t, state.LevelOpen, 1)
		c.run(w, w.begin("a", "f"))
		if got := w.isOpen("a"); got != c.want {
			t.Errorf("%s: in the header %t", c.what, got)
		}
		if n := w.familiesOf("a")["journal"]; (n == 0) != c.want {
			t.Errorf("%s: %d rows", c.what, n)
		}
		w.sound(w.parts[0])
	}
}

// An execution of a lower level keeps its rows when the level rises, and one of this level that sleeps long is inline when it ends.
func TestOpenBeginsWithTheJournal(t *testing.T) {
	w := newWorldAt(t, state.LevelPromise, 1)
	v := w.begin("a", "f")
	w.raise(w.parts[0], state.LevelOpen)
	w.commit(v, "step s -> x")
	if w.isOpen("a") || w.familiesOf("a")["journal"] == 0 {
		t.Errorf("begun below the level: it has the rows %v", w.familiesOf("a"))
	}
	w.commit(v, "return x")
	u := w.begin("b", "f")
	w.commit(u, fmt.Sprintf("sleep %d; await 0", 10*state.InlineMS))
	w.pass(10*state.InlineMS + 1)
	w.commit(w.only("w1", "f"), "return x")
	if !w.isInline("b") {
		t.Errorf("after a long sleep it has the rows %v", w.familiesOf("b"))
	}
	w.sound(w.parts[0])
}

// The audit names a journal in a header that has rows as well, an entry of it in another one's place, and one that is no entry.
func TestRulesFindOpen(t *testing.T) {
	for what, c := range map[string]struct {
		rule   string
		detail string
		change func(p *part, h *state.Header)
	}{
		"rows too": {audit.RuleHeader, "and there are rows of it", func(p *part, h *state.Header) {
			p.state.Apply([]state.Write{{Key: keys.JournalEntry(ns, "a", h.Incarnation, 0), Value: h.OpenEntries()[0]}})
		}},
		"exchanged": {audit.RuleMisplaced, "", func(_ *part, h *state.Header) {
			e := h.OpenEntries()
			var all []byte
			for _, entry := range append([][]byte{e[1], e[0]}, e[2:]...) {
				all = state.AppendInline(all, entry)
			}
			h.Open = all
		}},
		"nonsense": {audit.RuleDamaged, "", func(_ *part, h *state.Header) {
			var all []byte
			for _, entry := range h.OpenEntries() {
				all = state.AppendInline(all, append([]byte{0xee}, entry...))
			}
			h.Open = all
		}},
		"another status": {audit.RuleHeader, "", func(_ *part, h *state.Header) { h.Status = journal.StatusBlocked }},
	} {
		w := newWorldAt(t, state.LevelOpen, 1)
		w.commit(w.begin("a", "f"), "step s -> x")
		p := w.parts[0]
		h, _ := state.Must{From: p.state}.Header(ns, "a")
		c.change(p, &h)
		p.state.Apply([]state.Write{{Key: keys.Of(keys.Header, ns, "a"), Value: h.Encode()}})
		report, err := audit.Run(p.state, 0, state.Partition{Number: 0, Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, v := range report.Violations {
			found = found || v.Rule == c.rule && v.ID == "a" && strings.Contains(v.Detail, c.detail)
		}
		if !found {
			t.Errorf("%s: found %+v", what, report.Violations)
		}
	}
}
