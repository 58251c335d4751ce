package recovery

// TaskState is the state of a task. The numbers are part of the stored encoding and never change; the
// zero value is no state.
type TaskState uint8

// The states of a task.
const (
	// TaskPending: waiting for a worker; a retry timer repeats the Execute.
	TaskPending TaskState = 1
	// TaskAcquired: held by a worker under a lease.
	TaskAcquired TaskState = 2
	// TaskSuspended: waiting for a promise; no timer.
	TaskSuspended TaskState = 3
	// TaskHalted: taken out of service by an operator; no timer.
	TaskHalted TaskState = 4
	// TaskFulfilled: its promise is settled. Final.
	TaskFulfilled TaskState = 5
)

var taskStateNames = [...]string{
	TaskPending:   "pending",
	TaskAcquired:  "acquired",
	TaskSuspended: "suspended",
	TaskHalted:    "halted",
	TaskFulfilled: "fulfilled",
}

// Valid reports whether s is one of the five states.
func (s TaskState) Valid() bool { return s >= TaskPending && s <= TaskFulfilled }

// String returns the protocol's name of s, or "invalid".
func (s TaskState) String() string {
	if !s.Valid() {
		return "invalid"
	}
	return taskStateNames[s]
}

// ParseTaskState returns the state with the given protocol name.
func ParseTaskState(name string) (TaskState, bool) {
	for s := TaskPending; s.Valid(); s++ {
		if taskStateNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// Task is the right to advance the promise of the same id. The slice is shared and must not be
// modified in place.
type Task struct {
	ID          string
	Incarnation uint64
	State       TaskState
	// Version rises by one on entering TaskAcquired, and never otherwise.
	Version uint64
	// PID is the process that holds the lease, TTL the lease's length in milliseconds, LeaseAt when it
	// runs out. All three are set while acquired, and only then.
	PID     string
	TTL     int64
	LeaseAt int64
	// RetryAt is when the Execute is to be repeated (or, after a delay, sent at all); only while
	// pending.
	RetryAt int64
	// Resumes are the promises that settled since the task last knew, sorted, each once; empty while
	// suspended or fulfilled.
	Resumes []string
	// Target is the target of the promise.
	Target string
	// Releases counts the releases since the task was last suspended ([Return]), ReleasedAt is from when on the last one
	// lets it be executed again, in Unix milliseconds; both 0 if there was none.
	Releases   uint64
	ReleasedAt int64
}

// At returns t as of now, given its own promise (stored or projected). If the promise is settled or its
// deadline has passed, the task is fulfilled, which takes precedence. Else, if its lease has expired (now is
// LeaseAt or later), the task is pending at the same version, with its Execute pending since LeaseAt. At stores
// nothing.
func (t Task) At(now int64, own Promise) Task {
	if !own.Live(now) {
		return t.fulfilled()
	}
	if t.State == TaskAcquired && t.LeaseAt <= now {
		return t.pending(t.LeaseAt)
	}
	return t
}

// Deadline returns the time of the task's one timer, and whether it has one: [ExpireRetry] while pending,
// [ExpireLease] while acquired.
func (t Task) Deadline() (at int64, armed bool) {
	switch t.State {
	case TaskPending:
		return t.RetryAt, true
	case TaskAcquired:
		return t.LeaseAt, true
	}
	return 0, false
}

// The transitions: each gives every field that depends on the state its value in the new one, so that
// no remains of the old state can survive.

func (t Task) pending(retryAt int64) Task {
	t.State, t.RetryAt = TaskPending, retryAt
	t.PID, t.TTL, t.LeaseAt = "", 0, 0
	return t
}

func (t Task) acquired(now int64, pid string, ttl int64) Task {
	t.State, t.RetryAt = TaskAcquired, 0
	t.Version++
	t.PID, t.TTL, t.LeaseAt = pid, ttl, after(now, ttl)
	t.Resumes = nil
	return t
}

func (t Task) suspended() Task {
	t.State, t.RetryAt = TaskSuspended, 0
	t.PID, t.TTL, t.LeaseAt = "", 0, 0
	t.Resumes, t.Releases, t.ReleasedAt = nil, 0, 0
	return t
}

func (t Task) halted() Task {
	t.State, t.RetryAt = TaskHalted, 0
	t.PID, t.TTL, t.LeaseAt = "", 0, 0
	return t
}

func (t Task) fulfilled() Task {
	t.State, t.RetryAt = TaskFulfilled, 0
	t.PID, t.TTL, t.LeaseAt = "", 0, 0
	t.Resumes, t.Releases, t.ReleasedAt = nil, 0, 0
	return t
}

func (t Task) execute() Execute {
	return Execute{ID: t.ID, Incarnation: t.Incarnation, Version: t.Version, Target: t.Target}
}

func (t Task) ref() TaskRef {
	return TaskRef{ID: t.ID, Incarnation: t.Incarnation, Version: t.Version}
}
