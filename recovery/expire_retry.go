package recovery

// ExpireRetry runs the retry timer of a pending task. If the timer has expired and the task's promise is live,
// it repeats the Execute, sets the timer to retry milliseconds after now, and returns true. In every other
// case, a missing task included, it changes nothing.
func ExpireRetry(s Store, now int64, ref Ref, retry int64) (bool, Effects) {
	t, own, ok := timerTask(s, ref)
	if !ok || t.State != TaskPending || t.RetryAt > now || !own.Live(now) {
		return false, Effects{}
	}
	t.RetryAt = after(now, retry)
	s.PutTask(t)
	return true, executes(t)
}
