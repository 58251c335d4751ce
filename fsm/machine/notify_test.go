package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// notifying is a configuration whose entries notify at most so many listeners, with so many bytes of values.
func notifying(listeners, bytes int) func(*Config) {
	return func(c *Config) { c.notifies = notifyBudget{listeners: listeners, bytes: bytes} }
}

// boundNotified checks after each entry that it has notified no more listeners than the bound allows.
func boundNotified(w *world, most int) {
	before := map[*part]int{}
	w.applied = func(p *part, entry *commandv1.Entry, _ *Result) {
		now := count(p.state, []byte{byte(keys.Listener)})
		if n := before[p] - now; n > most {
			w.t.Errorf("%v has notified %d listeners, at most %d may be", entry, n, most)
		}
		before[p] = now
	}
}

// unnotified counts the listeners in all partitions, and what leads to them.
func (w *world) unnotified() (listeners, notifications int) {
	for _, p := range w.parts {
		listeners += count(p.state, []byte{byte(keys.Listener)})
		notifications += count(p.state, []byte{byte(keys.Notify)}) + count(p.state, []byte{byte(keys.Deadline), byte(keys.DeadlineNotify)})
	}
	return listeners, notifications
}

// waiters begins executions that wait for a promise, in all partitions.
func (w *world) waiters(n int, promise string) (ids []string) {
	for i := range n {
		objectID := near(w, w.parts[i%len(w.parts)], fmt.Sprint("w-", strings.ReplaceAll(promise, ":", "-"), "-", i, "-"))
		w.commit(w.begin(objectID, "waits"), "value "+promise+"; await 0")
		ids = append(ids, objectID)
	}
	w.ship()
	return ids
}

// Any number of listeners gets a promise's value, each once and at a bounded cost of every entry, as from a machine that
// notifies all at once.
func TestListenersInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const promises, waiting = 3, 8
		most := rapid.IntRange(1, 3).Draw(t, "listeners")
		worlds := []*world{newWorld(t, 2, notifying(most, rapid.IntRange(1, 60).Draw(t, "bytes"))), newWorld(t, 2, notifying(1<<30, 1<<40))}
		boundNotified(worlds[0], most)
		worlds[0].unaudited = rapid.IntRange(0, 3).Draw(t, "audited") > 0
		worlds[1].unaudited = true
		ids := make([]string, promises)
		views := make([][]*view, len(worlds))
		for i := range ids {
			ids[i] = near(worlds[0], worlds[0].parts[i%2], fmt.Sprint("p", i, "-"))
		}
		for n, w := range worlds {
			for _, objectID := range ids {
				w.do(createPromiseCmd(objectID, 5000))
			}
			for i := range waiting {
				views[n] = append(views[n], w.begin(near(w, w.parts[i%2], fmt.Sprint("w", i, "-")), "f"))
			}
		}
		asked := make([]int, waiting)
		until := worlds[0].now + 9_000 // the tasks' leases end later
		for step := range rapid.IntRange(5, 40).Draw(t, "steps") {
			draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
			kind, who, what := draw("kind", 8), draw("waiter", waiting), ids[draw("promise", promises)]
			value := strings.Repeat("v", draw("size", 40)) + fmt.Sprint(step)
			for n, w := range worlds {
				switch kind {
				case 0, 1, 2, 3:
					w.commit(views[n][who], "value "+what)
				case 4:
					w.one(settlePromiseCmd(what, resolved, value))
				case 5:
					w.one(tickCmd(uint32(1 + who%3)))
				case 6:
					w.ship()
				case 7:
					if w.now = min(w.now+int64(who)*300, until); n == 0 {
						w.open(w.parts[who%2]) // a replica starts again
					}
				}
			}
			if kind < 4 {
				asked[who]++
			}
		}
		for _, w := range worlds {
			w.now += 10_000
			w.reach()
			if listeners, rest := w.unnotified(); listeners != 0 || rest != 0 {
				t.Fatalf("%d listeners are left, %d keys lead to them", listeners, rest)
			}
		}
		for i, v := range views[0] {
			for n := range asked[i] {
				got, want := worlds[0].sendResult(v.token.Id, uint32(n)), worlds[1].sendResult(v.token.Id, uint32(n))
				if got != want || want == "" {
					t.Fatalf("operation %d of %s has the result %s, must be %s", n, v.token.Id, got, want)
				}
			}
		}
	})
}

// An entry notifies as many listeners as values fit in its bytes, and one in any case.
func TestListenersByBytes(t *testing.T) {
	for _, c := range []struct{ size, want int }{{1, 4}, {40, 2}, {60, 1}, {500, 1}} {
		w := newWorld(t, 1, notifying(4, 100))
		w.do(createPromiseCmd("p", 5000))
		w.waiters(9, "p")
		w.do(settlePromiseCmd("p", resolved, strings.Repeat("x", c.size)))
		if listeners, rest := w.unnotified(); listeners != 9-c.want || rest != 2 {
			t.Errorf("a value of %d bytes: the settlement has notified %d, must be %d; %d keys lead to the others", c.size, 9-listeners, c.want, rest)
		}
		w.do(createPromiseCmd("q", 5000))
		w.do(settlePromiseCmd("q", resolved, strings.Repeat("x", c.size)))
		before := 9 - c.want
		for tick := 0; before > 0; tick++ {
			w.one(tickCmd(0))
			listeners, _ := w.unnotified()
			if n := before - listeners; n != min(c.want, before) {
				t.Fatalf("a value of %d bytes: tick %d has notified %d, must be %d", c.size, tick, n, min(c.want, before))
			}
			before = listeners
		}
	}
}

// The askers for a settled promise that come in one entry share the bound with its listeners.
func TestAskersInParts(t *testing.T) {
	w := newWorld(t, 1, notifying(2, 100))
	w.do(createPromiseCmd("p", 5000))
	w.do(settlePromiseCmd("p", resolved, "v"))
	w.commit(w.begin("e", "f"), "value p; value p; value p; value p; value p; all 0,1,2,3,4")
	if listeners, rest := w.unnotified(); listeners != 3 || rest != 2 {
		t.Errorf("%d wait, %d keys lead to them", listeners, rest)
	}
	w.reach()
	for n := range uint32(5) {
		if got := w.sendResult("e", n); got != `"v"` {
			t.Errorf("operation %d has the result %q", n, got)
		}
	}
}

// A new incarnation of an execution begins when the former one's result has reached all that wait for it.
func TestNewIncarnationAfterNotification(t *testing.T) {
	w := newWorld(t, 2, notifying(1, 100))
	v := w.begin("e", "f")
	waiting := w.waiters(6, "e")
	w.commit(v, "return done")
	for _, cmd := range []*commandv1.Command{restartCmd(w.request(), "e", fromEvent, 1), reuseCmd(w.request(), "e", "f", "in", perdurev1.Reuse_REUSE_ALWAYS)} {
		if err := wire.ReplyError(w.one(cmd)); err == nil || err.Reason != perdurev1.Reason_REASON_TRY_LATER {
			t.Fatalf("%v: answered %v", cmd, err)
		}
	}
	w.reach()
	w.do(restartCmd(w.request(), "e", fromEvent, 1))
	for _, objectID := range waiting {
		if got := w.sendResult(objectID, 0); got != `"done"` {
			t.Errorf("%s has the result %s", objectID, got)
		}
	}
}

// A child that a restarted parent begins again, here or in another partition, begins when its former result has reached
// all that wait for it.
func TestChildAgainAfterNotification(t *testing.T) {
	for _, where := range []string{"", "id=mine", "id=mine2", "id=mine3", "id=mine5"} {
		w := newWorld(t, 3, notifying(1, 100))
		boundNotified(w, 1)
		w.commit(w.begin("e", "f"), "child g in "+where+"; await 0")
		w.ship()
		child := w.only("w2", "g")
		waiting := w.waiters(6, child.token.Id)
		w.commit(child, "return former")
		w.shipAll()
		restart := restartCmd(w.request(), "e", fromEvent, 2)
		restart.GetRestart().NewChildren = true
		for range 20 {
			if err := wire.ReplyError(w.one(restart)); err == nil {
				break
			} else if err.Reason != perdurev1.Reason_REASON_TRY_LATER {
				t.Fatalf("%q: %v", where, err)
			}
			w.tick()
		}
		w.shipAll() // brings the start of a child elsewhere before the ticks there
		w.reach()
		for _, objectID := range waiting {
			if got := w.sendResult(objectID, 0); got != `"former"` {
				t.Errorf("%q: %s has the result %q", where, objectID, got)
			}
		}
		w.commit(w.only("w2", "g"), "return fresh")
		w.reach()
		if got := w.course("e"); strings.Count(got, "completed") != 1 {
			t.Errorf("%q: the journal is %s", where, got)
		}
	}
}

// shipAll delivers what is in the outboxes now, without expirations.
func (w *world) shipAll() {
	w.t.Helper()
	for range 12 {
		w.ship()
	}
}

// A promise that a sweep deletes is gone when all that wait for it have an answer.
func TestSweepAfterNotification(t *testing.T) {
	for _, c := range []struct{ operation, want string }{
		{"promise", "!cancelled"}, {"child g in", "!cancelled"}, {"child g in spread", "!cancelled"}, {"sleep 50", `""`},
	} {
		w := newWorld(t, 2, notifying(1, 1000))
		boundNotified(w, 1)
		v := w.begin("e", "f")
		w.commit(v, c.operation+"; nothing")
		w.ship()
		waiting := w.waiters(6, "e:0")
		if strings.HasPrefix(c.operation, "sleep") {
			w.now += 100
		}
		w.commit(v, "continue next")
		w.reach()
		for _, objectID := range waiting {
			if got := w.sendResult(objectID, 0); !strings.HasPrefix(got, c.want) || got == "" {
				t.Errorf("%s: %s has the result %q", c.operation, objectID, got)
			}
		}
		if listeners, rest := w.unnotified(); listeners != 0 || rest != 0 {
			t.Errorf("%s: %d listeners are left, %d keys lead to them", c.operation, listeners, rest)
		}
		w.commit(w.only("w1", "f"), c.operation+"; return x")
	}
}

// A graph run is retried when the results of its nodes have reached all that wait for them.
func TestRetryGraphAfterNotification(t *testing.T) {
	w := newWorld(t, 2, notifying(1, 1000))
	w.submit("run", graphOf("a"), "")
	waiting := w.waiters(4, "run:0")
	w.end("run", "a", "fail app:broken")
	if err := wire.ReplyError(w.one(retryCmd(w.request(), "run"))); err == nil || err.Reason != perdurev1.Reason_REASON_TRY_LATER {
		t.Fatalf("answered %v", err)
	}
	w.reach()
	w.do(retryCmd(w.request(), "run"))
	for _, objectID := range waiting {
		if got := w.sendResult(objectID, 0); !strings.HasPrefix(got, "!app") {
			t.Errorf("%s has the result %s", objectID, got)
		}
	}
}

// A purge deletes a promise after the last listener got its value.
func TestPurgeAfterNotification(t *testing.T) {
	w := newWorld(t, 2, notifying(1, 1000))
	boundNotified(w, 1)
	w.do(createPromiseCmd("p", 5000))
	v := w.begin("e", "f")
	w.commit(v, "child g in; await 0")
	waiting := map[string][]string{}
	for _, objectID := range []string{"p", "e", "e:0"} {
		waiting[objectID] = w.waiters(6, objectID)
	}
	w.do(settlePromiseCmd("p", resolved, "v"))
	if err := wire.ReplyError(w.one(purgeCmd("p"))); err == nil || err.Reason != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("a promise with listeners: answered %v", err)
	}
	w.reach()
	if got := w.purge("p"); got != deleted {
		t.Errorf("the promise is %v", got)
	}
	w.commit(w.only("w2", "g"), "return v")
	w.commit(w.resumed(v), "return v")
	var err *api.Error
	for range 20 {
		if err = wire.ReplyError(w.one(purgeCmd("e"))); err == nil {
			break
		}
		w.apply(w.at("e"), &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(1)}}) // in the order of ids: those that wait for e are notified first
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := takeCensus(w.at("e").state).notifies["e:0"]; !ok {
		t.Fatal("none is left that waits for the child: this test says nothing of it")
	}
	w.reach()
	if got := w.purge("e"); got != absent {
		t.Errorf("the execution is %v", got)
	}
	for objectID, ids := range waiting {
		for _, waiter := range ids {
			if got := w.sendResult(waiter, 0); got != `"v"` {
				t.Errorf("%s, which waits for %s, has the result %q", waiter, objectID, got)
			}
		}
	}
}

// The task of an entity is no promise that anybody waits for.
func TestAwaitTaskOfEntity(t *testing.T) {
	w := newWorld(t, 1)
	w.do(registerCmd("@a"))
	w.do(signalEntityCmd(w.request(), "a@k", "add", "1", 0))
	w.commit(w.begin("e", "f"), "value a@k:@; nothing")
	if got := w.sendResult("e", 0); !strings.HasPrefix(got, "!target_not_found") {
		t.Errorf("the result is %q", got)
	}
}

// Damage of what leads to the listeners of a settled promise is named.
func TestAuditFindsNotifications(t *testing.T) {
	w := newWorld(t, 1, notifying(1, 100))
	w.do(createPromiseCmd("p", 5000))
	w.do(createPromiseCmd("open", 5000))
	w.waiters(4, "p")
	w.do(settlePromiseCmd("p", resolved, "v"))
	n, ok, err := state.ReadNotification(w.parts[0].state, ns, "p")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	row, due := keys.Of(keys.Notify, ns, "p"), keys.DeadlineOf(keys.DeadlineNotify, n.AtMS, ns, "p")
	for _, c := range []struct {
		what, rule string
		plant      func(s *plot)
	}{
		{"a listener left at a settled promise with no continuation due", "listener_for_settled_promise", func(s *plot) { s.drop(row); s.drop(due) }},
		{"a notification without listeners", "listener_for_settled_promise", func(s *plot) {
			for _, l := range takeCensus(s.state).listeners {
				s.drop(keys.Of(keys.Listener, ns, l[0], l[1]))
			}
		}},
		{"a notification of an open promise", "listener_for_settled_promise", func(s *plot) { s.put(keys.Of(keys.Notify, ns, "open"), n.Encode()) }},
		{"a notification of no promise", "listener_for_settled_promise", func(s *plot) { s.put(keys.Of(keys.Notify, ns, "none"), n.Encode()) }},
		{"a notification without a deadline", audit.RuleDeadline, func(s *plot) { s.drop(due) }},
		{"a deadline of no notification", audit.RuleDeadline, func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineNotify, 7, ns, "p"), []byte{}) }},
		{"a damaged notification", audit.RuleDamaged, func(s *plot) { s.put(row, []byte{1}) }},
	} {
		s := &plot{t: t, state: w.parts[0].state.Clone(), cfg: w.parts[0].cfg}
		c.plant(s)
		if found := audited(t, s.state, s.cfg); !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s is not found: %s", c.what, lines(found))
		}
	}
	if found := audited(t, w.parts[0].state, w.parts[0].cfg); len(found) != 0 {
		t.Errorf("a sound state: %s", lines(found))
	}
}
