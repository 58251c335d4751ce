package resonate

import "context"

// Store performs operations at the partitions of their objects. Each blocks until the operation is applied or refused,
// or ctx ends, and is atomic. Errors are *Refusal, or *api.Error where no partition's rule decided. Each record is
// projected to the partition's time. The requests are checked: a Store need not check their form.
type Store interface {
	Promise(ctx context.Context, id string) (Promise, error)
	// CreatePromise answers an existing promise as it is, whatever else the request says.
	CreatePromise(ctx context.Context, req NewPromise) (Promise, error)
	SettlePromise(ctx context.Context, req Settlement) (Promise, error)
	RegisterCallback(ctx context.Context, awaited, awaiter string) (Promise, error)
	RegisterListener(ctx context.Context, awaited, address string) (Promise, error)
	// SearchPromises and SearchTasks return at most Limit records that fit, ascending by id, of all partitions, and the
	// id behind which the next page begins; "" if there is nothing more. A page may be short and still have a next one.
	SearchPromises(ctx context.Context, req Search) (page []Promise, cursor string, err error)

	Task(ctx context.Context, id string) (Task, error)
	CreateTask(ctx context.Context, req NewPromise, lease Lease) (Held, error)
	AcquireTask(ctx context.Context, ref TaskRef, lease Lease) (Held, error)
	ReleaseTask(ctx context.Context, ref TaskRef) error
	// SuspendTask returns waiting if every awaited promise is pending and the task is suspended; otherwise the task is
	// still acquired and no callback was registered.
	SuspendTask(ctx context.Context, ref TaskRef, awaited []string) (s Suspension, err error)
	FulfillTask(ctx context.Context, ref TaskRef, req Settlement) (Promise, error)
	// FenceCreate and FenceSettle create or settle a promise if the task is acquired at ref's version, in one step.
	// FenceSettle returns nil if there is no such promise.
	FenceCreate(ctx context.Context, ref TaskRef, req NewPromise) (Promise, error)
	FenceSettle(ctx context.Context, ref TaskRef, req Settlement) (*Promise, error)
	// Heartbeat extends the leases of those tasks that pid holds at these versions, and ignores the others. The tasks may
	// be of several partitions.
	Heartbeat(ctx context.Context, pid string, tasks []TaskRef) error
	HaltTask(ctx context.Context, id string) error
	ContinueTask(ctx context.Context, id string) error
	SearchTasks(ctx context.Context, req Search) (page []Task, cursor string, err error)

	// CreateSchedule answers an existing schedule as it is. next is the occurrence after a time, of the request's expression.
	CreateSchedule(ctx context.Context, req NewSchedule, next func(after int64) (at int64, ok bool)) (Schedule, error)
	Schedule(ctx context.Context, id string) (Schedule, error)
	DeleteSchedule(ctx context.Context, id string) error
	SearchSchedules(ctx context.Context, req Search) (page []Schedule, cursor string, err error)
}

// NewPromise describes a promise to create. Target, Timer, External and DelayUntil follow from the tags.
type NewPromise struct {
	ID    string
	Param Value
	Tags  map[string]string
	// TimeoutAt is the deadline in Unix milliseconds, 0 to 2^53-1.
	TimeoutAt int64
	// Target is the address of the workers that may execute the promise; empty if none does.
	Target string
	// Timer makes the deadline resolve the promise; External says that somebody outside settles it, so that it may be
	// awaited.
	Timer, External bool
	// DelayUntil is the earliest time of the first execute message, in Unix milliseconds; 0 for at once.
	DelayUntil int64
	// CreatedAt is the time that a schedule's run was due, in Unix milliseconds; 0 for the time of the operation.
	CreatedAt int64
}

// Settlement describes how a promise ends. State is resolved, rejected or rejected_canceled.
type Settlement struct {
	ID    string
	State string
	Value Value
}

// TaskRef names a task at a version.
type TaskRef struct {
	ID      string
	Version uint64
}

// Lease says which process holds a task, and for how many milliseconds without a heartbeat; at least 1.
type Lease struct {
	PID string
	TTL int64
}

// Held is a task, its promise, and the promises of the same branch that spare a worker its requests for them.
type Held struct {
	Task    Task
	Promise Promise
	Preload []Promise
}

// Suspension is the outcome of a suspend.
type Suspension struct {
	// Waiting reports that the task is suspended.
	Waiting bool
	// Preload is for the worker that continues because it is not.
	Preload []Promise
}

// Search selects records by state and tags; empty values select all.
type Search struct {
	State string
	Tags  map[string]string
	// Limit is 1 to 1,000. After is the id behind which the page begins.
	Limit int
	After string
}
