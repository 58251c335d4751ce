package recovery

import (
	"fmt"
	"iter"
)

// Snapshot is an enumerable state of one namespace and partition: the content of a [Store] and its index of
// deadlines. It does not change while it is read. The sequences are in ascending order of id.
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
	// Notifies is that of [Objects].
	Notifies(id string) bool
	// PromiseTimers yields (promise, time in Unix milliseconds).
	PromiseTimers() iter.Seq2[string, int64]
	TaskTimers() iter.Seq[TaskTimer]
}

// TaskTimerKind distinguishes the two timers of a task, numbered as in the protocol.
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

// Further invariants of every state.
const (
	// SettledNotFulfilled: a promise is settled exactly if its task is fulfilled.
	SettledNotFulfilled = "settled_not_fulfilled"
	// PromiseTimes: createdAt ≤ settledAt ≤ timeoutAt; a promise settled at its deadline has the state and
	// value of a timeout; a pending promise has no settledAt and no value.
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

// Objects is a state whose objects are looked up one by one, of one namespace and partition: what the
// invariants of a single object read. It does not change while it is read.
type Objects interface {
	Promise(id string) (Promise, bool)
	Task(id string) (Task, bool)
	Callbacks(awaited string) []string
	AwaitedBy(awaiter string) []string
	Listeners(id string) []string
	// Notifies reports that the owner has yet to notify listeners of a settled promise, and will.
	Notifies(id string) bool
	// HasCallback and HasAwaitedBy look one pair up in each direction of the callback relation.
	HasCallback(awaited, awaiter string) bool
	HasAwaitedBy(awaiter, awaited string) bool
	// TimersOfPromise lists the times of a promise's timers, TimersOfTask a task's timers. An index in time
	// order may list only the timers that the object needs: CheckPromiseTimer and CheckTaskTimer check all
	// others.
	TimersOfPromise(p Promise) []int64
	TimersOfTask(t Task) []TaskTimer
}

// Invariants returns every violation in s as of now (Unix milliseconds, the time of the last command): first
// those of promises, then tasks, then the relations, each ascending by id. It holds the ids and timers of the
// whole state in memory while it runs.
func Invariants(s Snapshot, now int64) []Violation {
	w := &whole{Snapshot: s, promiseTimers: map[string][]int64{}, taskTimers: map[string][]TaskTimer{},
		forth: map[callback]bool{}, back: map[callback]bool{}}
	for id, at := range s.PromiseTimers() {
		w.promiseTimers[id] = append(w.promiseTimers[id], at)
	}
	for t := range s.TaskTimers() {
		w.taskTimers[t.ID] = append(w.taskTimers[t.ID], t)
	}
	for awaited, awaiter := range s.AllCallbacks() {
		w.forth[callback{awaited, awaiter}] = true
	}
	for awaiter, awaited := range s.AllAwaitedBy() {
		w.back[callback{awaited, awaiter}] = true
	}
	var found []Violation
	for p := range s.Promises() {
		found = append(found, CheckPromise(w, p)...)
	}
	for t := range s.Tasks() {
		found = append(found, CheckTask(w, t, now)...)
	}
	for id, at := range s.PromiseTimers() {
		found = append(found, CheckPromiseTimer(w, id, at)...)
	}
	for t := range s.TaskTimers() {
		if _, ok := s.Task(t.ID); !ok {
			found = append(found, CheckTaskTimer(w, t)...)
		}
	}
	for awaited, awaiter := range s.AllCallbacks() {
		found = append(found, CheckCallback(w, awaited, awaiter)...)
	}
	for awaiter, awaited := range s.AllAwaitedBy() {
		found = append(found, CheckAwaitedBy(w, awaiter, awaited)...)
	}
	for id, address := range s.AllListeners() {
		found = append(found, CheckListener(w, id, address)...)
	}
	return found
}

type callback struct{ awaited, awaiter string }

// whole is a Snapshot with its relations and timers looked up by id.
type whole struct {
	Snapshot
	promiseTimers map[string][]int64
	taskTimers    map[string][]TaskTimer
	forth, back   map[callback]bool
}

func (w *whole) HasCallback(awaited, awaiter string) bool  { return w.forth[callback{awaited, awaiter}] }
func (w *whole) HasAwaitedBy(awaiter, awaited string) bool { return w.back[callback{awaited, awaiter}] }
func (w *whole) TimersOfPromise(p Promise) []int64         { return w.promiseTimers[p.ID] }
func (w *whole) TimersOfTask(t Task) []TaskTimer           { return w.taskTimers[t.ID] }

// violations gathers what the checks of one object find.
type violations []Violation

func (c *violations) report(broken bool, name, id, format string, args ...any) {
	if broken {
		*c = append(*c, Violation{Name: name, ID: id, Detail: fmt.Sprintf(format, args...)})
	}
}

// CheckPromise checks one promise: its task, its deadline, its times, that a settled one has no callbacks, and that
// it has listeners exactly while the owner has yet to notify them.
func CheckPromise(s Objects, p Promise) []Violation {
	var c violations
	t, hasTask := s.Task(p.ID)
	c.report(p.Target != "" && !hasTask, OrphanInvokes, p.ID, "target %q and no task", p.Target)
	c.report(hasTask && p.State.Settled() != (t.State == TaskFulfilled),
		SettledNotFulfilled, p.ID, "promise is %s, task is %s", p.State, t.State)

	if p.State.Settled() {
		callbacks, listeners := s.Callbacks(p.ID), s.Listeners(p.ID)
		notifies := s.Notifies(p.ID)
		c.report(len(callbacks) > 0 || (len(listeners) > 0) != notifies, ListenerForSettledPromise, p.ID,
			"settled with callbacks %q and %d listeners, some left to notify: %t", callbacks, len(listeners), notifies)
		c.report(p.State == PromiseRejectedTimedout && p.SettledAt != p.TimeoutAt,
			TimedoutSettledAtMismatch, p.ID, "settledAt %d, timeoutAt %d", p.SettledAt, p.TimeoutAt)
		c.report(p.CreatedAt > p.SettledAt || p.SettledAt > p.TimeoutAt,
			PromiseTimes, p.ID, "createdAt %d, settledAt %d, timeoutAt %d", p.CreatedAt, p.SettledAt, p.TimeoutAt)
		expired := Promise{State: PromisePending, Timer: p.Timer, TimeoutAt: p.TimeoutAt}.At(p.TimeoutAt)
		c.report(p.SettledAt == p.TimeoutAt && (p.State != expired.State || len(p.Value) > 0),
			PromiseTimes, p.ID, "%s with %d bytes of value by its deadline, must be %s with none", p.State, len(p.Value), expired.State)
		return c
	}
	c.report(!p.State.Valid() || p.SettledAt != 0 || len(p.Value) > 0 || p.CreatedAt >= p.TimeoutAt,
		PromiseTimes, p.ID, "%s with createdAt %d, settledAt %d, timeoutAt %d and %d bytes of value",
		p.State, p.CreatedAt, p.SettledAt, p.TimeoutAt, len(p.Value))
	c.report(s.Notifies(p.ID), ListenerForSettledPromise, p.ID, "%s, and listeners are to be notified", p.State)
	at, armed := p.Deadline(p.Awaitable() || len(s.Callbacks(p.ID)) > 0 || len(s.Listeners(p.ID)) > 0)
	timers := s.TimersOfPromise(p)
	c.report(armed && (len(timers) != 1 || timers[0] != at),
		MissingPromiseTimeout, p.ID, "timers %d, must be one at %d", timers, at)
	for _, timer := range timers {
		c.report(!armed && timer != p.TimeoutAt, MissingPromiseTimeout, p.ID, "timer at %d, timeoutAt %d", timer, p.TimeoutAt)
	}
	return c
}

// CheckTask checks one task as of now: its promise, its lease, its timer, and what it waits for.
func CheckTask(s Objects, t Task, now int64) []Violation {
	var c violations
	p, ok := s.Promise(t.ID)
	c.report(!ok, OrphanTasks, t.ID, "no promise")
	c.report(ok && p.Target == "", OrphanTasks, t.ID, "its promise has no target")
	c.report(ok && (p.Target != t.Target || p.Incarnation != t.Incarnation), OrphanTasks, t.ID,
		"its promise has target %q and incarnation %d, it has %q and %d", p.Target, p.Incarnation, t.Target, t.Incarnation)

	timers := s.TimersOfTask(t)
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
		c.suspended(s, t, p, now)
		c.report(len(timers) > 0, SuspendedTaskHasTimeout, t.ID, "timers %v", timers)
	case TaskHalted:
		c.report(len(timers) > 0, SuspendedTaskHasTimeout, t.ID, "halted, timers %v", timers)
	case TaskFulfilled:
		c.report(len(timers) > 0 || len(t.Resumes) > 0, FulfilledTaskHasTimeout, t.ID, "timers %v, resumes %q", timers, t.Resumes)
	default:
		c.report(true, OrphanTasks, t.ID, "state %d is none", t.State)
	}
	return c
}

func (c *violations) suspended(s Objects, t Task, own Promise, now int64) {
	pending := 0
	for _, awaited := range s.AwaitedBy(t.ID) {
		p, _ := s.Promise(awaited)
		c.report(p.State != PromisePending, SuspendedWithConsumedCallback, t.ID, "awaits %q, which is %s", awaited, p.State)
		if p.State == PromisePending {
			pending++
		}
	}
	c.report(len(t.Resumes) > 0, SuspendedWithConsumedCallback, t.ID, "resumes %q", t.Resumes)
	// Settlements skip an awaiter whose own deadline has passed, so it may have no callback until its
	// expiration runs.
	c.report(pending == 0 && own.Live(now), SuspendedNoCallback, t.ID, "it awaits no pending promise")
}

// CheckPromiseTimer checks one timer of a promise: the promise exists and is pending.
func CheckPromiseTimer(s Objects, id string, at int64) []Violation {
	var c violations
	p, ok := s.Promise(id)
	c.report(!ok || p.State != PromisePending, StalePromiseTimeout, id, "timer at %d, promise is %s", at, p.State)
	return c
}

// CheckTaskTimer checks one timer of a task: the task exists, in a state with such a timer at this time.
func CheckTaskTimer(s Objects, timer TaskTimer) []Violation {
	var c violations
	t, ok := s.Task(timer.ID)
	name, want, at := PendingTaskNoTimeout, TaskPending, t.RetryAt
	if timer.Kind == LeaseTimer {
		name, want, at = AcquiredTaskNoLease, TaskAcquired, t.LeaseAt
	}
	switch {
	case !ok:
		c.report(true, name, timer.ID, "timer at %d and no task", timer.At)
	case t.State == want:
		c.report(at != timer.At, name, timer.ID, "timer at %d, the %s task has it at %d", timer.At, t.State, at)
	case t.State == TaskFulfilled:
		c.report(true, FulfilledTaskHasTimeout, timer.ID, "timer at %d", timer.At)
	case t.State == TaskSuspended || t.State == TaskHalted:
		c.report(true, SuspendedTaskHasTimeout, timer.ID, "%s, timer at %d", t.State, timer.At)
	default:
		c.report(true, name, timer.ID, "timer at %d, task is %s", timer.At, t.State)
	}
	return c
}

// CheckCallback checks one pair of the callback relation, seen from the awaited promise.
func CheckCallback(s Objects, awaited, awaiter string) []Violation {
	var c violations
	own, ok := s.Promise(awaiter)
	c.report(!ok || own.Target == "", CallbackAwaiterNoTarget, awaiter, "awaits %q and has no target", awaited)
	c.report(awaited == awaiter, CallbackAwaiterNoTarget, awaiter, "awaits itself")
	c.report(own.State.Settled(), CallbackOfSettledAwaiter, awaiter, "is %s and awaits %q", own.State, awaited)
	_, ok = s.Promise(awaited)
	c.report(!ok, CallbackIndex, awaited, "does not exist and is awaited by %q", awaiter)
	c.report(!s.HasAwaitedBy(awaiter, awaited), CallbackIndex, awaiter, "awaits %q only in one direction", awaited)
	return c
}

// CheckAwaitedBy checks one pair of the callback relation, seen from the awaiter.
func CheckAwaitedBy(s Objects, awaiter, awaited string) []Violation {
	var c violations
	c.report(!s.HasCallback(awaited, awaiter), CallbackIndex, awaiter, "awaits %q only in one direction", awaited)
	return c
}

// CheckListener checks one listener of a promise: the promise exists. CheckPromise checks that it is pending, or that
// its listeners are being notified.
func CheckListener(s Objects, id, address string) []Violation {
	var c violations
	_, ok := s.Promise(id)
	c.report(!ok, ListenerForSettledPromise, id, "does not exist and has listener %q", address)
	return c
}
