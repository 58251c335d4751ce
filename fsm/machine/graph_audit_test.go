package machine

import (
	"bytes"
	"strings"
	"testing"

	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/testkit"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// graphState is a state with graph runs in every condition:
//
//	run      in its second incarnation: kept, completed, running, waiting, pausing and sleeping nodes, a signal that came
//	wave     has results that are not observed
//	many     continues at the next tick
//	failed, done, stopped   have ended
func graphState(t *testing.T) (*world, *part) {
	w := newWorld(t, 1)
	w.unaudited = true
	g := graphOf("a; b after a in a=a; k skip; s signal s after k; p attempts=3 after k; n sleep 1000 after k; g graph 0 after k; x after b; h http http://h/ after k",
		graphOf("i; j after i"))
	w.submit("run", g, `"in"`)
	w.end("run", "a", `return "A"`)
	w.end("run", "k", "fail app:skipped")
	w.do(terminateCmd("run", "again"))
	w.do(retryCmd(w.request(), "run"))
	w.do(signalCmd(nil, "run", "other", `"latched"`))
	w.end("run", "p", "fail app:first")
	w.end("run", "b", "return 1")
	wave := graphOf("a; b; c after a")
	wave.Wave = true
	w.submit("wave", wave, "")
	w.end("wave", "a", "return 1")
	var many bytes.Buffer
	for range startsAtOnce + 2 {
		many.WriteString("n" + string(rune('A'+many.Len()%26)) + string(rune('a'+many.Len()/26%26)) + string(rune('a'+many.Len()/676%26)) + "; ")
	}
	w.submit("failed", graphOf("a; b after a"), "")
	w.end("failed", "a", "fail app:no")
	w.submit("done", graphOf("a"), "")
	w.end("done", "a", "return 1")
	w.submit("stopped", graphOf("a"), "")
	w.do(terminateCmd("stopped", ""))
	w.submit("many", graphOf(many.String()), "")
	p := w.parts[0]
	w.unaudited = false
	w.audit(p)
	return w, p
}

// No key of a graph run can be lost, and none be cut, without being noticed.
func TestAuditMissesNoKeyOfAGraph(t *testing.T) {
	_, p := graphState(t)
	looked := 0
	_ = p.state.Scan([]byte{byte(keys.Graph)}, []byte{byte(keys.Latch) + 1}, func(key, value []byte) bool {
		key, value = bytes.Clone(key), bytes.Clone(value)
		if bytes.Contains(key, []byte("many")) && looked%testkit.Choose(320, 320, 40) != 0 {
			looked++
			return true
		}
		looked++
		for _, c := range []struct {
			what   string
			writes []state.Write
		}{
			{"lost", []state.Write{{Key: key}}},
			{"doubled", []state.Write{{Key: append(bytes.Clone(key), 'x'), Value: value}}},
			{"cut", []state.Write{{Key: key, Value: value[:len(value)-1]}}},
			{"longer", []state.Write{{Key: key, Value: append(bytes.Clone(value), 1)}}},
		} {
			below := p.state.Clone()
			below.Apply(c.writes)
			if found := audited(t, below, p.cfg); len(found) == 0 && !ofFormerIncarnation(p, key) {
				t.Errorf("%s key %q was %s, and nothing is found", keys.NameOf(key), key, c.what)
			}
		}
		return true
	})
	t.Logf("%d keys", looked)
}

// ofFormerIncarnation: of an earlier incarnation only the parts that a later one keeps are needed.
func ofFormerIncarnation(p *part, key []byte) bool {
	return bytes.Contains(key, append([]byte("run\x00\x01"), keys.AppendUint64(nil, 1)...)) || keys.Family(key[0]) == keys.Latch && bytes.Contains(key, keys.AppendUint64(nil, 1))
}

// Every violation of a graph run that is planted is found.
func TestAuditFindsPlantsInGraphs(t *testing.T) {
	w, p := graphState(t)
	run := w.graphStatus("run").Incarnation
	row := func(s *plot, n uint32, change func(*state.NodeRow)) {
		key := keys.NodeOf(ns, "run", run, n)
		r, err := state.DecodeRow(s.get(key))
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		s.put(key, r.Encode())
	}
	for _, c := range []struct {
		name, rule, id string
		plant          func(s *plot)
	}{
		{"another signal than the graph's", audit.RuleGraph, "run", func(s *plot) { row(s, 3, func(r *state.NodeRow) { r.Signal = "other" }) }},
		{"another output", audit.RuleGraph, "run", func(s *plot) { row(s, 1, func(r *state.NodeRow) { r.Output = []byte("2") }) }},
		{"no output", audit.RuleGraph, "run", func(s *plot) { row(s, 1, func(r *state.NodeRow) { r.Output = nil }) }},
		{"an output of what was skipped", audit.RuleGraph, "run", func(s *plot) { row(s, 2, func(r *state.NodeRow) { r.Output = []byte("1") }) }},
		{"an output of what runs", audit.RuleGraph, "run", func(s *plot) { row(s, 6, func(r *state.NodeRow) { r.Output = []byte("1") }) }},
		{"an output besides the retained one", audit.RuleGraph, "run", func(s *plot) { row(s, 0, func(r *state.NodeRow) { r.Output = []byte("1") }) }},
		{"no output of what is not observed", audit.RuleGraph, "wave", func(s *plot) {
			key := keys.NodeOf(ns, "wave", s.readHeader("wave").Incarnation, 0)
			r, _ := state.DecodeRow(s.get(key))
			r.Output = nil
			s.put(key, r.Encode())
		}},
		{"another result in the journal", audit.RuleGraph, "done", func(s *plot) {
			s.event("done", 3, journal.InvokeCompleted{Promise: "done:0", Attempt: 1, Result: recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("2")})})
		}},
		{"another value of a node's promise", audit.RuleGraph, "done", func(s *plot) {
			s.promise("done:0", func(p *recovery.Promise) { p.Value = recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("2")}) })
		}},
		{"another end than the outputs make", audit.RuleGraph, "done", func(s *plot) {
			s.event("done", s.readHeader("done").Events-1, journal.ExecutionCompleted{Result: []byte("{}")})
		}},
		{"another failure", audit.RuleGraph, "failed", func(s *plot) {
			key := keys.NodeOf(ns, "failed", s.readHeader("failed").Incarnation, 0)
			r, _ := state.DecodeRow(s.get(key))
			r.Failure = state.EncodeFailure("app", "else")
			s.put(key, r.Encode())
		}},
		{"another failure of the last attempt", audit.RuleGraph, "run", func(s *plot) { row(s, 4, func(r *state.NodeRow) { r.Failure = state.EncodeFailure("app", "else") }) }},
		{"began at another time", audit.RuleGraph, "run", func(s *plot) { row(s, 6, func(r *state.NodeRow) { r.Started++ }) }},
		{"ended at another time", audit.RuleGraph, "run", func(s *plot) { row(s, 1, func(r *state.NodeRow) { r.Ended++ }) }},
		{"an attempt of another input", audit.RuleInput, w.nodeOutcome("run", "h").State.AttemptId, func(s *plot) {
			id := w.nodeOutcome("run", "h").State.AttemptId
			s.event(id, 0, journal.ExecutionStarted{Input: []byte("else"), Parent: "run"})
		}},
		{"another graph than in the incarnation before", audit.RuleGraph, "run", func(s *plot) {
			s.put(keys.GraphOf(ns, "run", s.readHeader("run").Former), s.get(keys.GraphOf(ns, "done", s.readHeader("done").Incarnation)))
		}},
		{"graphs in a state that knows none", audit.RuleGraph, "run", func(s *plot) { s.put(keys.MetaKey(state.MetaFeature), keys.AppendUint64(nil, state.LevelFirst)) }},
		{"a result without an attempt", audit.RuleGraph, "run", func(s *plot) {
			row(s, 3, func(r *state.NodeRow) { r.Status, r.Signal, r.Output = reduction.StatusCompleted, "", []byte("1") })
		}},
		{"a node that runs before its time", audit.RuleGraph, "run", func(s *plot) { row(s, 1, func(r *state.NodeRow) { r.Status = reduction.StatusRunning }) }},
		{"another attempt", audit.RuleGraph, "run", func(s *plot) { row(s, 6, func(r *state.NodeRow) { r.Attempt++ }) }},
		{"another promise", audit.RuleGraph, "run", func(s *plot) { row(s, 6, func(r *state.NodeRow) { r.Child++ }) }},
		{"a promise beyond the journal", audit.RuleGraph, "run", func(s *plot) { row(s, 6, func(r *state.NodeRow) { r.Child = 99 }) }},
		{"another pause", audit.RuleGraph, "run", func(s *plot) { row(s, 4, func(r *state.NodeRow) { r.RetryAt++ }) }},
		{"no pause", audit.RuleGraph, "run", func(s *plot) { row(s, 4, func(r *state.NodeRow) { r.RetryAt = 0 }) }},
		{"a wave in a graph without", audit.RuleGraph, "run", func(s *plot) { row(s, 1, func(r *state.NodeRow) { r.Wave = 1 }) }},
		{"retained from nowhere", audit.RuleGraph, "run", func(s *plot) { row(s, 0, func(r *state.NodeRow) { r.From = 7777 }) }},
		{"running and retained", audit.RuleGraph, "run", func(s *plot) { row(s, 6, func(r *state.NodeRow) { r.Kept = true }) }},
		{"failed by propagation after it was started", audit.RuleGraph, "run", func(s *plot) {
			row(s, 6, func(r *state.NodeRow) { r.Status, r.Propagated = reduction.StatusFailed, true })
		}},
		{"a failure that is not closed", audit.RuleGraph, "failed", func(s *plot) {
			s.drop(keys.NodeOf(ns, "failed", s.readHeader("failed").Incarnation, 1))
		}},
		{"an output that was observed too early", audit.RuleGraph, "wave", func(s *plot) {
			s.header("wave", func(h *state.Header) { h.Wave = 5 })
			s.drop(keys.NodeOf(ns, "wave", s.readHeader("wave").Incarnation, 1))
		}},
		{"another input", audit.RuleGraph, "run", func(s *plot) {
			g, _, _, _ := state.DecodeGraph(s.get(keys.GraphOf(ns, "run", run)))
			other, _ := state.EncodeGraph(g, []byte("other"))
			s.put(keys.GraphOf(ns, "run", run), other)
		}},
		{"no node to continue with", audit.RuleGraph, "many", func(s *plot) { s.drop(keys.DeadlineOf(keys.DeadlineGraph, s.readHeader("many").GraphAt, ns, "many")) }},
		{"a run that goes on for no reason", audit.RuleDeadline, "run", func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineGraph, 5, ns, "run"), []byte{}) }},
		{"an attempt for no reason", audit.RuleDeadline, "run:1", func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineGraph, 5, ns, "run:1"), []byte{}) }},
		{"another payload", audit.RuleGraph, "run", func(s *plot) { s.put(keys.LatchOf(ns, "run", run, "other"), []byte("2")) }},
		{"a signal without a sender", audit.RuleGraph, "run", func(s *plot) { s.put(keys.LatchOf(ns, "run", run, "never"), []byte("2")) }},
		{"a promise of nobody's", audit.RuleHeader, "run", func(s *plot) { s.promise("run", func(p *recovery.Promise) { p.Tags = nil }) }},
		{"a node whose promise is settled", audit.RuleGraph, "run", func(s *plot) {
			s.promise("run:1", func(p *recovery.Promise) { p.State, p.SettledAt = recovery.PromiseResolved, p.CreatedAt })
		}},
		{"an attempt that is gone", audit.RuleGraph, "run", func(s *plot) {
			s.drop(keys.Of(keys.Header, ns, w.nodeOutcome("run", "h").State.AttemptId))
		}},
		{"a graph run with a task", audit.RuleOrphanExecution, "run", func(s *plot) {
			s.put(keys.Of(keys.Task, ns, "run"), recovery.AppendTask(nil, recovery.Task{ID: "run", Incarnation: run, State: recovery.TaskSuspended, Target: "$graph"}))
		}},
		{"an earlier incarnation that has not ended", audit.RuleOrphanJournal, "run", func(s *plot) {
			former := s.readHeader("run").Former
			var last []byte
			_ = s.state.Scan(keys.JournalPrefix(ns, "run", former), keys.After(keys.JournalPrefix(ns, "run", former)), func(key, _ []byte) bool {
				last = bytes.Clone(key)
				return true
			})
			s.drop(last)
		}},
		{"an earlier incarnation without a journal", audit.RuleGraph, "run", func(s *plot) { s.drop(keys.JournalEntry(ns, "run", s.readHeader("run").Former, 0)) }},
		{"a node of a run that is none", audit.RuleGraph, "done:0.0", func(s *plot) {
			s.put(keys.NodeOf(ns, "done:0.0", 1, 0), (&state.NodeRow{Status: reduction.StatusPending}).Encode())
		}},
		{"an operation of nobody", audit.RuleGraph, "done", func(s *plot) {
			s.drop(keys.NodeOf(ns, "done", s.readHeader("done").Incarnation, 0))
		}},
		{"an end that is none", audit.RuleEnding, "stopped", func(s *plot) {
			h := s.readHeader("stopped")
			s.event("stopped", h.Events-1, journal.ExecutionCancelled{Reason: "else"})
		}},
	} {
		s := &plot{t: t, state: p.state.Clone(), cfg: p.cfg}
		c.plant(s)
		found := audited(t, s.state, p.cfg)
		if !breaks(found, c.rule, c.id) {
			t.Errorf("%s: %s of %s is not found among\n%s", c.name, c.rule, c.id, lines(found))
		}
	}
}

// Definition 1 speaks of what is stored: an output that is missing, and one of a node without a result, are named
// by its third item.
func TestAuditNamesDefinition1(t *testing.T) {
	w, p := graphState(t)
	for what, change := range map[string]func(r *state.NodeRow){
		"completed without an output":  func(r *state.NodeRow) { r.Output = nil },
		"an output, but not completed": func(r *state.NodeRow) { r.Status, r.Output = reduction.StatusSkipped, []byte("1") },
	} {
		s := &plot{t: t, state: p.state.Clone(), cfg: p.cfg}
		key := keys.NodeOf(ns, "run", w.graphStatus("run").Incarnation, 1)
		r, err := state.DecodeRow(s.get(key))
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		s.put(key, r.Encode())
		if found := lines(audited(t, s.state, p.cfg)); !strings.Contains(found, reduction.RuleOutputOwner+" (Definition 1, item 3)") || !strings.Contains(found, what) {
			t.Errorf("%s is not named by item 3:\n%s", what, found)
		}
	}
}
