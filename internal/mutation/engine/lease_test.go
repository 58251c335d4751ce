package engine

import (
	"time"

	"perdure/internal/mutation"
)

// leaseBugs break the leases of tasks: who extends them, how long they last, what their end means.
var leaseBugs = []mutation.Bug{
	{
		File: "fsm/machine/heartbeat.go", Rule: "lease: a heartbeat extends its own worker's leases only",
		From: `recovery.Heartbeat(t.store(token.Namespace), t.now, req.Worker,`, To: `recovery.Heartbeat(t.store(token.Namespace), t.now, func() string { task, _ := t.store(token.Namespace).Task(token.Id); return task.PID }(),`,
		Tests: "TestLease",
	},
	{
		File: "fsm/machine/heartbeat.go", Rule: "lease: who has lost a task learns it from the heartbeat",
		From: `reply.Lost = append(reply.Lost, token)`, To: `_ = token`, Tests: "TestLease",
	},
	{
		File: "fsm/machine/heartbeat.go", Rule: "heartbeat of a step: what it reports is stored",
		From: `t.reported(ex, of)`, To: `_ = of`, Tests: "TestStepHeartbeat",
	},
	{
		File: "fsm/machine/step_heartbeat.go", Rule: "heartbeat of a step: a step with a result has none",
		From: `return !inv.Completed && state.RunsLocally(inv.Kind)`, To: `return state.RunsLocally(inv.Kind)`, Tests: "TestStepHeartbeat",
	},
	{
		File: "fsm/machine/step_heartbeat.go", Rule: "heartbeat of a step: they are bounded in number",
		From: `!known && len(stored) == state.MaxHeartbeats`, To: `!known && len(stored) == 2*state.MaxHeartbeats`, Tests: "TestStepHeartbeatDropped",
	},
	{
		File: "fsm/machine/execution.go", Rule: "heartbeat of a step: they end with the execution",
		From: "t.dropHeartbeats(ex)\n\tt.reachChildren(ex)", To: "t.reachChildren(ex)", Tests: "TestStepHeartbeatEnds",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "heartbeat of a step: they end with the incarnation",
		From: "t.leaveSection(old)\n\tt.dropHeartbeats(old)", To: "t.leaveSection(old)", Tests: "TestStepHeartbeatEnds",
	},
	{
		File: "fsm/machine/release.go", Rule: "heartbeat of a step: a release carries them",
		From: `t.reported(ex, req.Steps)`, To: `_ = req.Steps`, Tests: "TestStepHeartbeat",
	},
	{
		File: "fsm/machine/step_heartbeat.go", Rule: "heartbeat of a step: replicas without the feature level store none",
		From: `t.m.feature < state.LevelFunctions || ex.h.Status.Terminal()`, To: `ex.h.Status.Terminal()`, Tests: "TestStepHeartbeatNeedsLevel",
	},
	{
		File: "durable/commit.go", Rule: "heartbeat of a step: a task that is given back has them",
		From: `Steps: t.lastReports()}}}`, To: `}}}`, Tests: "TestHeartbeatDetailsOfALongPause",
	},
	{
		File: "recovery/inherit.go", Rule: "lease: an inherited one lasts from the new leader's clock on",
		From: `at := after(max(now, since), t.TTL)`, To: `at := after(now, t.TTL)`, Tests: "TestInheritLease",
	},
	{
		File: "recovery/inherit.go", Rule: "lease: one that has ended is not inherited",
		From: `t.LeaseAt <= now ||`, To: `t.LeaseAt == 0 ||`, Tests: "TestInheritLease",
	},
	{
		File: "fsm/machine/inherit.go", Rule: "lease: all of them are inherited, however many",
		From: `reply.Next = append([]byte(nil), key...)`, To: `_ = key`, Tests: "TestNewLeaderGivesLeasesTheirFullTime",
	},
	{
		File: "partition/group/leader.go", Pkg: "partition", Rule: "lease: a new leader inherits them before it serves",
		From: `err = l.inheritLeases()`, To: `err = nil`, Tests: "TestLeasesAreInherited",
	},
	{
		File: "recovery/task.go", Rule: "lease: one that has run out commits nothing",
		From: `if t.State == TaskAcquired && t.LeaseAt <= now {`, To: `if t.State == TaskAcquired && t.LeaseAt <= 0 {`, Tests: "TestFence",
	},
	{
		File: "durable/worker.go", Rule: "lease: it does not count from the arrival of its task",
		From: `if from := w.timestamps.when(task.GetAcquiredAfter()); w.ended.covers(from) {`, To: `if from := w.clock.Now(); w.ended.covers(from) {`,
		Tests: "TestLateTaskIsConfirmed",
	},
	{
		File: "durable/lease.go", Rule: "lease: nothing begins in its last part",
		From: `return length - length/leaseMargin - elapsed(from, now)`, To: `return length - elapsed(from, now)`, Tests: "TestLeaseLeft",
	},
	{
		File: "durable/lease.go", Rule: "lease: one of which nothing is known has no time left",
		From: "if from.IsZero() {\n\t\treturn 0\n\t}", To: "if from.IsZero() {\n\t\treturn length\n\t}", Tests: "TestLeaseLeft",
	},
	{
		File: "durable/worker.go", Rule: "lease: what a worker has finished is not begun again",
		From: `, w.ended.has(t.key):`, To: `:`, Tests: "TestFinishedTaskIsNotBegunAgain",
	},
	{
		File: "partition/workers/assign.go", Rule: "lease: a worker that says nothing is given nothing",
		From: `if free == 0 || s.silent(now) ||`, To: `if free == 0 || now.IsZero() ||`, Tests: "TestHungWorkerIsNotHeardByConnecting",
	},
	{
		File: "partition/workers/link.go", Rule: "lease: a worker that hangs is not heard from because a node connects",
		From: `d.now().Sub(w.session.heard).Milliseconds()`, To: `0`, Tests: "TestHungWorkerIsNotHeardByConnecting",
	},
	{
		File: "partition/workers/link.go", Rule: "lease: a former leader's task is not passed on",
		From: `switch stale := k.Task.Term > 0 && d.env.Term(token.GetNamespace(), token.GetId()) > k.Task.Term; {`, To: `switch stale := false; {`, Tests: "TestFormerLeadersTaskIsDropped",
	},
	{
		File: "partition/workers/release.go", Rule: "lease: a node that did not send a redelivered task does not return it",
		From: `return led != nil && led.lead == q.lead && !led.resent.has(creditTask(q.Token))`, To: `return led != nil && led.lead == q.lead`, Tests: "TestResentIsNotReturned",
	},
	{
		File: "durable/activation.go", Rule: "lease: it is looked at last before a step",
		From: `if leaseLeft(from, t.w.clock.Now(), t.w.opts.Lease) > 0 {`, To: `if leaseLeft(from, from, t.w.opts.Lease) > 0 {`, Tests: "TestLeaseEndsBeforeTheStep",
	},
	{
		File: "durable/run.go", Rule: "lease: a step is called while it surely holds",
		From: "\t\t\ts.t.secureLease()\n", To: "", Tests: "TestLeaseEndsBeforeTheStep TestSleptPastTheLease",
	},
	{
		File: "durable/lease.go", Rule: "lease: what a worker has finished stays known when the memory for it grows",
		From: `*e.token(n) = *former.token(n)`, To: `_ = former`, Tests: "TestEndedTwin",
	},
	{
		File: "durable/lease.go", Rule: "lease: a token that was replaced takes nothing with it",
		From: `if e.byExec[exec] == e.first {`, To: `if true {`, Tests: "TestEndedTwin",
	},
	{
		File: "durable/lease.go", Rule: "lease: what a worker may have forgotten is not trusted",
		From: `return !from.IsZero() && from.After(e.gone)`, To: `return !from.IsZero()`, Tests: "TestEndedIsBounded",
	},
	{
		File: "partition/workers/session.go", Pkg: "partition", Rule: "lease: workers of different namespaces have nothing to do with each other",
		From: `return workerKey{s.Namespace, s.ID}`, To: `return workerKey{"", s.ID}`, Tests: "TestNamespacesHaveWorkersOfTheirOwn", Hangs: 30 * time.Second,
	},
}
