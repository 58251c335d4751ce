package recovery

import (
	"fmt"
	"iter"
)

// Snapshot is a whole state, of one namespace and partition, that can be enumerated: what a [Store]
// holds, and the index of deadlines kept beside it. It does not change while it is read. The sequences
// are in ascending order of id.
type Snapshot interface {
	Promise(id string) (Promise, bool)
	Task(id string) (Task, bool)
	Callbacks(awaited string) []string
	AwaitedBy(awaiter string) []string
	Listeners(id string) []string

	Promises() iter.Seq[Promise]
	Tasks() iter.Seq[Task]
	// AllCallbacks yields (awaited, awaiter), AllAwaitedBy the same pairs as (awaiter, awaited),
	// AllListeners (promise, address).
	AllCallbacks() iter.Seq2[string, string]
	AllAwaitedBy() iter.Seq2[string, string]
	AllListeners() iter.Seq2[string, string]
	// PromiseTimers yields (promise, time in Unix milliseconds).
	PromiseTimers() iter.Seq2[string, int64]
	TaskTimers() iter.Seq[TaskTimer]
}

// TaskTimerKind tells the two timers of a task apart, numbered as in the protocol.
type TaskTimerKind uint8

// The timers of a task.
const (
	RetryTimer TaskTimerKind = 0
	LeaseTimer TaskTimerKind = 1
)

// TaskTimer is an entry of the deadline index.
type TaskTimer struct {
	ID   string
	Kind TaskTimerKind
	At   int64 // Unix milliseconds
}

// The thirteen invariants of the recovery protocol, by its names.
const (
	OrphanInvokes                 = "orphan_invokes"
	MissingPromiseTimeout         = "missing_ptimeout"
	StalePromiseTimeout           = "stale_ptimeout"
	TimedoutSettledAtMismatch     = "timedout_settled_at_mismatch"
	ListenerForSettledPromise     = "listener_for_settled_promise"
	OrphanTasks                   = "orphan_tasks"
	PendingTaskNoTimeout          = "pending_task_no_ttimeout"
	AcquiredTaskNoLease           = "acquired_task_no_lease"
	SuspendedNoCallback           = "suspended_no_callback"
	SuspendedWithConsumedCallback = "suspended_with_consumed_callbacks"
	SuspendedTaskHasTimeout       = "suspended_task_has_ttimeout"
	FulfilledTaskHasTimeout       = "fulfilled_task_has_ttimeout"
	CallbackAwaiterNoTarget       = "callback_awaiter_no_target"
)

// What must hold besides, in every state.
const (
	// SettledNotFulfilled: a promise is settled exactly if its task is fulfilled.
	SettledNotFulfilled = "settled_not_fulfilled"
	// PromiseTimes: createdAt ≤ settledAt ≤ timeoutAt; a promise settled at its deadline is what its
	// deadline makes of it; a pending promise has no settledAt and no value.
	PromiseTimes = "promise_times"
	// CallbackIndex: both directions of the callback relation hold the same pairs.
	CallbackIndex = "callback_index"
	// CallbackOfSettledAwaiter: a task whose promise is settled waits for nothing.
	CallbackOfSettledAwaiter = "callback_of_settled_awaiter"
)

// Violation is one breach of an invariant: a defect of the implementation, never something to recover
// from at run time.
type Violation struct {
	// Name is one of the invariants above.
	Name string
	// ID is the promise or task concerned.
	ID string
	// Detail says what was found.
	Detail string
}

// String returns the violation in one line.
func (v Violation) String() string { return fmt.Sprintf("%s: %q: %s", v.Name, v.ID, v.Detail) }

// Invariants returns every violation in s as of now (Unix milliseconds, the time of the last command
// carried out): first those of promises, then tasks, then the relations, each ascending by id. It
// holds the ids and timers of the whole state in memory while it runs.
func Invariants(s Snapshot, now int64) []Violation {
	c := &checker{s: s, now: now, promiseTimers: map[string][]int64{}, taskTimers: map[string][]TaskTimer{}}
	for id, at := range s.PromiseTimers() {
		c.promiseTimers[id] = append(c.promiseTimers[id], at)
	}
	for t := range s.TaskTimers() {
		c.taskTimers[t.ID] = append(c.taskTimers[t.ID], t)
	}
	for p := range s.Promises() {
		c.promise(p)
	}
	for t := range s.Tasks() {
		c.task(t)
	}
	c.timers()
	c.relations()
	return c.found
}

type checker struct {
	s             Snapshot
	now           int64
	promiseTimers map[string][]int64
	taskTimers    map[string][]TaskTimer
	found         []Violation
}

func (c *checker) report(broken bool, name, id, format string, args ...any) {
	if broken {
		c.found = append(c.found, Violation{Name: name, ID: id, Detail: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) promise(p Promise) {
	t, hasTask := c.s.Task(p.ID)
	c.report(p.Target != "" && !hasTask, OrphanInvokes, p.ID, "target %q and no task", p.Target)
	c.report(hasTask && p.State.Settled() != (t.State == TaskFulfilled),
		SettledNotFulfilled, p.ID, "promise is %s, task is %s", p.State, t.State)
	waited := len(c.s.Callbacks(p.ID)) > 0 || len(c.s.Listeners(p.ID)) > 0

	if p.State.Settled() {
		c.report(waited, ListenerForSettledPromise, p.ID, "settled with callbacks %q and listeners %q",
			c.s.Callbacks(p.ID), c.s.Listeners(p.ID))
		c.report(p.State == PromiseRejectedTimedout && p.SettledAt != p.TimeoutAt,
			TimedoutSettledAtMismatch, p.ID, "settledAt %d, timeoutAt %d", p.SettledAt, p.TimeoutAt)
		c.report(p.CreatedAt > p.SettledAt || p.SettledAt > p.TimeoutAt,
			PromiseTimes, p.ID, "createdAt %d, settledAt %d, timeoutAt %d", p.CreatedAt, p.SettledAt, p.TimeoutAt)
		due := Promise{State: PromisePending, Timer: p.Timer, TimeoutAt: p.TimeoutAt}.At(p.TimeoutAt)
		c.report(p.SettledAt == p.TimeoutAt && (p.State != due.State || len(p.Value) > 0),
			PromiseTimes, p.ID, "%s with %d bytes of value by its deadline, must be %s with none", p.State, len(p.Value), due.State)
		return
	}
	c.report(!p.State.Valid() || p.SettledAt != 0 || len(p.Value) > 0 || p.CreatedAt >= p.TimeoutAt,
		PromiseTimes, p.ID, "%s with createdAt %d, settledAt %d, timeoutAt %d and %d bytes of value",
		p.State, p.CreatedAt, p.SettledAt, p.TimeoutAt, len(p.Value))
	at, armed := p.Deadline(waited)
	timers := c.promiseTimers[p.ID]
	c.report(armed && (len(timers) != 1 || timers[0] != at),
		MissingPromiseTimeout, p.ID, "timers %d, must be one at %d", timers, at)
	for _, timer := range timers {
		c.report(!armed && timer != p.TimeoutAt, MissingPromiseTimeout, p.ID, "timer at %d, timeoutAt %d", timer, p.TimeoutAt)
	}
}

func (c *checker) task(t Task) {
	p, ok := c.s.Promise(t.ID)
	c.report(!ok, OrphanTasks, t.ID, "no promise")
	c.report(ok && p.Target == "", OrphanTasks, t.ID, "its promise has no target")
	c.report(ok && (p.Target != t.Target || p.Incarnation != t.Incarnation), OrphanTasks, t.ID,
		"its promise has target %q and incarnation %d, it has %q and %d", p.Target, p.Incarnation, t.Target, t.Incarnation)

	timers := c.taskTimers[t.ID]
	one := func(kind TaskTimerKind, at int64) bool {
		return len(timers) == 1 && timers[0].Kind == kind && timers[0].At == at
	}
	leased := t.PID != "" || t.TTL != 0 || t.LeaseAt != 0
	c.report(t.State != TaskAcquired && leased, AcquiredTaskNoLease, t.ID,
		"%s with pid %q, ttl %d, lease until %d", t.State, t.PID, t.TTL, t.LeaseAt)
	c.report(t.State != TaskPending && t.RetryAt != 0, PendingTaskNoTimeout, t.ID, "%s with retry at %d", t.State, t.RetryAt)

	switch t.State {
	case TaskPending:
		c.report(!one(RetryTimer, t.RetryAt), PendingTaskNoTimeout, t.ID, "timers %v, must be one retry at %d", timers, t.RetryAt)
	case TaskAcquired:
		c.report(!one(LeaseTimer, t.LeaseAt), AcquiredTaskNoLease, t.ID, "timers %v, must be one lease at %d", timers, t.LeaseAt)
		c.report(t.PID == "" || t.TTL < 1, AcquiredTaskNoLease, t.ID, "pid %q, ttl %d", t.PID, t.TTL)
		c.report(t.Version == 0, AcquiredTaskNoLease, t.ID, "acquired at version 0")
	case TaskSuspended:
		c.suspended(t, p)
		c.report(len(timers) > 0, SuspendedTaskHasTimeout, t.ID, "timers %v", timers)
	case TaskHalted:
		c.report(len(timers) > 0, SuspendedTaskHasTimeout, t.ID, "halted, timers %v", timers)
	case TaskFulfilled:
		c.report(len(timers) > 0 || len(t.Resumes) > 0, FulfilledTaskHasTimeout, t.ID, "timers %v, resumes %q", timers, t.Resumes)
	default:
		c.report(true, OrphanTasks, t.ID, "state %d is none", t.State)
	}
}

func (c *checker) suspended(t Task, own Promise) {
	pending := 0
	for _, awaited := range c.s.AwaitedBy(t.ID) {
		p, _ := c.s.Promise(awaited)
		c.report(p.State != PromisePending, SuspendedWithConsumedCallback, t.ID, "awaits %q, which is %s", awaited, p.State)
		if p.State == PromisePending {
			pending++
		}
	}
	c.report(len(t.Resumes) > 0, SuspendedWithConsumedCallback, t.ID, "resumes %q", t.Resumes)
	// One whose own deadline has come is skipped by the settlements of what it awaits, and may be left
	// without a callback until its deadline is carried out.
	c.report(pending == 0 && own.Live(c.now), SuspendedNoCallback, t.ID, "it awaits no pending promise")
}

// timers reports the timers of what does not exist or needs none.
func (c *checker) timers() {
	for id, at := range c.s.PromiseTimers() {
		p, ok := c.s.Promise(id)
		c.report(!ok || p.State != PromisePending, StalePromiseTimeout, id, "timer at %d, promise is %s", at, p.State)
	}
	for timer := range c.s.TaskTimers() {
		if _, ok := c.s.Task(timer.ID); !ok {
			name := PendingTaskNoTimeout
			if timer.Kind == LeaseTimer {
				name = AcquiredTaskNoLease
			}
			c.report(true, name, timer.ID, "timer at %d and no task", timer.At)
		}
	}
}

func (c *checker) relations() {
	type pair struct{ awaited, awaiter string }
	forth := map[pair]bool{}
	for awaited, awaiter := range c.s.AllCallbacks() {
		forth[pair{awaited, awaiter}] = true
		own, ok := c.s.Promise(awaiter)
		c.report(!ok || own.Target == "", CallbackAwaiterNoTarget, awaiter, "awaits %q and has no target", awaited)
		c.report(awaited == awaiter, CallbackAwaiterNoTarget, awaiter, "awaits itself")
		c.report(own.State.Settled(), CallbackOfSettledAwaiter, awaiter, "is %s and awaits %q", own.State, awaited)
		_, ok = c.s.Promise(awaited)
		c.report(!ok, CallbackIndex, awaited, "does not exist and is awaited by %q", awaiter)
	}
	back := 0
	for awaiter, awaited := range c.s.AllAwaitedBy() {
		back++
		c.report(!forth[pair{awaited, awaiter}], CallbackIndex, awaiter, "awaits %q only in one direction", awaited)
	}
	c.report(back < len(forth), CallbackIndex, "", "%d pairs by awaited, %d by awaiter", len(forth), back)
	for id, address := range c.s.AllListeners() {
		_, ok := c.s.Promise(id)
		c.report(!ok, ListenerForSettledPromise, id, "does not exist and has listener %q", address)
	}
}
