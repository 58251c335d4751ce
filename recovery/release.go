package recovery

// Release gives an acquired task back: it is pending at the same version. With delay 0 an Execute goes out at
// once; with a delay (milliseconds) the retry timer sends it then, so that a task that fails every time does
// not spin.
//
// Errors: [Invalid] for a negative delay, [NotFound], [Conflict].
func Release(s Store, now int64, ref TaskRef, delay, retry int64) (Task, Effects, error) {
	const op = "release"
	if delay < 0 {
		return Task{}, Effects{}, invalid(op, ref.ID, RuleTimes, "the delay is negative")
	}
	t, _, err := guard(s, now, op, ref, TaskAcquired)
	if err != nil {
		return Task{}, Effects{}, err
	}
	if delay > 0 {
		t = t.pending(after(now, delay))
		s.PutTask(t)
		return t, Effects{}, nil
	}
	t = t.pending(after(now, retry))
	s.PutTask(t)
	return t, executes(t), nil
}
