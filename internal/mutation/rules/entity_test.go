package rules

import "perdure/internal/mutation"

// entityBugs break the rules of entities: commits of batches, order, locks, critical sections, schedules.
var entityBugs = []mutation.Bug{
	{
		File: "entity/commit.go", Rule: "commit: a batch of an earlier incarnation is void",
		From: `case c.Incarnation != s.Incarnation:`, To: `case c.Incarnation > s.Incarnation:`, Tests: "TestCommitRefused",
	},
	{
		File: "entity/commit.go", Rule: "commit: one commit per version",
		From: `case c.Version != s.Version:`, To: `case c.Version > s.Version:`, Tests: "TestCommitRefused",
	},
	{
		File: "entity/commit.go", Rule: "commit: the results are those of the batch, in order",
		From: `if r.Request != o.request() {`, To: `if r.Request == "" {`, Tests: "TestCommitRefused",
	},
	{
		File: "entity/commit.go", Rule: "commit: no result for what may not run",
		From: `if len(taken) < len(c.Results) {`, To: `if len(taken) == 0 {`, Tests: "TestCommitRefused",
	},
	{
		File: "entity/commit.go", Rule: "commit: it removes the operations that ran, not those in front",
		From: `s.dequeue(taken...)`, To: `s.Queue = s.Queue[len(taken):]`, Tests: "TestLockQueues",
	},
	{
		File: "entity/commit.go", Rule: "commit: a lock request that came to the front is processed",
		From: `return append(out, s.settle()...), nil`, To: `return out, nil`, Tests: "TestLockQueues",
	},
	{
		File: "entity/state.go", Rule: "order: no operation overtakes a lock request",
		From: "if !ok || !yield(i, o) {\n\t\t\t\treturn\n", To: "if ok && !yield(i, o) {\n\t\t\t\treturn\n", Tests: "TestLockQueues",
	},
	{
		File: "entity/waiting.go", Rule: "request_once: among the delayed, too",
		From: `[...][]Entry{s.Queue, s.Lane, s.Delayed}`, To: `[...][]Entry{s.Queue}`, Tests: "TestRequestOnce",
	},
	{
		File: "entity/waiting.go", Rule: "request_once: the index of a long backlog knows what waited before it",
		From: `s.waiting[keyOf(o)] = true
				}`, To: `s.waiting[keyOf(m)] = true
				}`, Tests: "TestRequestsOfLongBacklog",
	},
	{
		File: "entity/state.go", Rule: "request_once: the index of a long backlog learns of arrivals",
		From: "s.joined(m)", To: "_ = m", Tests: "TestRequestsOfLongBacklog",
	},
	{
		File: "entity/commit.go", Rule: "request_once: what ran may come again",
		From: "s.left(from[at].Message.(operation))", To: "_ = from[at]", Tests: "TestRequestsOfLongBacklog",
	},
	{
		File: "entity/queue_index.go", Rule: "lock: the index of a long queue forgets what left it",
		From: "s.index.remove(s.Queue[i])", To: "_ = i", Tests: "TestIndexOfLongQueue",
	},
	{
		File: "entity/queue_index.go", Rule: "lock: the index of a long queue has what waited before it",
		From: "\t\t\ts.index.add(e)\n", To: "\t\t\t_ = e\n", Tests: "TestIndexOfLongQueue",
	},
	{
		File: "entity/state.go", Rule: "collect: not while a signal is scheduled",
		From: `len(s.Delayed) == 0 && !s.Lock.Held()`, To: `!s.Lock.Held()`, Tests: "TestCollectable",
	},
	{
		File: "entity/state.go", Rule: "schedule: an expired signal comes before an arriving message",
		From: "s.Tick(now)\n\treturn a.arrive(s, now), nil", To: "return a.arrive(s, now), nil", Tests: "TestSchedule",
	},
	{
		File: "entity/schedule.go", Rule: "schedule: a signal scheduled at now is expired",
		From: `.dueAt() <= now &&`, To: `.dueAt() < now &&`, Tests: "TestSchedule",
	},
	{
		File: "entity/state.go", Rule: "lock: a scheduled signal is outside its holder's order",
		From: `if s.Lock.Held() || !yield(i, e.Message.(operation)) {`, To: `if !yield(i, e.Message.(operation)) {`, Tests: "TestHolderUnderItsLock",
	},
	{
		File: "entity/lock.go", Rule: "lock: only the holder runs under it",
		From: `return o.From() == l.Section.Holder && `, To: `return o.From().ID == l.Section.Holder.ID && `, Tests: "TestHolderUnderItsLock",
	},
	{
		File: "entity/lock.go", Rule: "lock: it ends after the holder's last operation",
		From: `if s.Lock.Until != 0 && !s.Runnable() {`, To: `if s.Lock.Until != 0 {`, Tests: "TestHolderUnderItsLock",
	},
	{
		File: "entity/lock.go", Rule: "lock: a repeated unlock lets nothing in",
		From: `if s.Lock.Section == section && s.Lock.Until == 0 {`, To: `if s.Lock.Section == section {`, Tests: "TestHolderUnderItsLock",
	},
	{
		File: "entity/message_call.go", Rule: "section call: refused once the lock is being given back",
		From: `|| s.Lock.Until != 0) {`, To: `) {`, Tests: "TestSectionCallNeedsLock",
	},
	{
		File: "entity/message_lock_request.go", Rule: "lock request: a repeated one is queued once",
		From: `if s.requestOf(m.Section) >= 0 {`, To: `if s.requestOf(m.Section) == 0 {`, Tests: "TestLockRepeated",
	},
	{
		File: "entity/message_withdraw.go", Rule: "withdraw: what was locked is unlocked",
		From: "\ts.release(m.Section)\n", To: "", Tests: "TestWithdraw",
	},
	{
		File: "entity/section.go", Rule: "critical section: none inside another",
		From: "case Acquiring, Inside:\n\t\treturn LockRequest{}", To: "case Acquiring:\n\t\treturn LockRequest{}", Tests: "TestHolder",
	},
	{
		File: "entity/section.go", Rule: "critical section: it ends when its calls are answered",
		From: `if len(h.Pending) > 0 {`, To: `if len(h.Pending) > 1 {`, Tests: "TestHolder",
	},
	{
		File: "entity/section.go", Rule: "critical section: who ends while acquiring withdraws",
		From: `out = []Message{Withdraw{Section: h.section(), Set: h.Set}}`, To: `out = unlockAll(h.section(), h.Set)`, Tests: "TestEnd",
	},
	{
		File: "entity/section.go", Rule: "critical section: locks without a waiting section are released",
		From: `return Unclaimed(g), false, nil`, To: `return nil, false, nil`, Tests: "TestUnclaimed",
	},
	{
		File: "entity/holder.go", Rule: "critical section: no signal to a locked entity",
		From: `	if h.locks(entity) {`, To: `	if h.locks(entity) && dueAt == 0 {`, Tests: "TestHolder",
	},
	{
		File: "entity/batch.go", Rule: "lane: it takes turns with the queue",
		From: `s.Version%2 == 0 ||`, To: `true ||`, Tests: "TestLane",
	},
	{
		File: "entity/schedule.go", Rule: "lane: it is bounded",
		From: `now && len(s.Lane) < LaneLength {`, To: `now {`, Tests: "TestLane",
	},
	{
		File: "entity/commit.go", Rule: "lane: scheduled signals do not run under a lock",
		From: `case c.Lane && s.Lock.Held():`, To: `case c.Lane && s.Lock.Held() && s.ID == "":`, Tests: "TestLane",
	},
	{
		File: "entity/lock.go", Rule: "refinement: a section that ended holds its lock until its calls have run",
		From: `if s.Lock.Until != 0 && !s.Runnable() {`, To: `if s.Lock.Until != 0 {`, Pkg: "fsm/machine", Tests: "TestEntityRefinement",
	},
	{
		File: "entity/commit.go", Rule: "refinement: the value that a batch deletes is gone",
		From: "s.Exists, s.Value = c.Exists, c.Value", To: "s.Exists, s.Value = c.Exists || s.Exists, c.Value", Pkg: "fsm/machine", Tests: "TestEntityRefinement",
	},
}
