package recovery

// Halt takes a task out of service in any state: a holder loses its lease, and a suspended task is not
// resumed (Resumes collects the promises that settle meanwhile). Halting a halted task changes nothing. It is
// an operator's tool and needs no version.
//
// Errors: [Invalid], [NotFound], [Conflict] if the task is fulfilled.
func Halt(s Store, now int64, ref Ref) (Task, error) {
	const op = "halt"
	t, _, err := findTask(s, now, op, ref)
	if err != nil {
		return Task{}, err
	}
	switch t.State {
	case TaskHalted:
		return t, nil
	case TaskFulfilled:
		return Task{}, &Error{Code: Conflict, Op: op, ID: t.ID, Rule: RuleState, Detail: "task is fulfilled"}
	}
	t = t.halted()
	s.PutTask(t)
	return t, nil
}
