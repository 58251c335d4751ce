package recovery

// firstBackOffMS is the delay after the second release in a row; each further one doubles it, up to the retry interval.
const firstBackOffMS = 100

// Return is [Release] with a delay that grows while the task makes no progress, so that one that fails every time does
// not spin: none after the first release, then 100 ms, and twice the last one for each further release, at most retry.
// The count begins again when the task has been suspended, and when it is released a full retry after it could be
// executed again.
//
// Errors: [NotFound], [Conflict].
func Return(s Store, now int64, ref TaskRef, retry int64) (Task, Effects, error) {
	t, _, err := guard(s, now, "release", ref, TaskAcquired)
	if err != nil {
		return Task{}, Effects{}, err
	}
	if t.Releases > 0 && t.ReleasedAt <= now-max(retry, 1) {
		t.Releases = 0
	}
	t.Releases++
	t.ReleasedAt = now
	if delay := backOff(t.Releases, retry); delay > 0 {
		t.ReleasedAt = after(now, delay)
		t = t.pending(t.ReleasedAt)
		s.PutTask(t)
		return t, Effects{}, nil
	}
	t = t.pending(after(now, retry))
	s.PutTask(t)
	return t, executes(t), nil
}

// backOff is the delay after the n-th release in a row, in milliseconds.
func backOff(n uint64, retry int64) int64 {
	if n < 2 {
		return 0
	}
	delay := int64(firstBackOffMS)
	for ; n > 2 && delay < retry; n-- {
		delay *= 2
	}
	return min(delay, max(retry, 1))
}
