package recovery

// ExpireLease ends an expired lease. If the task is acquired, its lease has expired and its promise is live,
// the task becomes pending at the same version, with an Execute, and ExpireLease returns true. The next
// acquire raises the version, which fences the old holder. In every other case, a missing task included,
// nothing changes.
func ExpireLease(s Store, now int64, ref Ref, retry int64) (bool, Effects) {
	t, own, ok := timerTask(s, ref)
	if !ok || t.State != TaskAcquired || t.LeaseAt > now || !own.Live(now) {
		return false, Effects{}
	}
	t = t.pending(after(now, retry))
	s.PutTask(t)
	return true, executes(t)
}

// timerTask returns what a timer that was set for ref is about, as stored.
func timerTask(s Store, ref Ref) (Task, Promise, bool) {
	t, ok := s.Task(ref.ID)
	if !ok || (ref.Incarnation != 0 && ref.Incarnation != t.Incarnation) {
		return Task{}, Promise{}, false
	}
	own, ok := s.Promise(ref.ID)
	return t, own, ok
}
