package recovery

import (
	"slices"
	"strings"
	"testing"
)

// soundStore is a state with something of everything, in which every invariant holds at 10.
func soundStore(t *testing.T) *world {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("y", false, 1000)
	w.make("pending", true, 1000)
	w.hold("acquired", 1000)
	w.sleep("suspended", 1000, "x", "y")
	w.hold("halted", 1000)
	_, err := Halt(w.s, 2, Ref{ID: "halted"})
	w.ok(2, err)
	w.hold("fulfilled", 1000)
	_, err = Settle(w.s, 3, Ref{ID: "fulfilled"}, PromiseResolved, []byte("v"))
	w.ok(3, err)
	w.make("late", false, 8)
	TimeoutPromise(w.s, 8, Ref{ID: "late"})
	_, err = RegisterListener(w.s, 9, Ref{ID: "x"}, "l", false)
	w.ok(9, err)
	w.sound(10)
	return w
}

// Each case breaks a sound state in one way. A state is broken through its maps where no operation and
// no write of a store could.
func TestInvariants(t *testing.T) {
	task := func(id string, change func(*Task)) func(*MemStore) {
		return func(s *MemStore) {
			got := s.tasks[id]
			change(&got)
			s.PutTask(got)
		}
	}
	promise := func(id string, change func(*Promise)) func(*MemStore) {
		return func(s *MemStore) {
			got := s.promises[id]
			change(&got)
			s.PutPromise(got)
		}
	}
	timer := func(id string, kind TaskTimerKind, at int64) func(*MemStore) {
		return func(s *MemStore) { s.taskTimers[id] = TaskTimer{id, kind, at} }
	}
	noTimer := func(id string) func(*MemStore) {
		return func(s *MemStore) { delete(s.taskTimers, id) }
	}
	for _, tc := range []struct {
		name  string
		broke func(*MemStore)
		want  []string // name:id
	}{
		{"nothing", func(*MemStore) {}, nil},
		{"target and no task", func(s *MemStore) { delete(s.tasks, "halted") }, []string{"orphan_invokes:halted"}},
		{"pending, task fulfilled", task("halted", func(t *Task) { *t = t.fulfilled() }), []string{"settled_not_fulfilled:halted"}},
		{"settled, task halted", promise("halted", func(p *Promise) { *p = p.settled(5, PromiseResolved, nil) }), []string{"settled_not_fulfilled:halted"}},
		{"no deadline", func(s *MemStore) { delete(s.promiseTimers, "x") }, []string{"missing_ptimeout:x"}},
		{"wrong deadline", func(s *MemStore) { s.promiseTimers["x"] = 3 }, []string{"missing_ptimeout:x"}},
		{"wrong deadline, unarmed", func(s *MemStore) {
			s.promises["plain"] = Promise{ID: "plain", State: PromisePending, TimeoutAt: 50}
			s.promiseTimers["plain"] = 49
		}, []string{"missing_ptimeout:plain"}},
		{"right deadline, unarmed", func(s *MemStore) {
			s.promises["plain"] = Promise{ID: "plain", State: PromisePending, TimeoutAt: 50}
			s.promiseTimers["plain"] = 50
		}, nil},
		{"deadline of nothing", func(s *MemStore) { s.promiseTimers["none"] = 3 }, []string{"stale_ptimeout:none"}},
		{"deadline of a settled one", func(s *MemStore) { s.promiseTimers["late"] = 8 }, []string{"stale_ptimeout:late"}},
		{"timed out at another time", promise("late", func(p *Promise) { p.SettledAt = 7 }), []string{"timedout_settled_at_mismatch:late"}},
		{"timed out late", promise("late", func(p *Promise) { p.SettledAt = 9 }), []string{"timedout_settled_at_mismatch:late", "promise_times:late"}},
		{"timed out, a timer", promise("late", func(p *Promise) { p.Timer = true }), []string{"promise_times:late"}},
		{"timed out with a value", promise("late", func(p *Promise) { p.Value = []byte("v") }), []string{"promise_times:late"}},
		{"settled before it was", promise("fulfilled", func(p *Promise) { p.CreatedAt = 4 }), []string{"promise_times:fulfilled"}},
		{"pending with a value", promise("x", func(p *Promise) { p.Value = []byte("v") }), []string{"promise_times:x"}},
		{"pending and settled", promise("x", func(p *Promise) { p.SettledAt = 4 }), []string{"promise_times:x"}},
		{"born after its deadline", promise("x", func(p *Promise) { p.CreatedAt = 1000 }), []string{"promise_times:x"}},
		{"no state", promise("y", func(p *Promise) { p.State = 0 }), []string{"promise_times:y", "suspended_with_consumed_callbacks:suspended"}},
		{"listener of a settled one", func(s *MemStore) { s.AddListener("late", "l") }, []string{"listener_for_settled_promise:late"}},
		{"callback of a settled one", func(s *MemStore) { s.AddCallback("late", "acquired") }, []string{"listener_for_settled_promise:late"}},
		{"listener of nothing", func(s *MemStore) { s.AddListener("none", "l") }, []string{"listener_for_settled_promise:none"}},
		{"task of nothing", func(s *MemStore) { delete(s.promises, "halted"); delete(s.promiseTimers, "halted") }, []string{"orphan_tasks:halted"}},
		{"task of a promise without target", promise("halted", func(p *Promise) { p.Target = "" }),
			[]string{"orphan_tasks:halted", "orphan_tasks:halted"}},
		{"task of another incarnation", task("halted", func(t *Task) { t.Incarnation = 8 }), []string{"orphan_tasks:halted"}},
		{"task of another target", task("halted", func(t *Task) { t.Target = "v" }), []string{"orphan_tasks:halted"}},
		{"task without state", task("halted", func(t *Task) { t.State = 0 }), []string{"orphan_tasks:halted"}},
		{"pending, no timer", noTimer("pending"), []string{"pending_task_no_ttimeout:pending"}},
		{"pending, another time", timer("pending", RetryTimer, 5), []string{"pending_task_no_ttimeout:pending"}},
		{"pending, a lease timer", timer("pending", LeaseTimer, 100), []string{"pending_task_no_ttimeout:pending"}},
		{"pending, held", task("pending", func(t *Task) { t.PID = "p" }), []string{"acquired_task_no_lease:pending"}},
		{"retry timer of nothing", timer("none", RetryTimer, 5), []string{"pending_task_no_ttimeout:none"}},
		{"acquired, no timer", noTimer("acquired"), []string{"acquired_task_no_lease:acquired"}},
		{"acquired, a retry timer", timer("acquired", RetryTimer, 50), []string{"acquired_task_no_lease:acquired"}},
		{"acquired, another time", timer("acquired", LeaseTimer, 51), []string{"acquired_task_no_lease:acquired"}},
		{"acquired without a holder", task("acquired", func(t *Task) { t.PID = "" }), []string{"acquired_task_no_lease:acquired"}},
		{"acquired for no time", task("acquired", func(t *Task) { t.TTL = 0 }), []string{"acquired_task_no_lease:acquired"}},
		{"acquired and retried", task("acquired", func(t *Task) { t.RetryAt = 4 }), []string{"pending_task_no_ttimeout:acquired"}},
		{"acquired before it was", task("acquired", func(t *Task) { t.Version = 0 }), []string{"acquired_task_no_lease:acquired"}},
		{"lease timer of nothing", timer("none", LeaseTimer, 5), []string{"acquired_task_no_lease:none"}},
		{"suspended on nothing", func(s *MemStore) {
			s.RemoveCallback("x", "suspended")
			s.RemoveCallback("y", "suspended")
		}, []string{"suspended_no_callback:suspended"}},
		{"suspended on a settled one", func(s *MemStore) { s.AddCallback("late", "suspended") },
			[]string{"listener_for_settled_promise:late", "suspended_with_consumed_callbacks:suspended"}},
		{"suspended with resumes", task("suspended", func(t *Task) { t.Resumes = []string{"x"} }), []string{"suspended_with_consumed_callbacks:suspended"}},
		{"suspended with a timer", timer("suspended", RetryTimer, 5), []string{"suspended_task_has_ttimeout:suspended"}},
		{"halted with a timer", timer("halted", LeaseTimer, 5), []string{"suspended_task_has_ttimeout:halted"}},
		{"fulfilled with a timer", timer("fulfilled", RetryTimer, 5), []string{"fulfilled_task_has_ttimeout:fulfilled"}},
		{"fulfilled with resumes", task("fulfilled", func(t *Task) { t.Resumes = []string{"x"} }), []string{"fulfilled_task_has_ttimeout:fulfilled"}},
		{"fulfilled and held", task("fulfilled", func(t *Task) { t.TTL = 5 }), []string{"acquired_task_no_lease:fulfilled"}},
		{"awaiter without target", func(s *MemStore) { s.AddCallback("x", "y") }, []string{"callback_awaiter_no_target:y"}},
		{"awaiter that is not there", func(s *MemStore) { s.AddCallback("x", "none") }, []string{"callback_awaiter_no_target:none"}},
		{"awaits itself", func(s *MemStore) { s.AddCallback("halted", "halted") }, []string{"callback_awaiter_no_target:halted"}},
		{"awaits nothing that is", func(s *MemStore) { s.AddCallback("none", "halted") }, []string{"callback_index:none"}},
		{"settled and waiting", func(s *MemStore) { s.AddCallback("x", "fulfilled") }, []string{"callback_of_settled_awaiter:fulfilled"}},
		{"one way only", func(s *MemStore) { s.callbacks.add("x", "acquired") }, []string{"callback_index:acquired"}},
		{"the other way only", func(s *MemStore) { s.awaitedBy.add("acquired", "x") }, []string{"callback_index:acquired"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := soundStore(t).s
			tc.broke(s)
			var got []string
			for _, v := range Invariants(s, 10) {
				got = append(got, v.Name+":"+v.ID)
				if v.Detail == "" || !strings.HasPrefix(v.String(), v.Name+": ") {
					t.Errorf("nothing said in %v", v)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// One that is past its own deadline may be left without a callback; one that is not may not.
func TestSuspendedPastItsDeadline(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.sleep("a", 20, "x")
	_, fx, err := Chain(w.s, 30, Ref{ID: "x"}, PromiseResolved, nil, retry)
	w.ok(30, err)
	w.effects(fx)
	got := Invariants(w.s, 19)
	if len(got) != 1 || got[0].Name != SuspendedNoCallback {
		t.Errorf("at 19: %v", got)
	}
}
