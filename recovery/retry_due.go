package recovery

// RetryDue carries out the retry timer of a pending task: if the time has come and the task's promise
// is live, its Execute is sent (again), the timer is set to retry milliseconds after now, and true is
// returned. In every other case, a missing task included, nothing changes.
func RetryDue(s Store, now int64, ref Ref, retry int64) (bool, Effects) {
	t, own, ok := timerTask(s, ref)
	if !ok || t.State != TaskPending || t.RetryAt > now || !own.Live(now) {
		return false, Effects{}
	}
	t.RetryAt = after(now, retry)
	s.PutTask(t)
	return true, executes(t)
}
