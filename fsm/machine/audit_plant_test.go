package machine

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/internal/testkit"
	"perdure/journal"
	"perdure/recovery"
)

// A plot is a state into which violations are planted.
type plot struct {
	t     *testing.T
	state *state.MemReader
	cfg   Config
}

func (s *plot) get(key []byte) []byte {
	s.t.Helper()
	if keys.Family(key[0]) == keys.Promise {
		s.rows(idOfKey(key))
	}
	value, ok, err := s.state.Get(key)
	if err != nil || !ok {
		s.t.Fatalf("no value is at %q (%v)", key, err)
	}
	return value
}

func (s *plot) put(key, value []byte) { s.state.Apply([]state.Write{{Key: key, Value: value}}) }
func (s *plot) drop(key []byte)       { s.get(key); s.state.Apply([]state.Write{{Key: key}}) }

// rows gives an execution rows for what is in its header, as one has that took longer.
func (s *plot) rows(objectID string) {
	s.t.Helper()
	h, _ := state.Must{From: s.state}.Header(ns, objectID)
	if len(h.Open) > 0 {
		for seq, entry := range h.OpenEntries() {
			s.put(keys.JournalEntry(ns, objectID, h.Incarnation, uint64(seq)), entry)
		}
		h.Open = nil
		s.put(keys.Of(keys.Header, ns, objectID), h.Encode())
		return
	}
	task, ok := h.InlineTask()
	if !ok {
		return
	}
	if p, ok := h.InlinePromise(); ok {
		s.put(keys.Of(keys.Promise, ns, objectID), recovery.AppendPromise(nil, p))
	}
	s.put(keys.Of(keys.Task, ns, objectID), recovery.AppendTask(nil, task))
	for seq, entry := range h.InlineEntries() {
		s.put(keys.JournalEntry(ns, objectID, h.Incarnation, uint64(seq)), entry)
	}
	h.Inline = ""
	s.put(keys.Of(keys.Header, ns, objectID), h.Encode())
	s.put(keys.VisibilityOf(ns, closedClass(h.Status), h.CreatedMS, objectID), state.ListingClosed(&h))
}

func (s *plot) promise(objectID string, change func(*recovery.Promise)) {
	s.t.Helper()
	key := keys.Of(keys.Promise, ns, objectID)
	p, err := recovery.DecodePromise(s.get(key))
	if err != nil {
		s.t.Fatal(err)
	}
	change(&p)
	s.put(key, recovery.AppendPromise(nil, p))
}

func (s *plot) task(objectID string, change func(*recovery.Task)) {
	s.t.Helper()
	key := keys.Of(keys.Task, ns, objectID)
	s.rows(objectID)
	task, err := recovery.DecodeTask(s.get(key))
	if err != nil {
		s.t.Fatal(err)
	}
	change(&task)
	s.put(key, recovery.AppendTask(nil, task))
}

func (s *plot) readHeader(objectID string) state.Header {
	s.t.Helper()
	h, err := state.DecodeHeader(s.get(keys.Of(keys.Header, ns, objectID)))
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (s *plot) readTask(objectID string) (task recovery.Task) {
	s.task(objectID, func(stored *recovery.Task) { task = *stored })
	return task
}

func (s *plot) header(objectID string, change func(*state.Header)) {
	s.t.Helper()
	h := s.readHeader(objectID)
	change(&h)
	s.put(keys.Of(keys.Header, ns, objectID), h.Encode())
}

// inline changes the entries that are inline in a header.
func (s *plot) inline(objectID string, change func(entries [][]byte) [][]byte) {
	s.t.Helper()
	s.header(objectID, func(h *state.Header) {
		if p, ok := h.InlinePromise(); ok { // which follows from the last entry
			s.put(keys.Of(keys.Promise, ns, objectID), recovery.AppendPromise(nil, p))
		}
		task, ok := h.InlineTask()
		var all []byte
		for _, entry := range change(h.InlineEntries()) {
			all = state.AppendInline(all, entry)
		}
		if !ok || !h.SetInline(task, nil, all) {
			s.t.Fatalf("%q has nothing inline", objectID)
		}
	})
}

// event replaces an entry of a journal, or drops it.
func (s *plot) event(objectID string, seq uint64, ev journal.Event) {
	s.t.Helper()
	s.rows(objectID)
	key := keys.JournalEntry(ns, objectID, s.readHeader(objectID).Incarnation, seq)
	if ev == nil {
		s.drop(key)
		return
	}
	e, err := journal.DecodeEntry(s.get(key))
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(key, journal.AppendEntry(nil, journal.Entry{Seq: seq, Time: e.Time, Event: ev}))
}

// garden is a state of one partition of two, with executions in every condition:
//
//	done, failed, cancelled, late   have ended; late by its deadline
//	working                         is held by worker w1
//	waiting                         is pending, for a worker
//	sleeping                        waits for its timer sleeping:0
//	calling                         waits for its child calling:0, which is pending
//	either                          waits for a timer or a child elsewhere, whose start is on its way
//	asking                          waits for a signal
//	cancelling                      was asked to stop
//	called                          has ended, after its child called:0, its timer called:1 and its signal called:2
//	child                           has ended, and its parent elsewhere is to hear of it
func garden(t *testing.T) (w *world, home *part, name func(string) string) {
	w = newWorld(t, 2)
	home = w.parts[0]
	names := map[string]string{}
	name = func(s string) string {
		if names[s] == "" {
			names[s] = near(w, home, s)
		}
		return names[s]
	}
	begin := func(s string) *view {
		w.do(startCmd(w.request(), name(s), "f", "in"))
		return w.takeFrom(home, grant("w1", 1, "f"))[0]
	}
	w.commit(begin("done"), "step a -> 1; return x")
	w.commit(begin("failed"), "fail it broke")
	v := begin("cancelled")
	w.do(cancelCmd(name("cancelled"), "why", 1000))
	w.commit(v, "cancelled ok")
	late := startCmd(w.request(), name("late"), "f", "in")
	late.GetStart().TimeoutMs = 10
	w.do(late)
	w.now += 20
	w.settleExpired(home)
	again := func(function string) *view { return w.takeFrom(home, grant("w1", 1, function))[0] }
	w.commit(begin("called"), "child g in; await 0")
	w.commit(again("g"), "return r")
	w.commit(again("f"), "sleep 5; await 1")
	w.now += 10
	w.settleExpired(home)
	w.commit(again("f"), "wait s")
	w.do(signalCmd(w.request(), name("called"), "s", "payload"))
	w.commit(again("f"), "return x")
	parent := near(w, w.parts[1], "parent")
	w.do(startCmd(w.request(), parent, "p", "in"))
	w.commit(w.takeFrom(w.parts[1], grant("w1", 1, "p"))[0], strings.Repeat("child k spread; ", 8)+"any 0,1,2,3,4,5,6,7")
	w.ship()
	child := again("k")
	names["child"] = child.token.Id
	w.commit(child, "return r")
	begin("working")
	w.commit(begin("sleeping"), "sleep 5000; await 0")
	w.commit(begin("calling"), "child g; await 0")
	w.commit(begin("either"), "sleep 6000; "+strings.Repeat("child h spread; ", 8)+"any 0,1,2,3,4,5,6,7,8")
	w.commit(begin("asking"), "wait s")
	begin("cancelling")
	w.do(cancelCmd(name("cancelling"), "why", 50_000))
	w.do(startCmd(w.request(), name("waiting"), "f", "in"))
	w.do(createPromiseCmd(name("bare"), 60_000))
	w.do(signalCmd(w.request(), name("asking"), "other", "x"))
	return w, home, name
}

// The audit finds every planted violation, with its rule and its object.
func TestAuditFindsWhatIsPlanted(t *testing.T) {
	_, home, name := garden(t)
	if found := audited(t, home.state, home.cfg); len(found) > 0 {
		t.Fatalf("before anything was planted:\n%s", lines(found))
	}
	const far = 1
	for _, c := range []struct {
		what, rule, object string
		plant              func(s *plot)
	}{
		// Unreadable values.
		{"a promise cut short", audit.RuleDamaged, "bare", func(s *plot) {
			key := keys.Of(keys.Promise, ns, name("bare"))
			s.put(key, s.get(key)[:9])
		}},
		{"a task cut short", audit.RuleDamaged, "working", func(s *plot) {
			key := keys.Of(keys.Task, ns, name("working"))
			s.put(key, s.get(key)[:3])
		}},
		{"a header cut short", audit.RuleDamaged, "done", func(s *plot) {
			key := keys.Of(keys.Header, ns, name("done"))
			s.put(key, s.get(key)[:7])
		}},
		{"an entry that is none", audit.RuleDamaged, "done", func(s *plot) {
			s.rows(name("done"))
			s.put(keys.JournalEntry(ns, name("done"), s.readHeader(name("done")).Incarnation, 1), []byte("nonsense"))
		}},
		{"a key of no family", audit.RuleDamaged, "", func(s *plot) { s.put([]byte{0x99, 1}, []byte{}) }},
		{"a key before all families", audit.RuleDamaged, "", func(s *plot) { s.put([]byte{0x00}, []byte{1}) }},
		{"a deadline of no kind", audit.RuleDamaged, "bare", func(s *plot) {
			s.put(keys.DeadlineOf(77, 5, ns, name("bare")), []byte{})
		}},
		{"a promise under another's key", audit.RuleMisplaced, "bare", func(s *plot) {
			s.put(keys.Of(keys.Promise, ns, name("bare")), s.get(keys.Of(keys.Promise, ns, name("done"))))
		}},
		{"a header under another's key", audit.RuleMisplaced, "done", func(s *plot) {
			s.put(keys.Of(keys.Header, ns, name("done")), s.get(keys.Of(keys.Header, ns, name("failed"))))
		}},
		{"an entry inline that is none", audit.RuleDamaged, "done", func(s *plot) {
			s.inline(name("done"), func(entries [][]byte) [][]byte { entries[1] = []byte("nonsense"); return entries })
		}},
		{"an entry inline in another's place", audit.RuleMisplaced, "done", func(s *plot) {
			s.inline(name("done"), func(entries [][]byte) [][]byte { entries[2] = entries[1]; return entries })
		}},
		{"an end inline before the end", journal.RuleTerminalIsLast, "done", func(s *plot) {
			s.inline(name("done"), func(entries [][]byte) [][]byte {
				entries[1] = journal.AppendEntry(nil, journal.Entry{Seq: 1, Event: journal.ExecutionCompleted{}})
				return entries
			})
		}},
		{"a task inline, and a row", audit.RuleHeader, "done", func(s *plot) {
			task, _ := new(s.readHeader(name("done"))).InlineTask()
			s.put(keys.Of(keys.Task, ns, name("done")), recovery.AppendTask(nil, task))
		}},
		{"a journal inline, and a row", audit.RuleHeader, "done", func(s *plot) {
			h := s.readHeader(name("done"))
			s.put(keys.JournalEntry(ns, h.ID, h.Incarnation, 0), h.InlineEntries()[0])
		}},
		{"a task inline of another target", recovery.OrphanTasks, "done", func(s *plot) {
			p, _ := new(s.readHeader(name("done"))).InlinePromise()
			s.header(name("done"), (*state.Header).DropInlinePromise)
			p.Target = "g"
			s.put(keys.Of(keys.Promise, ns, p.ID), recovery.AppendPromise(nil, p))
		}},
		{"a promise inline, and a row", audit.RuleHeader, "done", func(s *plot) {
			p, _ := new(s.readHeader(name("done"))).InlinePromise()
			s.put(keys.Of(keys.Promise, ns, p.ID), recovery.AppendPromise(nil, p))
		}},
		{"a promise inline whose value is no outcome", audit.RuleOutcome, "failed", func(s *plot) {
			s.inline(name("failed"), func(entries [][]byte) [][]byte {
				entries[len(entries)-1] = journal.AppendEntry(nil, journal.Entry{Seq: uint64(len(entries) - 1), Event: journal.ExecutionFailed{Error: []byte("nonsense")}})
				return entries
			})
		}},
		{"an entry under another's number", audit.RuleMisplaced, "done", func(s *plot) {
			s.rows(name("done"))
			incarnation := s.readHeader(name("done")).Incarnation
			s.put(keys.JournalEntry(ns, name("done"), incarnation, 2), s.get(keys.JournalEntry(ns, name("done"), incarnation, 1)))
		}},

		// Journals.
		{"an attempt completed twice", journal.RuleCompletesOpenAttempt, "done", func(s *plot) {
			s.event(name("done"), 4, journal.InvokeCompleted{Promise: "x:0", Attempt: 1})
		}},
		{"a gap in a journal", journal.RuleSequence, "done", func(s *plot) { s.event(name("done"), 2, nil) }},
		{"an end before the end", journal.RuleTerminalIsLast, "done", func(s *plot) {
			s.event(name("done"), 1, journal.ExecutionCompleted{})
		}},
		{"a journal without its beginning", journal.RuleStartsWithStarted, "working", func(s *plot) {
			s.event(name("working"), 0, journal.CancelRequested{})
		}},
		{"a journal without an execution", audit.RuleOrphanJournal, "nobody", func(s *plot) {
			s.put(keys.JournalEntry(ns, name("nobody"), 3, 0), journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionStarted{}}))
		}},
		{"a journal of an earlier incarnation", audit.RuleOrphanJournal, "done", func(s *plot) {
			s.put(keys.JournalEntry(ns, name("done"), 0, 0), journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionStarted{}}))
		}},

		// Headers.
		{"another status", audit.RuleHeader, "working", func(s *plot) {
			s.header(name("working"), func(h *state.Header) { h.Status = journal.StatusBlocked })
		}},
		{"another length", audit.RuleHeader, "working", func(s *plot) {
			s.rows(name("working"))
			s.header(name("working"), func(h *state.Header) { h.Events++ })
		}},
		{"another function", audit.RuleHeader, "working", func(s *plot) { s.header(name("working"), func(h *state.Header) { h.Function = "g" }) }},
		{"another time", audit.RuleHeader, "working", func(s *plot) { s.header(name("working"), func(h *state.Header) { h.CreatedMS++ }) }},
		{"a leaf that calls", audit.RuleHeader, "calling", func(s *plot) { s.header(name("calling"), func(h *state.Header) { h.Leaf = true }) }},
		{"another end", audit.RuleHeader, "done", func(s *plot) { s.header(name("done"), func(h *state.Header) { h.ClosedMS++ }) }},
		{"another incarnation", audit.RuleHeader, "working", func(s *plot) {
			s.promise(name("working"), func(p *recovery.Promise) { p.Incarnation++ })
		}},
		{"another deadline", audit.RuleHeader, "working", func(s *plot) { s.header(name("working"), func(h *state.Header) { h.DeadlineMS = 7 }) }},
		{"a caller without a promise", audit.RuleHeader, "working", func(s *plot) {
			s.header(name("working"), func(h *state.Header) { h.Parent = "somebody" })
		}},
		{"a beginning that is to come", audit.RuleHeader, "working", func(s *plot) {
			s.put(keys.MetaKey(state.MetaApplied), keys.AppendUint64(nil, 1))
		}},
		{"a grace of one that was not asked", audit.RuleHeader, "working", func(s *plot) {
			s.header(name("working"), func(h *state.Header) { h.GraceAt = 9 })
		}},

		// Ends.
		{"no promise", audit.RuleOrphanExecution, "done", func(s *plot) { s.drop(keys.Of(keys.Promise, ns, name("done"))) }},
		{"no task", audit.RuleOrphanExecution, "working", func(s *plot) { s.drop(keys.Of(keys.Task, ns, name("working"))) }},
		{"no execution", audit.RuleOrphanExecution, "working", func(s *plot) { s.drop(keys.Of(keys.Header, ns, name("working"))) }},
		{"completed and rejected", audit.RuleEnding, "done", func(s *plot) {
			s.promise(name("done"), func(p *recovery.Promise) { p.State = recovery.PromiseRejected })
		}},
		{"completed and pending", audit.RuleEnding, "done", func(s *plot) {
			s.promise(name("done"), func(p *recovery.Promise) { p.State, p.Value, p.SettledAt = recovery.PromisePending, nil, 0 })
		}},
		{"completed with another result", audit.RuleEnding, "done", func(s *plot) {
			s.promise(name("done"), func(p *recovery.Promise) { p.Value = recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("y")}) })
		}},
		{"failed with another error", audit.RuleEnding, "failed", func(s *plot) {
			s.promise(name("failed"), func(p *recovery.Promise) { p.Value = state.EncodeFailure("it", "broke otherwise") })
		}},
		{"cancelled and timed out", audit.RuleEnding, "cancelled", func(s *plot) {
			s.promise(name("cancelled"), func(p *recovery.Promise) {
				p.State, p.Value, p.SettledAt = recovery.PromiseRejectedTimedout, nil, p.TimeoutAt
			})
		}},
		{"open and settled", audit.RuleEnding, "working", func(s *plot) {
			s.promise(name("working"), func(p *recovery.Promise) { p.State, p.SettledAt = recovery.PromiseResolved, p.CreatedAt })
		}},
		{"Running and suspended", audit.RuleSuspended, "working", func(s *plot) {
			s.task(name("working"), func(task *recovery.Task) {
				task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskSuspended, "", 0, 0
			})
		}},

		// The recovery protocol.
		{"a promise's deadline lost", recovery.MissingPromiseTimeout, "bare", func(s *plot) {
			s.promise(name("bare"), func(p *recovery.Promise) { s.drop(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, ns, p.ID)) })
		}},
		{"a lease's end lost", recovery.AcquiredTaskNoLease, "working", func(s *plot) {
			s.drop(keys.DeadlineOf(keys.DeadlineLease, s.readTask(name("working")).LeaseAt, ns, name("working")))
		}},
		{"a retry timer lost", recovery.PendingTaskNoTimeout, "waiting", func(s *plot) {
			s.put(keys.ReadyOf(ns, "f", s.readTask(name("waiting")).RetryAt, name("waiting")), []byte{})
		}},
		{"a callback in one direction", recovery.CallbackIndex, "sleeping", func(s *plot) {
			s.put(keys.Of(keys.AwaitedBy, ns, name("sleeping"), name("sleeping")+":0"), []byte{})
		}},
		{"a stray callback", recovery.CallbackOfSettledAwaiter, "done", func(s *plot) {
			s.put(keys.Of(keys.Callback, ns, name("bare"), name("done")), []byte{})
			s.put(keys.Of(keys.AwaitedBy, ns, name("done"), name("bare")), []byte{})
		}},
		{"a listener of what is settled", recovery.ListenerForSettledPromise, "done", func(s *plot) {
			s.put(keys.Of(keys.Listener, ns, name("done"), "somebody"), []byte{})
		}},
		{"a task fulfilled too early", recovery.SettledNotFulfilled, "working", func(s *plot) {
			s.task(name("working"), func(task *recovery.Task) {
				task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskFulfilled, "", 0, 0
			})
		}},
		{"a suspended task that awaits nothing", recovery.SuspendedNoCallback, "sleeping", func(s *plot) {
			s.promise(name("sleeping")+":0", func(p *recovery.Promise) { p.State, p.SettledAt = recovery.PromiseResolved, p.TimeoutAt })
		}},
		{"settled before it was made", recovery.PromiseTimes, "done", func(s *plot) {
			s.promise(name("done"), func(p *recovery.Promise) { p.SettledAt = p.CreatedAt - 1 })
		}},

		// Indexes.
		{"a deadline of a settled promise", audit.RuleDeadline, "done", func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlinePromise, 9_000_000, ns, name("done")), []byte{})
		}},
		{"a deadline of nothing", recovery.StalePromiseTimeout, "nobody", func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlinePromise, 9_000_000, ns, name("nobody")), []byte{})
		}},
		{"a second lease", audit.RuleDeadline, "working", func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineLease, 9_000_000, ns, name("working")), []byte{})
		}},
		{"a stray grace", audit.RuleDeadline, "working", func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineGrace, 9_000_000, ns, name("working")), []byte{})
		}},
		{"a grace lost", audit.RuleDeadline, "cancelling", func(s *plot) {
			s.drop(keys.DeadlineOf(keys.DeadlineGrace, s.readHeader(name("cancelling")).GraceAt, ns, name("cancelling")))
		}},
		{"a place in a queue lost", audit.RuleReady, "waiting", func(s *plot) {
			s.drop(keys.ReadyOf(ns, "f", s.readTask(name("waiting")).RetryAt, name("waiting")))
		}},
		{"a place in another queue", audit.RuleReady, "waiting", func(s *plot) {
			s.put(keys.ReadyOf(ns, "g", s.readTask(name("waiting")).RetryAt, name("waiting")), []byte{})
		}},
		{"a place of a held task", audit.RuleReady, "working", func(s *plot) { s.put(keys.ReadyOf(ns, "f", 5, name("working")), []byte{}) }},
		{"not listed", audit.RuleListing, "done", func(s *plot) {
			s.drop(keys.VisibilityOf(ns, keys.Completed, s.readHeader(name("done")).CreatedMS, name("done")))
		}},
		{"listed twice", audit.RuleListing, "done", func(s *plot) {
			s.put(keys.VisibilityOf(ns, keys.Open, s.readHeader(name("done")).CreatedMS, name("done")), []byte("f"))
		}},
		{"listed, and nothing there", audit.RuleListing, "nobody", func(s *plot) {
			s.put(keys.VisibilityOf(ns, keys.Open, 5, name("nobody")), []byte("f"))
		}},
		{"listed as another function", audit.RuleListing, "working", func(s *plot) {
			s.put(keys.VisibilityOf(ns, keys.Open, s.readHeader(name("working")).CreatedMS, name("working")), []byte("g"))
		}},

		// Operations.
		{"a timer's promise gone", audit.RuleOperation, "sleeping", func(s *plot) { s.drop(keys.Of(keys.Promise, ns, name("sleeping")+":0")) }},
		{"a timer for another time", audit.RuleOperation, "sleeping", func(s *plot) {
			s.promise(name("sleeping")+":0", func(p *recovery.Promise) { p.TimeoutAt++ })
		}},
		{"a child of another caller", audit.RuleOperation, "calling", func(s *plot) {
			s.header(name("calling")+":0", func(h *state.Header) { h.ParentIncarnation++ })
		}},
		{"an operation without an event", audit.RuleOperation, "working:5", func(s *plot) {
			s.put(keys.Of(keys.Promise, ns, name("working")+":5"), recovery.AppendPromise(nil, recovery.Promise{
				ID: name("working") + ":5", Incarnation: s.readHeader(name("working")).Incarnation, State: recovery.PromisePending,
				External: true, TimeoutAt: state.Never, CreatedAt: 5}))
		}},
		{"an operation of nobody", audit.RuleOperation, "nobody:0", func(s *plot) {
			s.put(keys.Of(keys.Promise, ns, name("nobody")+":0"), recovery.AppendPromise(nil, recovery.Promise{
				ID: name("nobody") + ":0", Incarnation: 1, State: recovery.PromisePending, External: true, TimeoutAt: state.Never, CreatedAt: 5}))
		}},

		// Values that are stored twice.
		{"a result that is no outcome", audit.RuleOutcome, "done", func(s *plot) {
			s.event(name("done"), 3, journal.InvokeCompleted{Promise: id.PromiseID(name("done") + ":0"), Attempt: 1, Result: []byte{9, 9}})
		}},
		{"a result without an outcome", audit.RuleOutcome, "done", func(s *plot) {
			s.event(name("done"), 3, journal.InvokeCompleted{Promise: id.PromiseID(name("done") + ":0"), Attempt: 1})
		}},
		{"an error that is a value", audit.RuleOutcome, "failed", func(s *plot) {
			s.event(name("failed"), s.readHeader(name("failed")).Events-1, journal.ExecutionFailed{Error: recovery.AppendOutcome(nil, recovery.Outcome{})})
		}},
		{"a payload that is no outcome", audit.RuleOutcome, "asking", func(s *plot) {
			s.event(name("asking"), s.readHeader(name("asking")).Events-1, journal.SignalDelivered{Name: "other", Payload: []byte{7}, DeliveryID: 1})
		}},
		{"a promise's value that is no outcome", audit.RuleOutcome, "done", func(s *plot) {
			s.promise(name("done"), func(p *recovery.Promise) { p.Value = []byte{9} })
		}},
		{"a child's result that its promise does not have", audit.RuleResult, "called", func(s *plot) {
			s.promise(name("called")+":0", func(p *recovery.Promise) {
				p.Value = recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("else")})
			})
		}},
		{"a child's result taken back", audit.RuleResult, "called", func(s *plot) {
			s.promise(name("called")+":0", func(p *recovery.Promise) { p.State, p.Value, p.SettledAt = recovery.PromisePending, nil, 0 })
		}},
		{"a child's promise gone", audit.RuleResult, "called", func(s *plot) { s.drop(keys.Of(keys.Promise, ns, name("called")+":0")) }},
		{"a timer that fired otherwise", audit.RuleResult, "called", func(s *plot) {
			s.promise(name("called")+":1", func(p *recovery.Promise) { p.State = recovery.PromiseRejected })
		}},
		{"a timer of another time", audit.RuleResult, "called", func(s *plot) {
			s.promise(name("called")+":1", func(p *recovery.Promise) { p.TimeoutAt, p.SettledAt = p.TimeoutAt+1, p.SettledAt+1 })
		}},
		{"a signal that its wait did not get", audit.RuleResult, "called", func(s *plot) {
			s.promise(name("called")+":2", func(p *recovery.Promise) {
				p.Value = recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("else")})
			})
		}},
		{"a child of another input", audit.RuleInput, "called:0", func(s *plot) {
			s.rows(name("called") + ":0")
			s.rows(name("called") + ":0")
			e, _ := journal.DecodeEntry(s.get(keys.JournalEntry(ns, name("called")+":0", s.readHeader(name("called")+":0").Incarnation, 0)))
			started := e.Event.(journal.ExecutionStarted)
			started.Input = []byte("else")
			s.event(name("called")+":0", 0, started)
		}},
		{"a child of another digest", audit.RuleInput, "calling:0", func(s *plot) { s.header(name("calling")+":0", func(h *state.Header) { h.Digest = "d" }) }},
		{"another tag", audit.RuleHeader, "working", func(s *plot) {
			s.header(name("working"), func(h *state.Header) { h.Tags = append(h.Tags, recovery.Tag{Key: "k"}) })
		}},
		{"a commit that ended what is open", audit.RuleHeader, "sleeping", func(s *plot) {
			s.header(name("sleeping"), func(h *state.Header) { h.LastState = recovery.TaskFulfilled })
		}},
		{"a problem that no task had", audit.RuleHeader, "working", func(s *plot) { s.header(name("working"), func(h *state.Header) { h.Problem = "none" }) }},
		{"settled before it was closed", audit.RuleEnding, "done", func(s *plot) {
			s.promise(name("done"), func(p *recovery.Promise) { p.CreatedAt, p.SettledAt = p.CreatedAt-1, p.SettledAt-1 })
		}},
		{"a callback of several lost", audit.RuleWait, "either", func(s *plot) {
			s.put(keys.MetaKey(state.MetaFeature), keys.AppendUint64(nil, state.LevelFunctions-1))
		}},
		{"a callback on another's operation", audit.RuleWait, "asking", func(s *plot) {
			s.put(keys.Of(keys.Callback, ns, name("bare"), name("asking")), []byte{})
			s.put(keys.Of(keys.AwaitedBy, ns, name("asking"), name("bare")), []byte{})
		}},
		{"resumed by what is pending", audit.RuleWait, "waiting", func(s *plot) {
			s.task(name("waiting"), func(task *recovery.Task) { task.Resumes = []string{name("bare")} })
		}},
		{"an entry of tomorrow", audit.RuleClock, "working", func(s *plot) {
			s.rows(name("working"))
			key := keys.JournalEntry(ns, name("working"), s.readHeader(name("working")).Incarnation, 0)
			e, _ := journal.DecodeEntry(s.get(key))
			e.Time += 1_000_000_000
			s.put(key, journal.AppendEntry(nil, e))
		}},
		{"a promise of tomorrow", audit.RuleClock, "bare", func(s *plot) {
			s.promise(name("bare"), func(p *recovery.Promise) {
				p.CreatedAt, p.TimeoutAt = p.CreatedAt+1_000_000_000, p.TimeoutAt+2_000_000_000
			})
		}},
		{"a promise of an entry to come", audit.RuleClock, "bare", func(s *plot) {
			s.promise(name("bare"), func(p *recovery.Promise) { p.Incarnation = 1 << 40 })
		}},
		{"a start of a child without a parent", audit.RuleMessage, "either", func(s *plot) {
			for n := range 8 {
				s.promise(name("either")+":"+strconv.Itoa(n+1), func(p *recovery.Promise) { p.Incarnation++ })
			}
		}},
		{"an end that its child did not have", audit.RuleMessage, "child", func(s *plot) {
			s.promise(name("child"), func(p *recovery.Promise) {
				p.Value = recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("else")})
			})
		}},
		{"a reply older than what is forgotten", audit.RuleReplies, "", func(s *plot) {
			s.put(keys.MetaKey(state.MetaEvicted), keys.AppendUint64(nil, 1<<40))
		}},

		// Messages and replies.
		{"a message lost among others", audit.RuleChannel, "partition 1", func(s *plot) { s.drop(keys.OutboxOf(far, 1, 2)) }},
		{"the newest message lost", audit.RuleChannel, "partition 1", func(s *plot) {
			last := uint64(1)
			for {
				if _, ok, _ := s.state.Get(keys.OutboxOf(far, 1, last+1)); !ok {
					break
				}
				last++
			}
			s.drop(keys.OutboxOf(far, 1, last))
		}},
		{"no channel", audit.RuleChannel, "partition 1", func(s *plot) { s.drop(keys.Number(keys.Channel, far)) }},
		{"a channel that counts too many bytes", audit.RuleChannel, "partition 1", func(s *plot) {
			ch, err := state.ReadChannel(s.state, keys.Number(keys.Channel, far))
			if err != nil || ch.Bytes == 0 {
				t.Fatalf("%+v: %v", ch, err)
			}
			ch.Bytes++
			s.put(keys.Number(keys.Channel, far), ch.Encode())
		}},
		{"an inbox that counts bytes", audit.RuleChannel, "partition 1", func(s *plot) {
			s.put(keys.Number(keys.Inbox, far), state.Channel{Epoch: 1, Last: 1, Bytes: 1}.Encode())
		}},
		{"a message for another", audit.RuleChannel, "done", func(s *plot) {
			b, err := state.Deterministic.Marshal(&commandv1.Message{Seq: 2, Namespace: ns, ToId: name("done"),
				Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{}}})
			if err != nil {
				t.Fatal(err)
			}
			s.put(keys.OutboxOf(far, 1, 2), b)
		}},
		{"a message of a cut that its sender is not in", audit.RuleChannel, "partition 1", func(s *plot) {
			m := &commandv1.Message{}
			if err := proto.Unmarshal(s.get(keys.OutboxOf(far, 1, 2)), m); err != nil {
				t.Fatal(err)
			}
			m.Cut = 3
			b, err := state.Deterministic.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			s.put(keys.OutboxOf(far, 1, 2), b)
		}},
		{"a reply without an age", audit.RuleReplies, "", func(s *plot) {
			b, err := state.StoredReply{At: 5, Reply: &commandv1.Reply{}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			s.put(keys.ReplyOf([]byte("request")), b)
		}},
		{"an age without a reply", audit.RuleReplies, "", func(s *plot) { s.put(keys.ReplyAgeOf(5, []byte("request")), []byte{}) }},
		{"another count of replies", audit.RuleReplies, "", func(s *plot) { s.put(keys.MetaKey(state.MetaReplies), keys.AppendUint64(nil, 77)) }},
		{"another number of replies' bytes", audit.RuleReplies, "", func(s *plot) { s.put(keys.MetaKey(state.MetaReplyBytes), keys.AppendUint64(nil, 77)) }},
		{"another size of a reply", audit.RuleReplies, "", func(s *plot) {
			b, err := state.StoredReply{At: 5, Reply: &commandv1.Reply{}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			s.put(keys.ReplyOf([]byte("request")), b)
			s.put(keys.ReplyAgeOf(5, []byte("request")), keys.AppendUint64(nil, 1))
		}},
		{"a size that is none", audit.RuleDamaged, "", func(s *plot) { s.put(keys.ReplyAgeOf(5, []byte("request")), []byte{1}) }},
		{"a clock of three bytes", audit.RuleDamaged, "", func(s *plot) { s.put(keys.MetaKey(state.MetaClock), []byte{1, 2, 3}) }},
	} {
		s := &plot{t, home.state.Clone(), home.cfg}
		c.plant(s)
		object := c.object
		if object != "" && !strings.HasPrefix(object, "partition ") {
			root, path, isPath := strings.Cut(object, ":")
			if object = name(root); isPath {
				object += ":" + path
			}
		}
		found := audited(t, s.state, s.cfg)
		if !breaks(found, c.rule, object) {
			t.Errorf("%s: %s of %q is not among what was found:\n%s", c.what, c.rule, object, lines(found))
		}
		sorted := slices.IsSortedFunc(found, func(x, y audit.Violation) int {
			return strings.Compare(x.Namespace+"\x00"+x.ID, y.Namespace+"\x00"+y.ID)
		})
		if again := audited(t, s.state, s.cfg); !sorted || !slices.Equal(found, again) {
			t.Errorf("%s: in no order, or in another one each time:\n%s", c.what, lines(found))
		}
	}
}

// An object of another partition is found, whatever else is right with it.
func TestAuditFindsStrangers(t *testing.T) {
	_, home, name := garden(t)
	found := audited(t, home.state, Config{Partition: 1, Partitions: 2})
	if !breaks(found, audit.RuleMisplaced, name("done")) || !breaks(found, audit.RuleMisplaced, name("bare")) {
		t.Errorf("as partition 1:\n%s", lines(found))
	}
}

// Values that are cut, grown or emptied are found, all of them, and nothing that a byte can become makes
// the audit panic.
func TestAuditFindsDamage(t *testing.T) {
	_, home, _ := garden(t)
	flips, noticed := 0, 0
	_ = home.state.Scan(nil, nil, func(key, value []byte) bool {
		key, value = bytes.Clone(key), bytes.Clone(value)
		try := func(value []byte) bool {
			st := home.state.Clone()
			st.Apply([]state.Write{{Key: key, Value: value}})
			report, err := audit.Run(st, 0, home.cfg.part())
			return err != nil || len(report.Violations) > 0
		}
		if !try(append(bytes.Clone(value), 0)) {
			t.Errorf("%s key %q: %q has grown, and nothing is found", keys.NameOf(key), key, value)
		}
		if len(value) == 0 {
			return true
		}
		if !try(value[:len(value)-1]) || !try([]byte{}) {
			t.Errorf("%s key %q: %q is cut, and nothing is found", keys.NameOf(key), key, value)
		}
		for i := 0; i < len(value); i += testkit.Choose(24, 24, 4) {
			flipped := bytes.Clone(value)
			flipped[i] ^= []byte{0x01, 0x80, 0xff}[i%3]
			flips++
			if try(flipped) {
				noticed++
			}
		}
		return true
	})
	t.Logf("%d flips, %d noticed", flips, noticed)
	if noticed < flips/2 {
		t.Errorf("of %d flipped bytes only %d were noticed", flips, noticed)
	}
}
