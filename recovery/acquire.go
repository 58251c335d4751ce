package recovery

// Holding is a task in the hands of a worker, with its promise.
type Holding struct {
	Task    Task
	Promise Promise
}

// Acquire gives a pending task to the process pid for ttl milliseconds. ref presents the version of the
// Execute; the answer carries the next one, which the worker presents from then on. Acquire clears Resumes,
// since the worker's replay shows the earlier settlements.
//
// Acquiring again what one has already acquired is a [Conflict] like any other: a caller that may lose an
// answer keeps answers.
//
// Errors: [Invalid], [NotFound], [Conflict].
func Acquire(s Store, now int64, ref TaskRef, pid string, ttl int64) (Holding, error) {
	const op = "acquire"
	if err := checkLease(op, ref.ID, pid, ttl); err != nil {
		return Holding{}, err
	}
	t, p, err := guard(s, now, op, ref, TaskPending)
	if err != nil {
		return Holding{}, err
	}
	t = t.acquired(now, pid, ttl)
	s.PutTask(t)
	return Holding{Task: t, Promise: p}, nil
}
