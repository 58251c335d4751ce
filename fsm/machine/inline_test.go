package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// familiesOf counts the keys of an execution by family.
func (w *world) familiesOf(objectID string) map[string]int {
	out := map[string]int{}
	_ = w.at(objectID).state.Scan(nil, nil, func(key, _ []byte) bool {
		if f := keys.Family(key[0]); f != keys.Meta && f != keys.Reply && f != keys.ReplyAge && strings.Contains(string(key), objectID) {
			out[keys.NameOf(key)]++
		}
		return true
	})
	return out
}

func (w *world) isInline(objectID string) bool {
	w.t.Helper()
	h, ok, err := state.ReadHeader(w.at(objectID).state, ns, objectID)
	if !ok || err != nil {
		w.t.Fatalf("%s: %v, %v", objectID, ok, err)
	}
	return h.Inline != ""
}

// A query answers the same about an inline journal and an inline promise as about rows: the test compares with a state at the feature
// levels below, also after late commands and a restart.
func TestInlineReadsAsRows(t *testing.T) {
	const none, leaf, caller = 0, 1, 2
	for ops, want := range map[string]int{
		"return x": leaf, "fail app:no": leaf, "step s -> x; random 8; time 5; return x": leaf, "intent s; fail app:no": leaf, "signals": leaf,
		"child g x; return x": caller, "sleep 50; return x": caller, "promise p; return x": caller, "signal b go 1; return x": caller,
		"child g x; child g y; step s -> x; fail app:no": caller, "cleanup 500; return x": none, "continue in": none,
	} {
		var said [4]string
		for i, level := range []uint64{state.LevelLeaves, state.LevelInline, state.LevelPromise, state.LevelOpen} {
			w := newWorldAt(t, level, 1)
			v := w.begin("a", "f")
			if ops == "signals" {
				w.do(signalCmd(w.request(), "a", "s", "one"))
				w.do(signalCmd(w.request(), "a", "s", "two"))
				w.commit(v, "return x")
			} else {
				w.commit(v, ops)
			}
			if got := w.isInline("a"); got != (want != none && level >= state.LevelInline) {
				t.Errorf("%s at level %d: inline %t", ops, level, got)
			}
			rows := map[uint64]string{state.LevelInline: "map[header:1 promise:1 visibility:1]", state.LevelPromise: "map[header:1 visibility:1]", state.LevelOpen: "map[header:1 visibility:1]"}
			if got := w.familiesOf("a"); want == leaf && rows[level] != "" && fmt.Sprint(got) != rows[level] {
				t.Errorf("%s at level %d: it has the rows %v", ops, level, got)
			}
			ask := func(id string, q *commandv1.Query) string {
				q.Id = id
				return w.query(q).String()
			}
			say := func(what string) {
				said[i] += what + "\n" + strings.Join(showEntries(w.journal("a")), "\n") + "\n" + w.describe("a").String() + "\n" +
					ask("a", &commandv1.Query{Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}) + "\n" +
					ask("a", &commandv1.Query{Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: 1, Version: 1}}}) + "\n" +
					ask("a", &commandv1.Query{Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}}) + "\n" +
					ask("a:0", &commandv1.Query{Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}}) + "\n"
				for from := range 3 {
					said[i] += ask("a", &commandv1.Query{Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{FromSeq: uint64(from), Limit: 1}}}) + "\n"
				}
			}
			say("ended")
			w.open(w.parts[0])
			for _, cmd := range []*commandv1.Command{
				w.commitCmd(v, "return late"), signalCmd(w.request(), "a", "s", "late"), terminateCmd("a", "late"), cancelCmd("a", "late", 10),
				reuseCmd(w.request(), "a", "f", "in", perdurev1.Reuse_REUSE_REJECT), restartCmd(w.request(), "a", fromFailure, 0),
				releaseCmd(v.token, "late", 0), heartbeatCmd("w1", v.token),
			} {
				w.open(w.parts[0])
				said[i] += w.one(cmd).String() + "\n"
				w.sound(w.parts[0])
			}
			say("after late commands")
			said[i] += w.one(restartCmd(w.request(), "a", fromStart, 0)).String() + "\n"
			say("restarted")
			if got := w.familiesOf("a")["task"]; got != 1 {
				t.Errorf("%s at level %d: restarted, it has %d tasks", ops, level, got)
			}
			w.sound(w.parts[0])
			w.commit(w.only("w1", "f"), "return again")
			w.pass(60)
			w.sound(w.parts[0])
			for _, child := range w.take("w2", 9, "g") {
				w.commit(child, "return 1")
			}
			if got := w.purge("a"); got != deleted {
				t.Errorf("%s at level %d: purged: %v", ops, level, got)
			}
			if left := w.left("a", 0); len(left) > 0 {
				t.Errorf("%s at level %d: left: %q", ops, level, left)
			}
		}
		if said[0] != said[1] || said[0] != said[2] || said[0] != said[3] {
			t.Errorf("%s: in rows\n%s\ninline\n%s\nwith the promise\n%s\nin the header while open\n%s", ops, said[0], said[1], said[2], said[3])
		}
	}
}

// The bounds of what is inline.
func TestInlineBounds(t *testing.T) {
	for _, c := range []struct {
		what string
		end  func(w *world, v *view)
		want bool
	}{
		{"at the last moment", func(w *world, _ *view) { w.now += state.InlineMS; w.do(terminateCmd("a", "enough")) }, true},
		{"too late", func(w *world, _ *view) { w.now += state.InlineMS + 1; w.do(terminateCmd("a", "enough")) }, false},
		{"the most entries", func(w *world, v *view) {
			w.commit(v, strings.Repeat("time 5; ", state.InlineEvents-2)+"return x")
		}, true},
		{"too many entries", func(w *world, v *view) {
			w.commit(v, strings.Repeat("time 5; ", state.InlineEvents-1)+"return x")
		}, false},
		{"a large result", func(w *world, v *view) { w.commit(v, "return "+strings.Repeat("x", state.InlineBytes-100)) }, true},
		{"too large a result", func(w *world, v *view) { w.commit(v, "return "+strings.Repeat("x", state.InlineBytes)) }, false},
		{"large in the middle", func(w *world, v *view) {
			w.commit(v, "step s -> "+strings.Repeat("x", state.InlineBytes))
			w.commit(v, "return x")
		}, false},
		{"cancelled", func(w *world, v *view) { w.do(cancelCmd("a", "why", 1000)); w.commit(v, "cancelled ok") }, true},
		{"terminated", func(w *world, _ *view) { w.do(terminateCmd("a", "enough")) }, true},
		{"with a clean-up", func(w *world, v *view) { w.commit(v, "cleanup 500"); w.do(terminateCmd("a", "enough")) }, false},
	} {
		w := newWorldAt(t, state.LevelPromise, 1)
		c.end(w, w.begin("a", "f"))
		if got := w.isInline("a"); got != c.want {
			t.Errorf("%s: inline %t", c.what, got)
		}
		w.sound(w.parts[0])
		n := w.familiesOf("a")
		if (n["task"] == 0 && n["journal"] == 0 && n["promise"] == 0) != c.want {
			t.Errorf("%s: it has the rows %v", c.what, n)
		}
		if got := w.purge("a"); got != deleted {
			t.Errorf("%s: purged: %v", c.what, got)
		}
		if left := w.left("a", 0); len(left) > 0 {
			t.Errorf("%s: left: %q", c.what, left)
		}
	}
}

// Replicas store the same rows whatever they have in memory: one that restarts before each entry, one that has refused a command, and
// one whose execution began below the feature level.
func TestInlineDoesNotDependOnMemory(t *testing.T) {
	for _, level := range []uint64{state.LevelPromise, state.LevelOpen} {
		inlineDoesNotDependOnMemory(t, level)
	}
}

func inlineDoesNotDependOnMemory(t *testing.T, level uint64) {
	run := func(between func(w *world, v *view)) (string, uint64) {
		w := newWorldAt(t, state.LevelLeaves, 1)
		v := w.begin("a", "f")
		w.raise(w.parts[0], level)
		u := w.begin("b", "f")
		for _, x := range []*view{v, u} {
			for _, ops := range []string{"step s -> x", "random 8", "step s -> " + strings.Repeat("y", 2000)} {
				between(w, x)
				w.commit(x, ops)
			}
			between(w, x)
			w.commit(x, "return x")
			if !w.isInline(x.token.Id) {
				t.Errorf("%s is not inline", x.token.Id)
			}
		}
		w.sound(w.parts[0])
		return content(w.parts[0].state), w.parts[0].m.Checksum()
	}
	want, checksum := run(func(*world, *view) {})
	again, sum := run(func(w *world, _ *view) { w.open(w.parts[0]) })
	if again != want || sum != checksum {
		t.Errorf("a replica that starts again has\n%s\nnot\n%s", again, want)
	}
	refused := func(w *world, v *view) {
		w.commitRefused(v, "step s -> "+strings.Repeat("z", state.InlineBytes)+"; await 77", perdurev1.Reason_REASON_RULE_BROKEN, "")
	}
	one, _ := run(refused)
	two, _ := run(func(w *world, v *view) { refused(w, v); w.open(w.parts[0]) })
	if one != two {
		t.Errorf("after refused commands a replica has\n%s\nanother one\n%s", one, two)
	}
}

// Of a short execution the machine gives no promise, no task and no journal to store, if all of it happens between two batches.
func TestInlineIsNotStored(t *testing.T) {
	for _, level := range []uint64{state.LevelPromise, state.LevelOpen} {
		inlineIsNotStored(t, level)
	}
}

func inlineIsNotStored(t *testing.T, level uint64) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	p := w.parts[0]
	m, err := New(p.cfg, p.state)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(e *commandv1.Entry) *Result {
		p.index++
		e.TimeMs = w.now
		res, err := m.Apply(p.index, e)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	apply(&commandv1.Entry{Commands: []*commandv1.Command{raiseLevelCmd(level)}})
	res := apply(&commandv1.Entry{Commands: []*commandv1.Command{startCmd(w.request(), "a", "f", "in")}, Grants: []*commandv1.Grant{grant("w1", 1, "f")}})
	v := &view{token: res.Effects.Assigned[0].Token}
	cmd := w.commitCmd(v, "step s -> x; return x")
	cmd.GetCommit().KnownSeq = 1
	if res := apply(&commandv1.Entry{Commands: []*commandv1.Command{cmd}}); len(res.Replies) != 1 || res.Replies[0].GetError() != nil {
		t.Fatalf("answered %v", res.Replies)
	}
	var stored []string
	for _, write := range m.Writes() {
		if f := keys.Family(write.Key[0]); f == keys.Promise || f == keys.Task || f == keys.Journal || f == keys.Ready || f == keys.Deadline {
			stored = append(stored, fmt.Sprintf("%s, removed %t", keys.NameOf(write.Key), write.Value == nil))
		}
	}
	if len(stored) > 0 {
		t.Errorf("stored: %q", slices.Compact(stored))
	}
}

// An execution that ended in rows, or inline, and is started again has the promise and the task of its new incarnation, and none after
// that is purged, also if the replica stores nothing between: the new rows must not count as the first of their keys.
func TestRestartHasOneTask(t *testing.T) {
	for _, level := range []uint64{state.LevelLeaves, state.LevelInline, state.LevelPromise} {
		w := newWorldAt(t, state.LevelLeaves, 1)
		w.raise(w.parts[0], level)
		w.commit(w.begin("a", "f"), "return x")
		w.raise(w.parts[0], state.LevelPromise)
		req := startCmd(w.request(), "a", "f", "in")
		req.GetStart().Reuse = perdurev1.Reuse_REUSE_ALWAYS
		w.do(req) // the invariants look whether a write that counts as a key's first one is
		if got := w.familiesOf("a"); got["promise"] != 1 || got["task"] != 1 {
			t.Errorf("from level %d: started again it has the rows %v", level, got)
		}
		w.commit(w.only("w1", "f"), "return y")
		w.sound(w.parts[0])
		w.pass(20_000)
		if got := w.purge("a"); got != deleted {
			t.Fatalf("purged: %v", got)
		}
		if left := w.left("a", 0); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// Which promises are inline: all that follow from the header and the last entry.
func TestInlinePromises(t *testing.T) {
	start := func(w *world, change func(*perdurev1.StartRequest)) *view {
		req := startCmd(w.request(), "a", "f", "in")
		change(req.GetStart())
		w.do(req)
		return w.only("w1", "f")
	}
	for _, c := range []struct {
		what string
		run  func(w *world)
		want bool
	}{
		{"no result", func(w *world) { w.commit(w.begin("a", "f"), "return") }, true},
		{"failed", func(w *world) { w.commit(w.begin("a", "f"), "fail app:no") }, true},
		{"cancelled", func(w *world) {
			v := w.begin("a", "f")
			w.do(cancelCmd("a", "why", 1000))
			w.commit(v, "cancelled ok")
		}, true},
		{"terminated", func(w *world) { w.begin("a", "f"); w.do(terminateCmd("a", "enough")) }, true},
		{"tags", func(w *world) {
			w.commit(start(w, func(r *perdurev1.StartRequest) { r.Tags = map[string]string{"b": "2", "a": "1"} }), "return x")
		}, true},
		{"a deadline", func(w *world) {
			w.commit(start(w, func(r *perdurev1.StartRequest) { r.TimeoutMs = 5000 }), "return x")
		}, true},
		{"timed out", func(w *world) {
			start(w, func(r *perdurev1.StartRequest) { r.TimeoutMs = 5000 })
			w.pass(5000)
		}, false},
	} {
		var said [2]string
		for i, level := range []uint64{state.LevelInline, state.LevelPromise} {
			w := newWorldAt(t, level, 1)
			c.run(w)
			if got := w.familiesOf("a")["promise"] == 0; got != (c.want && level == state.LevelPromise) {
				t.Errorf("%s at level %d: inline %t", c.what, level, got)
			}
			w.open(w.parts[0])
			said[i] = w.query(&commandv1.Query{Id: "a", Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}}).String()
			w.sound(w.parts[0])
		}
		if said[0] != said[1] {
			t.Errorf("%s: in a row\n%s\ninline\n%s", c.what, said[0], said[1])
		}
	}
}

// The rules find the settled promise of what has ended, and none once it is deleted, whether or not the execution is in memory. What
// they delete in a command that is refused stays.
func TestRulesFindInlinePromise(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("a", "f"), "return x")
	w.open(w.parts[0])
	before := content(w.parts[0].state)
	m := w.parts[0].m
	for _, inMemory := range []bool{false, true} {
		x := newTxn(m)
		x.begin(w.parts[0].index + 1)
		if inMemory {
			x.execution(ns, "a")
			x.forgetLast()
		}
		s := x.store(ns)
		if p, ok := s.Promise("a"); !ok || p.State != recovery.PromiseResolved || p.Target != "f" {
			t.Errorf("in memory %t: %+v, %t", inMemory, p, ok)
		}
		s.remove("a")
		if p, ok := s.Promise("a"); ok {
			t.Errorf("in memory %t: removed, it is %+v", inMemory, p)
		}
		if task, ok := s.Task("a"); ok {
			t.Errorf("in memory %t: its promise is removed, and its task is %+v", inMemory, task)
		}
		if _, ok := s.Promise("b"); ok {
			t.Error("nobody has a promise of another id")
		}
		x.abort()
		if p, ok := s.Promise("a"); !ok || p.State != recovery.PromiseResolved {
			t.Errorf("in memory %t: after an abort it is %+v, %t", inMemory, p, ok)
		}
	}
	if after := content(w.parts[0].state); after != before {
		t.Errorf("the state was\n%s\nand is\n%s", before, after)
	}
}

// The result of a short execution takes one read, that of its header.
func TestInlineResultIsOneRead(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("a", "f"), "return x")
	reads := &reading{Reader: w.parts[0].state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}
	reply, err := query.Answer(reads, 0, &commandv1.Query{Namespace: ns, Id: "a", Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}})
	if err != nil || !reply.GetResult().GetDone() {
		t.Fatalf("%v, %v", reply, err)
	}
	if reads.gets[keys.Header] != 1 || reads.gets[keys.Promise] != 0 {
		t.Errorf("read %v", reads.gets)
	}
}

// A machine that starts on a state with inline promises does not take their ids for free, nor does one into which they are restored.
func TestInlinePromiseIsNotFree(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("a", "f"), "return x")
	for _, what := range []string{"as it ended", "after a start"} {
		w.tick()
		m := w.parts[0].m
		if more, err := m.Learn(); more || err != nil {
			t.Fatal(more, err)
		}
		if !m.reads.absences.ready() || m.Free(ns, "a") || !m.Free(ns, "nobody") {
			t.Errorf("%s: ready %t, a is free %t", what, m.reads.absences.ready(), m.Free(ns, "a"))
		}
		if got := m.reads.absences.removed; got != 0 {
			t.Errorf("%s: %d promises count as removed", what, got)
		}
		w.open(w.parts[0])
	}
	if got := w.purge("a"); got != deleted {
		t.Fatal(got)
	}
	if got := w.parts[0].m.reads.absences.removed; got != 1 {
		t.Errorf("%d promises count as removed", got)
	}
}

// The rules find the fulfilled task of what has ended, as they would its row, whether or not the execution is in memory.
func TestRulesFindInlineTask(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("a", "f"), "return x")
	w.open(w.parts[0])
	m := w.parts[0].m
	x := newTxn(m)
	x.begin(w.parts[0].index + 1)
	for _, inMemory := range []bool{false, true} {
		if inMemory {
			x.execution(ns, "a")
			x.forgetLast()
		}
		if task, ok := x.store(ns).Task("a"); !ok || task.State != recovery.TaskFulfilled || task.Version != 1 || task.Target != "f" {
			t.Errorf("in memory %t: %+v, %t", inMemory, task, ok)
		}
	}
	if task, ok := x.store(ns).Task("b"); ok {
		t.Errorf("nobody has %+v", task)
	}
}
