package rules

import "perdure/internal/mutation"

// clientBugs break the guards of commands of clients of the recovery protocol, and the back-off of their releases.
var clientBugs = []mutation.Bug{
	{
		File: "fsm/machine/client.go", Rule: "client promise: no tag of the server",
		From: "reserved := state.ReservedTag(tags); reserved {", To: "reserved := state.ReservedTag(nil); reserved {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: a deadline is a time",
		From: "if req.TimeoutAtMs < 0 || req.TimeoutAtMs > state.Never {", To: "if req.TimeoutAtMs < 0 {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: a target is an address",
		From: `address == "" || len(address)`, To: `len(address)`, Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: an address has no NUL",
		From: ` || strings.IndexByte(address, 0) >= 0`, To: "", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: an address is not an asker's",
		From: ` || strings.HasPrefix(address, askerScheme)`, To: "", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: a delay ends before the deadline",
		From: `at >= out.TimeoutAt {`, To: `at > out.TimeoutAt+1 {`, Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: a delay is not negative",
		From: "if err != nil || at < 0 {", To: "if err != nil {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: an id of an execution's operation is not free",
		From: "if _, ok := t.headerOf(ns, id.Origin(objectID)); ok {", To: "if _, ok := t.headerOf(ns, objectID); ok {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: an id of an entity is not free",
		From: "task || call {", To: "task && call {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: data has the form that it says",
		From: "if !ok || !form.Fits(v.GetData()) {", To: "if !ok {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client promise: the run of a schedule is created at its time",
		From: "CreatedAt: req.CreatedAtMs,", To: "CreatedAt: 0 * req.CreatedAtMs,", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client.go", Rule: "client task: requests of clients reach no execution",
		From: "if _, client := state.AddressOf(task.Target); client {\n\t\treturn nil", To: "if _, client := state.AddressOf(task.Target); client || ok {\n\t\treturn nil", Tests: "TestClientsReachNoExecution",
	},
	{
		File: "fsm/machine/client_task_create.go", Rule: "client task: an execution's task is not acquired by creating it",
		From: `p.Target != "" && !state.OfClient(p) {`, To: `p.Target == "" && !state.OfClient(p) {`, Tests: "TestClientsReachNoExecution",
	},
	{
		File: "fsm/machine/client_promise_settle.go", Rule: "client promise: a client settles no execution",
		From: "to.Settable() && refused != nil {", To: "to.Settable() && refused == nil {", Tests: "TestClientsReachNoExecution TestClientTaskGuards",
	},
	{
		File: "fsm/machine/callback_register.go", Rule: "client task: an execution does not wait by a callback",
		From: `own.Target != "" && !state.OfClient(own) {`, To: `own.Target == "" && !state.OfClient(own) {`, Tests: "TestClientsReachNoExecution",
	},
	{
		File: "fsm/machine/callback_register.go", Rule: "client task: a callback is of one origin",
		From: "refused := sameOrigin(ns, req.Id, req.Awaiter); refused != nil {", To: "refused := sameOrigin(ns, req.Id, req.Id); refused != nil {", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/client_task_suspend.go", Rule: "client task: a suspend is of one origin, checked before the task",
		From: "refused := sameOrigin(ns, a, req.Id); refused != nil {", To: "refused := sameOrigin(ns, a, a); refused != nil {", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/client_task_suspend.go", Rule: "client task: the promises of a suspend are bounded",
		From: "if len(req.Awaited) > maxAwaited {", To: "if len(req.Awaited) > 2*maxAwaited {", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/client_task_fence.go", Rule: "client task: a fence is not on its own promise",
		From: "case other == req.Id:", To: "case other == \"\":", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/client_task_fence.go", Rule: "client task: a fence reaches no other partition",
		From: "case state.PartitionOf(ns, other, t.m.cfg.Partitions) != t.m.cfg.Partition:", To: "case other == \"\":", Tests: "TestClientsOfOnePartition",
	},
	{
		File: "fsm/machine/client_task_fence.go", Rule: "client task: a fence's state is checked before its task",
		From: "case req.GetSettle() != nil && !to.Settable():", To: "case req.GetSettle() != nil && to == 77:", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/client_task_fence.go", Rule: "client task: a fence's promise is checked before its task",
		From: "_, refused := t.clientPromise(ns, create); refused != nil {", To: "_, refused := t.clientPromise(ns, create); refused != nil && req.Version == 0 {", Tests: "TestClientPromiseGuards",
	},
	{
		File: "fsm/machine/client_task_fence.go", Rule: "client task: a fence acts only for the holder",
		From: "_, err := recovery.Fence(t.store(ns), t.now, taskRef(req.Id, req.Version)); err != nil {", To: "_, err := recovery.Fence(t.store(ns), t.now, taskRef(req.Id, req.Version)); err != nil && req.Version == 0 {", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/client_task_heartbeat.go", Rule: "client task: a heartbeat extends no execution's lease",
		From: " || t.clientTask(ns, ref.Id) != nil {", To: " {", Tests: "TestClientsReachNoExecution",
	},
	{
		File: "fsm/machine/listener_register.go", Rule: "client promise: a listener has an address",
		From: "refused := checkAddress(ns, req.Id, req.Address); refused != nil {", To: "refused := checkAddress(ns, req.Id, \"x\"); refused != nil {", Tests: "TestClientTaskGuards",
	},
	{
		File: "fsm/machine/schedule_create.go", Rule: "schedule: an id is a root",
		From: "if err := id.ValidateRoot(req.Id); err != nil {", To: "if err := id.Validate(req.Id); err != nil {", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/schedule_create.go", Rule: "schedule: one that exists is answered as it is",
		From: "s, ok := t.schedule(ns, req.Id); ok {", To: "s, ok := t.schedule(ns, req.Id); ok && s.Cron == req.Cron {", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/schedule_create.go", Rule: "schedule: the first run is at a time",
		From: "req.NextRunAtMs < 1 || ", To: "", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/schedule_create.go", Rule: "schedule: its promises have no tag of the server",
		From: "case reserved:", To: "case reserved && t == nil:", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/schedule_advance.go", Rule: "schedule: a report of a former incarnation changes nothing",
		From: "s.Incarnation != req.Incarnation || ", To: "", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/schedule_advance.go", Rule: "schedule: a report of another run changes nothing",
		From: " || s.NextRunAtMs != req.RanAtMs:", To: ":", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/schedule_advance.go", Rule: "schedule: the next run is after the last",
		From: "req.NextRunAtMs <= req.RanAtMs", To: "req.NextRunAtMs < req.RanAtMs", Tests: "TestClientSchedule TestClientScheduleIsRefused",
	},
	{
		File: "fsm/machine/unblock.go", Rule: "unblock: it is given up after its time",
		From: "objectID, address := state.CutUnblockID(unblockID)", To: "address, objectID := state.CutUnblockID(unblockID)", Tests: "TestUnblockExpires",
	},
	{
		File: "recovery/return.go", Rule: "release: the first one in a row has no delay",
		From: "if n < 2 {", To: "if n < 1 {", Tests: "TestReturnBacksOff",
	},
	{
		File: "recovery/return.go", Rule: "release: the delay doubles",
		From: "delay *= 2", To: "delay++", Tests: "TestReturnBacksOff",
	},
	{
		File: "recovery/return.go", Rule: "release: the delay is at most the retry interval",
		From: "return min(delay, max(retry, 1))", To: "return delay", Tests: "TestReturnBacksOff",
	},
	{
		File: "recovery/return.go", Rule: "release: a task that was held for the interval begins the count again",
		From: "t.ReleasedAt <= now-max(retry, 1)", To: "t.ReleasedAt <= now-2*max(retry, 1)", Tests: "TestReturnBacksOff",
	},
	{
		File: "recovery/return.go", Rule: "release: the interval counts from when the task could be executed",
		From: "t.ReleasedAt = after(now, delay)\n\t\tt = t.pending(t.ReleasedAt)", To: "t = t.pending(after(now, delay))", Tests: "TestReturnBacksOff",
	},
	{
		File: "recovery/task.go", Rule: "release: a wait begins the count again",
		From: "t.State, t.RetryAt = TaskSuspended, 0\n\tt.PID, t.TTL, t.LeaseAt = \"\", 0, 0\n\tt.Resumes, t.Releases, t.ReleasedAt = nil, 0, 0",
		To:   "t.State, t.RetryAt = TaskSuspended, 0\n\tt.PID, t.TTL, t.LeaseAt = \"\", 0, 0\n\tt.Resumes = nil", Tests: "TestReturnAfterSuspend",
	},
	{
		File: "recovery/create.go", Rule: "create: a time of creation that has not come is now",
		From: "min(created, now, req.TimeoutAt)", To: "min(created, req.TimeoutAt)", Tests: "TestCreate",
	},
	{
		File: "recovery/create.go", Rule: "create: a time of creation is that of the promise",
		From: "if req.CreatedAt > 0 {", To: "if req.CreatedAt > now {", Tests: "TestCreate",
	},
}
