package resonate

// Version is the protocol's version, the only one that a request may name.
const Version = "2026-04-01"

// maxMS is the latest time and the largest number that a JSON number carries exactly.
const maxMS int64 = 1<<53 - 1

// Value is what a creator or a settler gives a promise. The server never looks inside Data, which is base64 by
// convention; nil is no data, which differs from the empty string.
type Value struct {
	Headers map[string]string `json:"headers,omitempty"`
	Data    *string           `json:"data,omitempty"`
}

// Promise is the protocol's PromiseRecord. Times are Unix milliseconds; SettledAt is nil while the promise is pending.
type Promise struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Param     Value             `json:"param"`
	Value     Value             `json:"value"`
	Tags      map[string]string `json:"tags"`
	TimeoutAt int64             `json:"timeoutAt"`
	CreatedAt int64             `json:"createdAt"`
	SettledAt *int64            `json:"settledAt,omitempty"`
}

// Task is the protocol's TaskRecord. TTL (milliseconds) and PID are set only while the task is acquired.
type Task struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Version uint64 `json:"version"`
	// Resumes is the number of promises that settled since the task last knew.
	Resumes int    `json:"resumes"`
	TTL     *int64 `json:"ttl,omitempty"`
	PID     string `json:"pid,omitempty"`
}

// Schedule is the protocol's ScheduleRecord. Times are Unix milliseconds; LastRunAt is nil before the first run.
type Schedule struct {
	ID             string            `json:"id"`
	Cron           string            `json:"cron"`
	PromiseID      string            `json:"promiseId"`
	PromiseTimeout int64             `json:"promiseTimeout"`
	PromiseParam   Value             `json:"promiseParam"`
	PromiseTags    map[string]string `json:"promiseTags"`
	CreatedAt      int64             `json:"createdAt"`
	NextRunAt      int64             `json:"nextRunAt"`
	LastRunAt      *int64            `json:"lastRunAt,omitempty"`
}

// The tags that the server reads.
const (
	tagTarget   = "resonate:target"
	tagTimer    = "resonate:timer"
	tagDelay    = "resonate:delay"
	tagExternal = "resonate:external"
	tagScope    = "resonate:scope"
	tagOrigin   = "resonate:origin"
	tagBranch   = "resonate:branch"
	tagParent   = "resonate:parent"
	tagPrefix   = "resonate:prefix"
	tagSchedule = "resonate:schedule"
)
