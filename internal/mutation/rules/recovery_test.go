package rules

import "perdure/internal/mutation"

// recoveryBugs break the operations of the recovery protocol: guards, the version rule, expirations, the
// settlement chain, timers, the codec.
var recoveryBugs = []mutation.Bug{
	{
		File: "recovery/ref.go", Rule: "version: a worker that has lost the lease presents an old version and is refused",
		From: `if t.Version != ref.Version {`, To: `if t.Version < ref.Version {`, Tests: "TestFence",
	},
	{
		File: "recovery/ref.go", Rule: "task_state: a halted task has no holder",
		From: `if t.State != want {`, To: `if t.State != want && t.State != TaskHalted {`, Tests: "TestHalt",
	},
	{
		File: "recovery/ref.go", Rule: "incarnation: an earlier incarnation of a task is refused",
		From: `ref.Incarnation != t.Incarnation {`, To: `ref.Incarnation > t.Incarnation {`, Tests: "TestGet",
	},
	{
		File: "recovery/ref.go", Rule: "incarnation: an earlier incarnation of a promise is refused",
		From: `ref.Incarnation != p.Incarnation {`, To: `ref.Incarnation > p.Incarnation {`, Tests: "TestGet",
	},
	{
		File: "recovery/ref.go", Rule: "time: a promise is read in its state at the time",
		From: `return p.At(now), nil`, To: `return p, nil`, Tests: "TestGet",
	},
	{
		File: "recovery/ref.go", Rule: "time: a lease that has run out is none",
		From: `return t.At(now, p), p, nil`, To: `return t, p, nil`, Tests: "TestFence",
	},
	{
		File: "recovery/promise.go", Rule: "time: at its deadline a promise is no longer live",
		From: `&& now < p.TimeoutAt`, To: `&& now <= p.TimeoutAt`, Tests: "TestResume",
	},
	{
		File: "recovery/promise.go", Rule: "time: at its deadline a promise reads as settled",
		From: `|| now < p.TimeoutAt {`, To: `|| now <= p.TimeoutAt {`, Tests: "TestGet",
	},
	{
		File: "recovery/promise.go", Rule: "deadline: it settles at the deadline, however late it is carried out",
		From: `p.SettledAt = p.TimeoutAt`, To: `p.SettledAt = now`, Tests: "TestTimeoutPromise",
	},
	{
		File: "recovery/promise.go", Rule: "deadline: a timer resolves",
		From: "p.State = PromiseRejectedTimedout\n\tif p.Timer {", To: "p.State = PromiseRejectedTimedout\n\tif p.Timer && p.External {",
		Tests: "TestTimeoutPromise",
	},
	{
		File: "recovery/promise.go", Rule: "settle_state: no caller may ask for rejected_timedout",
		From: `return s >= PromiseResolved && s <= PromiseRejectedCanceled`, To: `return s >= PromiseResolved && s <= PromiseRejectedTimedout`,
		Tests: "TestSettleRefuses",
	},
	{
		File: "recovery/promise.go", Rule: "timers: the deadline of an awaited promise is armed",
		From: `!(p.Awaitable() || awaited)`, To: `!p.Awaitable()`, Tests: "TestMemStoreArms",
	},
	{
		File: "recovery/task.go", Rule: "time: a lease ends at its last millisecond, not after it",
		From: `t.LeaseAt <= now {`, To: `t.LeaseAt < now {`, Tests: "TestFence",
	},
	{
		File: "recovery/task.go", Rule: "time: a task whose deadline has come is fulfilled before it is pending",
		From: `if !own.Live(now) {`, To: `if own.State.Settled() {`, Tests: "TestTaskAt",
	},
	{
		File: "recovery/task.go", Rule: "version: it rises on entering acquired",
		From: "t.Version++\n\tt.PID", To: "t.PID", Tests: "TestAcquire",
	},
	{
		File: "recovery/task.go", Rule: "version: it rises at no other time",
		From: "t.State, t.RetryAt = TaskPending, retryAt\n", To: "t.State, t.RetryAt = TaskPending, retryAt\n\tt.Version++\n",
		Tests: "TestRelease",
	},
	{
		File: "recovery/task.go", Rule: "acquire clears what settled before",
		From:  "after(now, ttl)\n\tt.Resumes = nil",
		To:    "after(now, ttl)",
		Tests: "TestAcquire",
	},
	{
		File: "recovery/task.go", Rule: "a halted task has no lease",
		From: "t.State, t.RetryAt = TaskHalted, 0\n\tt.PID, t.TTL, t.LeaseAt = \"\", 0, 0",
		To:   `t.State, t.RetryAt = TaskHalted, 0`, Tests: "TestHalt",
	},
	{
		File: "recovery/time.go", Rule: "time: a sum that does not fit is the end of time",
		From: `if now > math.MaxInt64-d {`, To: `if d > math.MaxInt64-1 {`, Tests: "TestAfter",
	},
	{
		File: "recovery/create.go", Rule: "create: an id that is settled exists",
		From: `if c, ok := existing(s, now, req.ID); ok {`, To: `if c, ok := existing(s, now, req.ID); ok && c.Promise.State == PromisePending {`,
		Tests: "TestCreate",
	},
	{
		File: "recovery/create.go", Rule: "create: a delay that has ended sends the Execute now",
		From: `if req.DelayUntil > now {`, To: `if req.DelayUntil >= now && req.DelayUntil > 0 {`, Tests: "TestCreate",
	},
	{
		File: "recovery/create_acquired.go", Rule: "create acquired: a task in other hands is a conflict",
		From: `case c.Task.State != TaskFulfilled:`, To: `case c.Task.State == TaskHalted:`, Tests: "TestCreateAcquiredRefuses TestCreateAcquired",
	},
	{
		File: "recovery/fulfill.go", Rule: "fulfill: only the holder of the lease",
		From: `guard(s, now, op, ref, TaskAcquired)`, To: `findTask(s, now, op, Ref{ref.ID, ref.Incarnation})`, Tests: "TestFulfillRefuses",
	},
	{
		File: "recovery/settle.go", Rule: "settle: a promise settles once",
		From: `if p.State != PromisePending {`, To: `if p.State == PromiseResolved {`, Tests: "TestSettle",
	},
	{
		File: "recovery/settle.go", Rule: "chain: the task of a settled promise is fulfilled",
		From: `s.PutTask(t.fulfilled())`, To: `s.PutTask(t.halted())`, Tests: "TestSettleFulfillsTheTask",
	},
	{
		File: "recovery/settle.go", Rule: "chain: a fulfilled task waits for nothing",
		From: `s.RemoveCallback(awaited, p.ID)`, To: `_ = awaited`, Tests: "TestSettleFulfillsTheTask",
	},
	{
		File: "recovery/settle.go", Rule: "chain: the callbacks of a settled promise are consumed",
		From: `s.RemoveCallback(p.ID, awaiter)`, To: `_ = awaiter`, Tests: "TestSettle",
	},
	{
		File: "recovery/timeout_promise.go", Rule: "deadline: it is not carried out before it comes",
		From: `p.State != PromisePending || p.Live(now) {`, To: `p.State != PromisePending {`, Tests: "TestTimeoutPromise",
	},
	{
		File: "recovery/timeout_promise.go", Rule: "deadline: a timer of an earlier incarnation settles nothing",
		From: `ref.Incarnation != p.Incarnation) {`, To: `ref.Incarnation > p.Incarnation) {`, Tests: "TestTimeoutPromise",
	},
	{
		File: "recovery/resume.go", Rule: "resume: a halted task is not woken",
		From: `if t.State == TaskSuspended {`, To: `if t.State == TaskSuspended || t.State == TaskHalted {`, Tests: "TestResume",
	},
	{
		File: "recovery/resume.go", Rule: "resume: one whose own deadline has come is skipped",
		From: `if !ok || !own.Live(now) {`, To: `if !ok || own.State != PromisePending {`, Tests: "TestResume",
	},
	{
		File: "recovery/resume.go", Rule: "resume: a shared list is not written into",
		From: "resumes := make([]string, 0, len(t.Resumes)+1)\n\t\tresumes = append(resumes, t.Resumes[:i]...)\n\t\tresumes = append(resumes, by)\n\t\tt.Resumes = append(resumes, t.Resumes[i:]...)",
		To:   "t.Resumes = slices.Insert(t.Resumes, i, by)", Tests: "TestResumeDoesNotWriteIntoLentSlices",
	},
	{
		File: "recovery/chain.go", Rule: "chain: every listener is notified",
		From: `fx.Add(st.Unblocks())`, To: ``, Tests: "TestChain",
	},
	{
		File: "recovery/suspend.go", Rule: "suspend: a rejected promise is as settled as a resolved one",
		From: `if p.State != PromisePending {`, To: `if p.State == PromiseResolved {`, Tests: "TestSuspendOnSettled",
	},
	{
		File: "recovery/suspend.go", Rule: "suspend: a promise whose deadline has come is settled",
		From: `ps = append(ps, p.At(now))`, To: `ps = append(ps, p)`, Tests: "TestSuspendOnSettled",
	},
	{
		File: "recovery/suspend.go", Rule: "suspend: a callback on each",
		From: "for _, p := range ps {\n\t\ts.AddCallback", To: "for _, p := range ps[:1] {\n\t\ts.AddCallback", Tests: "TestSuspend",
	},
	{
		File: "recovery/suspend.go", Rule: "suspend: an execution that continues has seen the settled ones",
		From: "if len(ready) > 0 {\n\t\tt.Resumes = nil", To: "if len(ready) > 0 {", Tests: "TestSuspendOnSettled",
	},
	{
		File: "recovery/suspend.go", Rule: "awaited_external: a timer may be awaited",
		From: `case !anyAwaited && !p.Awaitable():`, To: `case !anyAwaited && p.Target == "" && !p.External:`, Tests: "TestSuspend",
	},
	{
		File: "recovery/callback.go", Rule: "awaiter_has_target",
		From: `case own.Target == "":`, To: `case own.Target == "" && own.External:`, Tests: "TestRegisterCallbackRefuses",
	},
	{
		File: "recovery/listener.go", Rule: "listener: a rejected promise takes none",
		From: `case p.State != PromisePending:`, To: `case p.State == PromiseResolved:`, Tests: "TestRegisterListener",
	},
	{
		File: "recovery/heartbeat.go", Rule: "heartbeat: only the holder's",
		From: `if err != nil || t.PID != pid {`, To: `if err != nil {`, Tests: "TestHeartbeat",
	},
	{
		File: "recovery/release.go", Rule: "release: with a delay no Execute goes out",
		From: `return t, Effects{}, nil`, To: `return t, executes(t), nil`, Tests: "TestRelease",
	},
	{
		File: "recovery/halt.go", Rule: "halt: a fulfilled task is not halted",
		From: `case TaskFulfilled:`, To: `case TaskSuspended:`, Tests: "TestHalt",
	},
	{
		File: "recovery/continue.go", Rule: "continue: only a halted task",
		From: `if t.State != TaskHalted {`, To: `if t.State == TaskFulfilled {`, Tests: "TestContinue",
	},
	{
		File: "recovery/expire_lease.go", Rule: "timers: a lease is ended when it has run out, at the very millisecond",
		From: `t.LeaseAt > now`, To: `t.LeaseAt >= now`, Tests: "TestExpireLease",
	},
	{
		File: "recovery/expire_retry.go", Rule: "timers: an Execute is repeated at the very millisecond",
		From: `t.RetryAt > now`, To: `t.RetryAt >= now`, Tests: "TestExpireRetry",
	},
	{
		File: "recovery/expire_retry.go", Rule: "timers: the next repetition is after now",
		From: `t.RetryAt = after(now, retry)`, To: `t.RetryAt = after(t.RetryAt, retry)`, Tests: "TestExpireRetry",
	},
	{
		File: "internal/canonical/canonical.go", Pkg: "recovery", Rule: "codec: a number has one encoding",
		From: `case n > 1 && r.b[start+n-1] == 0:`, To: `case n > 2 && r.b[start+n-1] == 0:`, Tests: "TestCorrupt",
	},
	{
		File: "recovery/codec.go", Rule: "codec: tags ascend, each key once",
		From: `tags[i].Key) >= 0 {`, To: `tags[i].Key) > 0 {`, Tests: "TestCorrupt",
	},
	{
		File: "recovery/invariants.go", Rule: "suspended_no_callback waits for the task's own deadline",
		From: `pending == 0 && own.Live(now)`, To: `pending == 0`, Tests: "TestSuspendedPastItsDeadline",
	},
}
