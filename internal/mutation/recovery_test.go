package mutation

// recoveryBugs break the operations of the recovery protocol: guards, the version rule, what is due at a
// time, the settlement chain, timers, the codec.
var recoveryBugs = []bug{
	{
		file: "recovery/ref.go", rule: "version: whoever has lost the lease presents an old version and is refused",
		from: `if t.Version != ref.Version {`, to: `if t.Version < ref.Version {`, tests: "TestFence",
	},
	{
		file: "recovery/ref.go", rule: "task_state: a halted task is nobody's",
		from: `if t.State != want {`, to: `if t.State != want && t.State != TaskHalted {`, tests: "TestHalt",
	},
	{
		file: "recovery/ref.go", rule: "incarnation: an earlier life of a task is refused",
		from: `ref.Incarnation != t.Incarnation {`, to: `ref.Incarnation > t.Incarnation {`, tests: "TestGet",
	},
	{
		file: "recovery/ref.go", rule: "incarnation: an earlier life of a promise is refused",
		from: `ref.Incarnation != p.Incarnation {`, to: `ref.Incarnation > p.Incarnation {`, tests: "TestGet",
	},
	{
		file: "recovery/ref.go", rule: "time: a promise is read as it stands at the time",
		from: `return p.At(now), nil`, to: `return p, nil`, tests: "TestGet",
	},
	{
		file: "recovery/ref.go", rule: "time: a lease that has run out is none",
		from: `return t.At(now, p), p, nil`, to: `return t, p, nil`, tests: "TestFence",
	},
	{
		file: "recovery/promise.go", rule: "time: at its deadline a promise is no longer live",
		from: `&& now < p.TimeoutAt`, to: `&& now <= p.TimeoutAt`, tests: "TestResume",
	},
	{
		file: "recovery/promise.go", rule: "time: at its deadline a promise reads as settled",
		from: `|| now < p.TimeoutAt {`, to: `|| now <= p.TimeoutAt {`, tests: "TestGet",
	},
	{
		file: "recovery/promise.go", rule: "deadline: it settles at the deadline, however late it is carried out",
		from: `p.SettledAt = p.TimeoutAt`, to: `p.SettledAt = now`, tests: "TestTimeoutPromise",
	},
	{
		file: "recovery/promise.go", rule: "deadline: a timer resolves",
		from: "p.State = PromiseRejectedTimedout\n\tif p.Timer {", to: "p.State = PromiseRejectedTimedout\n\tif p.Timer && p.External {",
		tests: "TestTimeoutPromise",
	},
	{
		file: "recovery/promise.go", rule: "settle_state: nobody may ask for rejected_timedout",
		from: `return s >= PromiseResolved && s <= PromiseRejectedCanceled`, to: `return s >= PromiseResolved && s <= PromiseRejectedTimedout`,
		tests: "TestSettleRefuses",
	},
	{
		file: "recovery/promise.go", rule: "timers: the deadline of what somebody awaits is armed",
		from: `!(p.Awaitable() || awaited)`, to: `!p.Awaitable()`, tests: "TestMemStoreArms",
	},
	{
		file: "recovery/task.go", rule: "time: a lease ends at its last millisecond, not after it",
		from: `t.LeaseAt <= now {`, to: `t.LeaseAt < now {`, tests: "TestFence",
	},
	{
		file: "recovery/task.go", rule: "time: a task whose deadline has come is fulfilled before it is pending",
		from: `if !own.Live(now) {`, to: `if own.State.Settled() {`, tests: "TestTaskAt",
	},
	{
		file: "recovery/task.go", rule: "version: it rises on entering acquired",
		from: "t.Version++\n\tt.PID", to: "t.PID", tests: "TestAcquire",
	},
	{
		file: "recovery/task.go", rule: "version: it rises at no other time",
		from: "t.State, t.RetryAt = TaskPending, retryAt\n", to: "t.State, t.RetryAt = TaskPending, retryAt\n\tt.Version++\n",
		tests: "TestRelease",
	},
	{
		file: "recovery/task.go", rule: "acquire clears what settled before",
		from:  "after(now, ttl)\n\tt.Resumes = nil",
		to:    "after(now, ttl)",
		tests: "TestAcquire",
	},
	{
		file: "recovery/task.go", rule: "a halted task has no lease",
		from: "t.State, t.RetryAt = TaskHalted, 0\n\tt.PID, t.TTL, t.LeaseAt = \"\", 0, 0",
		to:   `t.State, t.RetryAt = TaskHalted, 0`, tests: "TestHalt",
	},
	{
		file: "recovery/time.go", rule: "time: a sum that does not fit is the end of time",
		from: `if now > math.MaxInt64-d {`, to: `if d > math.MaxInt64-1 {`, tests: "TestAfter",
	},
	{
		file: "recovery/create.go", rule: "create: an id that is settled exists",
		from: `if c, ok := existing(s, now, req.ID); ok {`, to: `if c, ok := existing(s, now, req.ID); ok && c.Promise.State == PromisePending {`,
		tests: "TestCreate",
	},
	{
		file: "recovery/create.go", rule: "create: a delay that has ended sends the Execute now",
		from: `if req.DelayUntil > now {`, to: `if req.DelayUntil >= now && req.DelayUntil > 0 {`, tests: "TestCreate",
	},
	{
		file: "recovery/create_acquired.go", rule: "create acquired: a task in other hands is a conflict",
		from: `case c.Task.State != TaskFulfilled:`, to: `case c.Task.State == TaskHalted:`, tests: "TestCreateAcquiredRefuses TestCreateAcquired",
	},
	{
		file: "recovery/fulfill.go", rule: "fulfill: only the holder of the lease",
		from: `guard(s, now, op, ref, TaskAcquired)`, to: `findTask(s, now, op, Ref{ref.ID, ref.Incarnation})`, tests: "TestFulfillRefuses",
	},
	{
		file: "recovery/settle.go", rule: "settle: a promise settles once",
		from: `if p.State != PromisePending {`, to: `if p.State == PromiseResolved {`, tests: "TestSettle",
	},
	{
		file: "recovery/settle.go", rule: "chain: the task of a settled promise is fulfilled",
		from: `s.PutTask(t.fulfilled())`, to: `s.PutTask(t.halted())`, tests: "TestSettleFulfillsTheTask",
	},
	{
		file: "recovery/settle.go", rule: "chain: a fulfilled task waits for nothing",
		from: `s.RemoveCallback(awaited, p.ID)`, to: `_ = awaited`, tests: "TestSettleFulfillsTheTask",
	},
	{
		file: "recovery/settle.go", rule: "chain: the callbacks of a settled promise are consumed",
		from: `s.RemoveCallback(p.ID, awaiter)`, to: `_ = awaiter`, tests: "TestSettle",
	},
	{
		file: "recovery/timeout_promise.go", rule: "deadline: it is not carried out before it comes",
		from: `p.State != PromisePending || p.Live(now) {`, to: `p.State != PromisePending {`, tests: "TestTimeoutPromise",
	},
	{
		file: "recovery/timeout_promise.go", rule: "deadline: a timer of an earlier life settles nothing",
		from: `ref.Incarnation != p.Incarnation) {`, to: `ref.Incarnation > p.Incarnation) {`, tests: "TestTimeoutPromise",
	},
	{
		file: "recovery/resume.go", rule: "resume: a halted task is not woken",
		from: `if t.State == TaskSuspended {`, to: `if t.State == TaskSuspended || t.State == TaskHalted {`, tests: "TestResume",
	},
	{
		file: "recovery/resume.go", rule: "resume: one whose own deadline has come is skipped",
		from: `if !ok || !own.Live(now) {`, to: `if !ok || own.State != PromisePending {`, tests: "TestResume",
	},
	{
		file: "recovery/resume.go", rule: "resume: a lent list is not written into",
		from: "resumes := make([]string, 0, len(t.Resumes)+1)\n\t\tresumes = append(resumes, t.Resumes[:i]...)\n\t\tresumes = append(resumes, by)\n\t\tt.Resumes = append(resumes, t.Resumes[i:]...)",
		to:   "t.Resumes = slices.Insert(t.Resumes, i, by)", tests: "TestResumeDoesNotWriteIntoLentSlices",
	},
	{
		file: "recovery/chain.go", rule: "chain: every listener is told",
		from: `fx.Add(st.Unblocks())`, to: ``, tests: "TestChain",
	},
	{
		file: "recovery/suspend.go", rule: "suspend: a rejected promise is as settled as a resolved one",
		from: `if p.State != PromisePending {`, to: `if p.State == PromiseResolved {`, tests: "TestSuspendOnSettled",
	},
	{
		file: "recovery/suspend.go", rule: "suspend: a promise whose deadline has come is settled",
		from: `ps = append(ps, p.At(now))`, to: `ps = append(ps, p)`, tests: "TestSuspendOnSettled",
	},
	{
		file: "recovery/suspend.go", rule: "suspend: a callback on each",
		from: "for _, p := range ps {\n\t\ts.AddCallback", to: "for _, p := range ps[:1] {\n\t\ts.AddCallback", tests: "TestSuspend",
	},
	{
		file: "recovery/suspend.go", rule: "suspend: who goes on has seen the settled ones",
		from: "if len(ready) > 0 {\n\t\tt.Resumes = nil", to: "if len(ready) > 0 {", tests: "TestSuspendOnSettled",
	},
	{
		file: "recovery/suspend.go", rule: "awaited_external: a timer may be awaited",
		from: `case !anyAwaited && !p.Awaitable():`, to: `case !anyAwaited && p.Target == "" && !p.External:`, tests: "TestSuspend",
	},
	{
		file: "recovery/callback.go", rule: "awaiter_has_target",
		from: `case own.Target == "":`, to: `case own.Target == "" && own.External:`, tests: "TestRegisterCallbackRefuses",
	},
	{
		file: "recovery/listener.go", rule: "listener: a rejected promise takes none",
		from: `case p.State != PromisePending:`, to: `case p.State == PromiseResolved:`, tests: "TestRegisterListener",
	},
	{
		file: "recovery/heartbeat.go", rule: "heartbeat: only the holder's",
		from: `if err != nil || t.PID != pid {`, to: `if err != nil {`, tests: "TestHeartbeat",
	},
	{
		file: "recovery/release.go", rule: "release: with a delay no Execute goes out",
		from: `return t, Effects{}, nil`, to: `return t, executes(t), nil`, tests: "TestRelease",
	},
	{
		file: "recovery/halt.go", rule: "halt: a fulfilled task is not halted",
		from: `case TaskFulfilled:`, to: `case TaskSuspended:`, tests: "TestHalt",
	},
	{
		file: "recovery/continue.go", rule: "continue: only a halted task",
		from: `if t.State != TaskHalted {`, to: `if t.State == TaskFulfilled {`, tests: "TestContinue",
	},
	{
		file: "recovery/expire_lease.go", rule: "timers: a lease is ended when it has run out, at the very millisecond",
		from: `t.LeaseAt > now`, to: `t.LeaseAt >= now`, tests: "TestExpireLease",
	},
	{
		file: "recovery/retry_due.go", rule: "timers: an Execute is repeated at the very millisecond",
		from: `t.RetryAt > now`, to: `t.RetryAt >= now`, tests: "TestRetryDue",
	},
	{
		file: "recovery/retry_due.go", rule: "timers: the next repetition is after now",
		from: `t.RetryAt = after(now, retry)`, to: `t.RetryAt = after(t.RetryAt, retry)`, tests: "TestRetryDue",
	},
	{
		file: "recovery/codec.go", rule: "codec: a number has one encoding",
		from: `case n > 1 && r.b[start+n-1] == 0:`, to: `case n > 2 && r.b[start+n-1] == 0:`, tests: "TestCorrupt",
	},
	{
		file: "recovery/codec.go", rule: "codec: tags ascend, each key once",
		from: `p.Tags[i].Key) >= 0 {`, to: `p.Tags[i].Key) > 0 {`, tests: "TestCorrupt",
	},
	{
		file: "recovery/invariants.go", rule: "suspended_no_callback waits for the task's own deadline",
		from: `pending == 0 && own.Live(c.now)`, to: `pending == 0`, tests: "TestSuspendedPastItsDeadline",
	},
}
