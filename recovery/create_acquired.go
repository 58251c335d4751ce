package recovery

// CreateAcquired makes a promise with a target and its task, acquired at version 1 by pid for ttl
// milliseconds; no Execute is needed, the caller is the worker.
//
// If the id exists and its task is pending, that task is acquired at its next version. If its promise
// is settled the stored objects are the answer, and nothing changes. A deadline that is not after now
// makes a settled promise and a fulfilled task, as in [Create].
//
// Errors: [Invalid] (also for a delay); [Precondition] if the promise exists without a target;
// [Conflict] if its task is acquired, suspended or halted.
func CreateAcquired(s Store, now int64, req CreateRequest, pid string, ttl int64) (Created, error) {
	const op = "create acquired"
	tags, err := req.check(op)
	if err != nil {
		return Created{}, err
	}
	switch {
	case req.Target == "":
		return Created{}, invalid(op, req.ID, RuleTarget, "")
	case req.DelayUntil != 0:
		return Created{}, invalid(op, req.ID, RuleDelay, "a task born acquired cannot be delayed")
	}
	if err := checkLease(op, req.ID, pid, ttl); err != nil {
		return Created{}, err
	}

	c, ok := existing(s, now, req.ID)
	switch {
	case !ok:
		c = req.build(now, tags)
		if c.Task.State == TaskPending {
			c.Task, c.Acquired = c.Task.acquired(now, pid, ttl), true
		}
		c.put(s)
	case !c.HasTask:
		return Created{}, precondition(op, req.ID, RuleTarget, "the promise exists and has none")
	case c.Task.State == TaskPending:
		c.Task, c.Acquired = c.Task.acquired(now, pid, ttl), true
		s.PutTask(c.Task)
	case c.Task.State != TaskFulfilled:
		return Created{}, wrongState(op, c.Task, TaskPending)
	}
	return c, nil
}
