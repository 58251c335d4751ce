package machine

import (
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// clientGarden is a state with what clients of the recovery protocol have made:
//
//	pending      a task that nobody has acquired
//	held         a task that p holds; it has made held:0, which is pending
//	asleep       a task that awaits asleep:0
//	ended        a fulfilled task, whose listener has yet to be told
//	timer        a promise without a target, which its deadline resolves
//	nightly      a schedule that has run once
func clientGarden(t *testing.T) *world {
	w := newWorld(t, 1)
	const far = 1_000_000
	w.step(clientPromise("pending", far, state.TagTarget, worker), "execute pending v0 at "+worker)
	for _, objectID := range []string{"held", "asleep", "ended"} {
		w.step(clientPromise(objectID, far, state.TagTarget, worker), "execute "+objectID+" v0 at "+worker)
		w.step(acquire(objectID, 0))
	}
	for _, of := range []string{"held", "asleep"} {
		w.step(&perdurev1.FenceClientTaskRequest{Id: of, Version: 1, Action: &perdurev1.FenceClientTaskRequest_Create{
			Create: clientPromise(of+":0", far, state.TagExternal, "true")}})
	}
	w.step(&perdurev1.SuspendClientTaskRequest{Id: "asleep", Version: 1, Awaited: []string{"asleep:0"}})
	w.step(&perdurev1.RegisterListenerRequest{Id: "ended", Address: listener})
	w.step(&perdurev1.FulfillClientTaskRequest{Id: "ended", Version: 1, State: resolve}, "unblock ended resolved at "+listener)
	w.step(clientPromise("timer", far, state.TagTimer, "true"))
	s := w.scheduled(&perdurev1.CreateScheduleRequest{Id: "nightly", Cron: "0 2 * * *", PromiseId: "night", NextRunAtMs: 5000})
	w.scheduled(&perdurev1.AdvanceScheduleRequest{Id: "nightly", Incarnation: s.Incarnation, RanAtMs: 5000, NextRunAtMs: 9000})
	return w
}

// listener is an address of a client that waits.
const listener = "poll://uni@g/c"

// The audit finds every violation that is planted in what clients have made, with its rule and its object.
func TestAuditFindsWhatIsPlantedInClients(t *testing.T) {
	home := clientGarden(t).parts[0]
	if found := audited(t, home.state, home.cfg); len(found) > 0 {
		t.Fatalf("before anything was planted:\n%s", lines(found))
	}
	schedule := func(s *plot, change func(*perdurev1.Schedule)) {
		key := keys.Of(keys.Schedule, ns, "nightly")
		stored, err := state.DecodeSchedule(s.get(key))
		if err != nil {
			t.Fatal(err)
		}
		change(stored)
		b, err := state.EncodeSchedule(stored)
		if err != nil {
			t.Fatal(err)
		}
		s.put(key, b)
	}
	unblock := keys.Of(keys.Unblock, ns, listener, "ended")
	for _, c := range []struct {
		what, rule, object string
		plant              func(s *plot)
	}{
		// Promises and their tags.
		{"a target that the tags do not have", audit.RuleClient, "pending", func(s *plot) {
			s.promise("pending", func(p *recovery.Promise) { p.Target = state.ClientTarget("poll://any@other") })
		}},
		{"a target that is a function's name", audit.RuleClient, "pending", func(s *plot) {
			s.promise("pending", func(p *recovery.Promise) { p.Target = worker })
		}},
		{"an address of a promise that is no client's", audit.RuleClient, "pending", func(s *plot) {
			s.promise("pending", func(p *recovery.Promise) { p.Tags = state.UserTags(p.Tags) })
		}},
		{"a deadline that no longer resolves", audit.RuleClient, "timer", func(s *plot) {
			s.promise("timer", func(p *recovery.Promise) { p.Timer = false })
		}},
		{"a promise that nobody outside may settle", audit.RuleClient, "held:0", func(s *plot) {
			s.promise("held:0", func(p *recovery.Promise) { p.External = false })
		}},
		{"a delay that the tags do not have", audit.RuleClient, "pending", func(s *plot) {
			s.promise("pending", func(p *recovery.Promise) { p.DelayUntil = 7 })
		}},
		{"a parameter of no form", audit.RuleClient, "pending", func(s *plot) {
			s.promise("pending", func(p *recovery.Promise) { p.Tags[0].Value = "\xff" })
		}},
		{"an empty parameter with bytes", audit.RuleClient, "pending", func(s *plot) {
			s.promise("pending", func(p *recovery.Promise) {
				p.Tags = state.ClientTags(state.UserTags(p.Tags), recovery.DataEmpty, nil)
			})
		}},

		// Tasks.
		{"a task that is gone", recovery.OrphanInvokes, "pending", func(s *plot) { s.drop(keys.Of(keys.Task, ns, "pending")) }},
		{"a task whose promise is gone", recovery.OrphanTasks, "pending", func(s *plot) { s.drop(keys.Of(keys.Promise, ns, "pending")) }},
		{"a lease without its end", recovery.AcquiredTaskNoLease, "held", func(s *plot) {
			s.drop(keys.DeadlineOf(keys.DeadlineLease, s.readTask("held").LeaseAt, ns, "held"))
		}},
		{"a task that is announced no more", recovery.PendingTaskNoTimeout, "pending", func(s *plot) {
			s.drop(keys.DeadlineOf(keys.DeadlineRetry, s.readTask("pending").RetryAt, ns, "pending"))
		}},
		{"a task that no worker finds", audit.RuleReady, "pending", func(s *plot) {
			task := s.readTask("pending")
			s.drop(keys.ReadyOf(ns, task.Target, task.RetryAt, task.ID))
		}},
		{"a held task that workers find", audit.RuleReady, "held", func(s *plot) {
			s.put(keys.ReadyOf(ns, s.readTask("held").Target, 5, "held"), []byte{})
		}},
		{"a suspended task that awaits nothing", recovery.SuspendedNoCallback, "asleep", func(s *plot) {
			s.drop(keys.Of(keys.Callback, ns, "asleep:0", "asleep"))
			s.drop(keys.Of(keys.AwaitedBy, ns, "asleep", "asleep:0"))
		}},
		{"a fulfilled task of an open promise", recovery.SettledNotFulfilled, "held", func(s *plot) {
			s.task("held", func(task *recovery.Task) {
				task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskFulfilled, "", 0, 0
			})
		}},
		{"a listener of what is settled", recovery.ListenerForSettledPromise, "ended", func(s *plot) {
			s.put(keys.Of(keys.Listener, ns, "ended", listener), []byte{})
		}},

		// Unblocks.
		{"an unblock cut short", audit.RuleDamaged, "ended", func(s *plot) { s.put(unblock, s.get(unblock)[:5]) }},
		{"an unblock with more behind it", audit.RuleDamaged, "ended", func(s *plot) { s.put(unblock, append(slices.Clone(s.get(unblock)), 1)) }},
		{"an unblock without its end", audit.RuleDeadline, "ended", func(s *plot) {
			at, _, _ := keys.CutUint64(s.get(unblock))
			s.drop(keys.DeadlineOf(keys.DeadlineUnblock, int64(at), ns, state.UnblockID("ended", listener)))
		}},
		{"the end of an unblock that is gone", audit.RuleDeadline, "ended", func(s *plot) { s.drop(unblock) }},
		{"a second end of an unblock", audit.RuleDeadline, "ended", func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineUnblock, 7, ns, state.UnblockID("ended", listener)), []byte{})
		}},

		// Schedules.
		{"a schedule cut short", audit.RuleDamaged, "nightly", func(s *plot) {
			key := keys.Of(keys.Schedule, ns, "nightly")
			s.put(key, s.get(key)[:5])
		}},
		{"a schedule under another's key", audit.RuleDamaged, "daily", func(s *plot) {
			s.put(keys.Of(keys.Schedule, ns, "daily"), s.get(keys.Of(keys.Schedule, ns, "nightly")))
		}},
		{"a next run that is over", audit.RuleSchedule, "nightly", func(s *plot) {
			schedule(s, func(stored *perdurev1.Schedule) { stored.NextRunAtMs = stored.LastRunAtMs })
		}},
		{"a schedule of an entry to come", audit.RuleSchedule, "nightly", func(s *plot) {
			schedule(s, func(stored *perdurev1.Schedule) { stored.Incarnation = 1 << 40 })
		}},
		{"a schedule of no entry", audit.RuleSchedule, "nightly", func(s *plot) {
			schedule(s, func(stored *perdurev1.Schedule) { stored.Incarnation = 0 })
		}},
		{"a schedule of tomorrow", audit.RuleClock, "nightly", func(s *plot) {
			schedule(s, func(stored *perdurev1.Schedule) { stored.CreatedAtMs += 86_400_000 })
		}},
	} {
		s := &plot{t: t, state: home.state.Clone(), cfg: home.cfg}
		c.plant(s)
		found := audited(t, s.state, s.cfg)
		if !breaks(found, c.rule, c.object) {
			t.Errorf("%s: want %s of %q, found:\n%s", c.what, c.rule, c.object, strings.TrimSpace(lines(found)))
		}
	}
	other := Config{Partition: 1 - state.PartitionOf(ns, "nightly", 2), Partitions: 2}
	if found := audited(t, home.state, other); !breaks(found, audit.RuleMisplaced, "nightly") {
		t.Errorf("a schedule of another partition: found:\n%s", lines(found))
	}
}
