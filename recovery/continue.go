package recovery

// Continue puts a halted task back into service: pending at its present version, with an Execute.
//
// Errors: [Invalid], [NotFound], [Conflict] if the task is not halted.
func Continue(s Store, now int64, ref Ref, retry int64) (Task, Effects, error) {
	const op = "continue"
	t, _, err := findTask(s, now, op, ref)
	if err != nil {
		return Task{}, Effects{}, err
	}
	if t.State != TaskHalted {
		return Task{}, Effects{}, wrongState(op, t, TaskHalted)
	}
	t = t.pending(after(now, retry))
	s.PutTask(t)
	return t, executes(t), nil
}
