package mutation

// entityBugs break the rules of entities: commits of batches, order, locks, critical sections, schedules.
var entityBugs = []bug{
	{
		file: "entity/commit.go", rule: "commit: a batch of an earlier life is void",
		from: `case c.Incarnation != s.Incarnation:`, to: `case c.Incarnation > s.Incarnation:`, tests: "TestCommitRefused",
	},
	{
		file: "entity/commit.go", rule: "commit: one commit per version",
		from: `case c.Version != s.Version:`, to: `case c.Version > s.Version:`, tests: "TestCommitRefused",
	},
	{
		file: "entity/commit.go", rule: "commit: the results are those of the batch, in order",
		from: `if r.Request != o.request() {`, to: `if r.Request == "" {`, tests: "TestCommitRefused",
	},
	{
		file: "entity/commit.go", rule: "commit: no result for what may not run",
		from: `if len(taken) < len(c.Results) {`, to: `if len(taken) == 0 {`, tests: "TestCommitRefused",
	},
	{
		file: "entity/commit.go", rule: "commit: what it takes away is what was run, not what stands in front",
		from: `s.Queue = without(s.Queue, taken)`, to: `s.Queue = s.Queue[len(taken):]`, tests: "TestLockQueues",
	},
	{
		file: "entity/commit.go", rule: "commit: a lock request that came to the front goes on",
		from: `return append(out, s.settle()...), nil`, to: `return out, nil`, tests: "TestLockQueues",
	},
	{
		file: "entity/state.go", rule: "order: no operation overtakes a lock request",
		from: "} else if !ok {\n\t\t\t\treturn\n", to: "} else if !ok {\n\t\t\t\tcontinue\n", tests: "TestLockQueues",
	},
	{
		file: "entity/state.go", rule: "request_once: among the delayed, too",
		from: `[...][]Entry{s.Queue, s.Delayed} {`, to: `[...][]Entry{s.Queue} {`, tests: "TestRequestOnce",
	},
	{
		file: "entity/state.go", rule: "collect: not while a signal is scheduled",
		from: `len(s.Delayed) == 0 && !s.Lock.Held()`, to: `!s.Lock.Held()`, tests: "TestCollectable",
	},
	{
		file: "entity/state.go", rule: "schedule: what is due comes before what arrives",
		from: "s.Tick(now)\n\treturn a.arrive(s, now), nil", to: "out := a.arrive(s, now)\n\ts.Tick(now)\n\treturn out, nil", tests: "TestSchedule",
	},
	{
		file: "entity/schedule.go", rule: "schedule: what is due at now is due",
		from: `.dueAt() <= now {`, to: `.dueAt() < now {`, tests: "TestSchedule",
	},
	{
		file: "entity/lock.go", rule: "lock: a scheduled signal is outside its holder's order",
		from: `&& o.ordered() &&`, to: `&&`, tests: "TestHolderUnderItsLock",
	},
	{
		file: "entity/lock.go", rule: "lock: nobody but the holder runs under it",
		from: `return o.From() == l.Section.Holder && `, to: `return o.From().ID == l.Section.Holder.ID && `, tests: "TestHolderUnderItsLock",
	},
	{
		file: "entity/lock.go", rule: "lock: it ends after the holder's last operation",
		from: `if s.Lock.Until != 0 && !s.Runnable() {`, to: `if s.Lock.Until != 0 {`, tests: "TestHolderUnderItsLock",
	},
	{
		file: "entity/lock.go", rule: "lock: a repeated unlock lets nothing in",
		from: `if s.Lock.Section == section && s.Lock.Until == 0 {`, to: `if s.Lock.Section == section {`, tests: "TestHolderUnderItsLock",
	},
	{
		file: "entity/message_call.go", rule: "section call: refused once the lock is being given back",
		from: `|| s.Lock.Until != 0) {`, to: `) {`, tests: "TestSectionCallNeedsLock",
	},
	{
		file: "entity/message_lock_request.go", rule: "lock request: a repeated one is queued once",
		from: `if s.requestOf(m.Section) >= 0 {`, to: `if s.requestOf(m.Section) == 0 {`, tests: "TestLockRepeated",
	},
	{
		file: "entity/message_withdraw.go", rule: "withdraw: what was locked is unlocked",
		from: "\ts.release(m.Section)\n", to: "", tests: "TestWithdraw",
	},
	{
		file: "entity/section.go", rule: "critical section: none inside another",
		from: "case Acquiring, Inside:\n\t\treturn LockRequest{}", to: "case Acquiring:\n\t\treturn LockRequest{}", tests: "TestHolder",
	},
	{
		file: "entity/section.go", rule: "critical section: it ends when its calls are answered",
		from: `if len(h.Pending) > 0 {`, to: `if len(h.Pending) > 1 {`, tests: "TestHolder",
	},
	{
		file: "entity/section.go", rule: "critical section: who ends while acquiring withdraws",
		from: `out = []Message{Withdraw{Section: h.section(), Set: h.Set}}`, to: `out = unlockAll(h.section(), h.Set)`, tests: "TestEnd",
	},
	{
		file: "entity/section.go", rule: "critical section: locks that nobody waits for are given back",
		from: `return Unclaimed(g), false, nil`, to: `return nil, false, nil`, tests: "TestUnclaimed",
	},
	{
		file: "entity/holder.go", rule: "critical section: no signal to a locked entity",
		from: `	if h.locks(entity) {`, to: `	if h.locks(entity) && dueAt == 0 {`, tests: "TestHolder",
	},
}
