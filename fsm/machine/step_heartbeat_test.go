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
	"perdure/id"
)

// stepBeat is a heartbeat of one task with what one of its steps reports.
func stepBeat(v *view, child uint32, name, details string) *commandv1.Command {
	cmd := heartbeatCmd(v.worker, v.token)
	cmd.GetHeartbeat().Steps = []*perdurev1.StepHeartbeat{{
		PromiseId: string(id.PromiseID(v.token.Id).Child(child)), Name: name, Attempt: 1, Details: []byte(details)}}
	return cmd
}

// steps shows the heartbeats that describe has of an execution.
func (w *world) steps(objectID string) string {
	w.t.Helper()
	var out []string
	for _, s := range w.describe(objectID).Steps {
		out = append(out, fmt.Sprintf("%s %s#%d %s @%d", s.PromiseId, s.Name, s.Attempt, s.Details, s.AtMs))
	}
	return strings.Join(out, "; ")
}

// A step's last heartbeat is there for the worker that repeats the step, until the step has a result.
func TestStepHeartbeat(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "intent a; intent b")
	w.now = 2000
	w.do(stepBeat(v, 1, "b", "b1"))
	w.do(stepBeat(v, 2, "c", "c1")) // which no entry records yet
	w.now = 3000
	w.do(stepBeat(v, 0, "a", "a1"))
	w.do(stepBeat(v, 1, "b", "b2"))
	const all = "e:0 a#1 a1 @3000; e:1 b#1 b2 @3000; e:2 c#1 c1 @2000"
	if got := w.steps("e"); got != all {
		t.Errorf("reported %s", got)
	}
	w.now += 10_000
	w.settleExpired(w.parts[0])
	stale := stepBeat(v, 0, "a", "of a worker that has lost the task")
	if lost := w.do(stale).GetHeartbeat().Lost; len(lost) != 1 {
		t.Error("a lost task's heartbeat was accepted")
	}
	v = w.only("w2", "f")
	task := w.query(&commandv1.Query{Id: "e", Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{
		Incarnation: v.token.Incarnation, Version: v.token.Version}}}).GetTask()
	if len(task.Steps) != 3 || string(task.Steps[1].Details) != "b2" || w.steps("e") != all {
		t.Errorf("the next worker gets %v, describe shows %s", task.Steps, w.steps("e"))
	}
	w.commit(v, "retrying 1#1 !x; step c; sleep 5")
	if got := w.steps("e"); got != "e:0 a#1 a1 @3000; e:1 b#1 b2 @3000" {
		t.Errorf("after c has ended and b has failed: %s", got)
	}
	w.now++
	release := releaseCmd(v.token, "", 0)
	release.GetRelease().Steps = stepBeat(v, 1, "b", "b3").GetHeartbeat().Steps
	w.do(release)
	v = w.only("w2", "f")
	w.commit(v, "done 0#1 -> x")
	if got, want := w.steps("e"), fmt.Sprintf("e:1 b#1 b3 @%d", w.now); got != want {
		t.Errorf("after the release and the end of a: %s, must be %s", got, want)
	}
	w.commit(v, "started 1#2; done 1#2 -> x")
	if got := w.steps("e"); got != "" || count(w.parts[0].state, []byte{byte(keys.Heartbeat)}) != 0 {
		t.Errorf("after all steps: %s", got)
	}
}

// The code may take another way after a lost worker: a heartbeat of a child number that becomes something else goes.
func TestStepHeartbeatOfAnotherWay(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.do(stepBeat(v, 0, "a", "x"))
	w.commit(v, "sleep 1000")
	if got := w.steps("e"); got != "" {
		t.Errorf("a timer has the heartbeat %s", got)
	}
}

// Heartbeats of what is no running step of the execution, or too large, are dropped; the leases are extended.
func TestStepHeartbeatDropped(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "step a; sleep 1000; child g; intent b")
	other := w.begin("other", "f")
	for what, cmd := range map[string]*commandv1.Command{
		"a step with a result": stepBeat(v, 0, "a", ""), "a timer": stepBeat(v, 1, "", ""), "a child": stepBeat(v, 2, "g", ""),
		"a step far ahead": stepBeat(v, 5, "c", ""), "too many bytes": stepBeat(v, 3, "b", strings.Repeat("x", id.MaxHeartbeatBytes+1)),
	} {
		if lost := w.do(cmd).GetHeartbeat().Lost; len(lost) != 0 {
			t.Errorf("%s: lost %v", what, lost)
		}
		if got := w.steps("e"); got != "" {
			t.Errorf("%s: %s", what, got)
		}
	}
	stranger := heartbeatCmd("w1", v.token)
	stranger.GetHeartbeat().Steps = stepBeat(other, 0, "a", "x").GetHeartbeat().Steps
	w.do(stranger)
	if got := w.steps("other"); got != "" {
		t.Errorf("without its token: %s", got)
	}
	// A bounded number of steps.
	w.commit(v, strings.Repeat("intent s; ", state.MaxHeartbeats+5)+"nothing")
	for n := range uint32(state.MaxHeartbeats + 3) {
		w.do(stepBeat(v, 3+n, "s", "x"))
	}
	if got := len(w.describe("e").Steps); got != state.MaxHeartbeats {
		t.Errorf("%d heartbeats are stored", got)
	}
	w.do(stepBeat(v, 3, "b", "new"))
	if got := w.describe("e").Steps[0]; string(got.Details) != "new" {
		t.Errorf("a stored one is not replaced: %v", got)
	}
}

// However an incarnation ends, no heartbeat of it is left.
func TestStepHeartbeatEnds(t *testing.T) {
	for how, end := range map[string]func(w *world, v *view){
		"complete":  func(w *world, v *view) { w.commit(v, "return x") },
		"fail":      func(w *world, v *view) { w.commit(v, "fail x") },
		"terminate": func(w *world, _ *view) { w.do(terminateCmd("e", "")) },
		"continue":  func(w *world, v *view) { w.commit(v, "continue x") },
		"restart":   func(w *world, _ *view) { w.do(restartCmd(w.request(), "e", fromStart, 0)) },
		"cancel":    func(w *world, v *view) { w.do(cancelCmd("e", "", 1000)); w.commit(v, "cancelled x") },
		"grace": func(w *world, _ *view) {
			w.do(cancelCmd("e", "", 1000))
			w.now += 1000
			w.settleExpired(w.parts[0])
		},
		"deadline": func(w *world, _ *view) { w.now += 50_000; w.settleExpired(w.parts[0]) },
	} {
		w := newWorld(t, 1)
		start := startCmd(w.request(), "e", "f", "in")
		start.GetStart().TimeoutMs = 50_000
		w.do(start)
		v := w.only("w1", "f")
		w.commit(v, "intent a")
		w.do(stepBeat(v, 0, "a", "x"))
		if w.steps("e") == "" {
			t.Fatal("no heartbeat was stored")
		}
		end(w, v)
		if got := w.steps("e"); got != "" || count(w.parts[0].state, []byte{byte(keys.Heartbeat)}) != 0 {
			t.Errorf("%s: %q, %d keys", how, got, count(w.parts[0].state, []byte{byte(keys.Heartbeat)}))
		}
	}
	// A child's attempt, and a child of an execution that begins anew.
	w := newWorld(t, 1)
	v := w.begin("p", "f")
	w.commit(v, "child g attempts=2 pause=1; await 0")
	child := w.only("w1", "g")
	w.do(stepBeat(child, 0, "a", "x"))
	w.commit(child, "fail x")
	if got := w.steps("p:0"); got != "" {
		t.Errorf("the next attempt has %s", got)
	}
	w.now += 2
	w.settleExpired(w.parts[0])
	w.do(stepBeat(w.only("w1", "g"), 0, "a", "x"))
	w.do(restartCmd(w.request(), "p", fromStart, 0))
	if n := count(w.parts[0].state, []byte{byte(keys.Heartbeat)}); n != 0 {
		t.Errorf("%d heartbeats of a child that is gone", n)
	}
}

// A replica below the feature level would not know them: nothing is stored.
func TestStepHeartbeatNeedsLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	v := w.begin("e", "f")
	w.do(stepBeat(v, 0, "a", "x"))
	if got := w.steps("e"); got != "" {
		t.Errorf("stored %s", got)
	}
}

// The audit finds what is planted in heartbeats.
func TestAuditFindsPlantedHeartbeats(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "step a; intent b")
	w.do(stepBeat(v, 1, "b", "details"))
	w.commit(w.begin("done", "f"), "return x")
	home := w.parts[0]
	key := keys.HeartbeatOf(ns, "e", v.token.Incarnation)
	with := func(change func(one *state.StepHeartbeat)) func(s *plot) {
		return func(s *plot) {
			steps, err := state.DecodeHeartbeats(s.get(key))
			if err != nil {
				t.Fatal(err)
			}
			change(&steps[0])
			s.put(key, state.EncodeHeartbeats(steps))
		}
	}
	for what, c := range map[string]struct {
		rule, object string
		plant        func(s *plot)
	}{
		"cut short":           {audit.RuleDamaged, "e", func(s *plot) { s.put(key, s.get(key)[:4]) }},
		"none":                {audit.RuleDamaged, "e", func(s *plot) { s.put(key, state.EncodeHeartbeats(nil)) }},
		"too large":           {audit.RuleDamaged, "e", with(func(one *state.StepHeartbeat) { one.Details = make([]byte, id.MaxHeartbeatBytes+1) })},
		"a longer key":        {audit.RuleDamaged, "e", func(s *plot) { s.put(append(key[:len(key):len(key)], 1), s.get(key)) }},
		"gone":                {audit.RuleHeartbeat, "e", func(s *plot) { s.drop(key) }},
		"unknown to a header": {audit.RuleHeartbeat, "e", func(s *plot) { s.header("e", func(h *state.Header) { h.HeartbeatAt = 0 }) }},
		"of an ended one": {audit.RuleHeartbeat, "done", func(s *plot) {
			s.put(keys.HeartbeatOf(ns, "done", s.readHeader("done").Incarnation), s.get(key))
		}},
		"of none":                 {audit.RuleHeartbeat, "none", func(s *plot) { s.put(keys.HeartbeatOf(ns, "none", 1), s.get(key)) }},
		"of another incarnation":  {audit.RuleHeartbeat, "e", func(s *plot) { s.put(keys.HeartbeatOf(ns, "e", 77), s.get(key)) }},
		"in an ended header":      {audit.RuleHeartbeat, "done", func(s *plot) { s.header("done", func(h *state.Header) { h.HeartbeatAt = 1 }) }},
		"of a step with a result": {audit.RuleHeartbeat, "e", with(func(one *state.StepHeartbeat) { one.Child = 0 })},
		"of a step far ahead":     {audit.RuleHeartbeat, "e", with(func(one *state.StepHeartbeat) { one.Child = 3 })},
		"at another time":         {audit.RuleHeartbeat, "e", with(func(one *state.StepHeartbeat) { one.AtMS-- })},
		"in the future": {audit.RuleClock, "e", func(s *plot) {
			with(func(one *state.StepHeartbeat) { one.AtMS = w.now + 1 })(s)
			s.header("e", func(h *state.Header) { h.HeartbeatAt = w.now + 1 })
		}},
	} {
		s := &plot{t: t, state: home.state.Clone(), cfg: home.cfg}
		c.plant(s)
		if found := audited(t, s.state, s.cfg); !breaks(found, c.rule, c.object) {
			t.Errorf("%s: want %s of %q, found:\n%s", what, c.rule, c.object, lines(found))
		}
	}
}
