package recovery

import "slices"

// Resumed is what [Resume] did.
type Resumed uint8

// The results of [Resume].
const (
	// ResumeSkipped: the awaiter's own promise is settled, or its deadline has come, or it has no task.
	// It belongs to its own settlement; nothing changed.
	ResumeSkipped Resumed = iota
	// ResumeBuffered: the awaiter was not suspended; the settled promise is among its Resumes.
	ResumeBuffered
	// ResumeWoken: the awaiter was suspended and is pending now, with an Execute.
	ResumeWoken
)

// String returns the name of r.
func (r Resumed) String() string {
	switch r {
	case ResumeBuffered:
		return "buffered"
	case ResumeWoken:
		return "woken"
	}
	return "skipped"
}

// Resume is the second half of the settlement chain for one awaiter of the settled promise by. A
// suspended task becomes pending, with by as its only resume, at its present version; a pending,
// acquired or halted one keeps its state and remembers by.
func Resume(s Store, now int64, awaiter, by string, retry int64) (Resumed, Effects) {
	// The stored task, not its projection: ExpireLease ends an expired lease, and Resume treats pending and
	// acquired alike.
	t, ok := s.Task(awaiter)
	if !ok {
		return ResumeSkipped, Effects{}
	}
	own, ok := s.Promise(awaiter)
	if !ok || !own.Live(now) {
		return ResumeSkipped, Effects{}
	}
	if t.State == TaskSuspended {
		t = t.pending(after(now, retry))
		t.Resumes = []string{by}
		s.PutTask(t)
		return ResumeWoken, executes(t)
	}
	if i, found := slices.BinarySearch(t.Resumes, by); !found {
		// slices.Insert might write into the store's slice.
		resumes := make([]string, 0, len(t.Resumes)+1)
		resumes = append(resumes, t.Resumes[:i]...)
		resumes = append(resumes, by)
		t.Resumes = append(resumes, t.Resumes[i:]...)
		s.PutTask(t)
	}
	return ResumeBuffered, Effects{}
}
