package recovery

// Ref names a promise, or the task of the same id. Incarnation 0 matches any incarnation; any other must be
// the stored one, else the request is a [Conflict].
type Ref struct {
	ID          string
	Incarnation uint64
}

// TaskRef names a task at the version its holder was given. Incarnation as in [Ref]; the version has
// no such wildcard, 0 is a real version.
type TaskRef struct {
	ID          string
	Incarnation uint64
	Version     uint64
}

// findPromise returns the promise of ref as of now.
func findPromise(s Store, now int64, op string, ref Ref) (Promise, error) {
	if ref.ID == "" {
		return Promise{}, invalid(op, ref.ID, RuleID, "")
	}
	p, ok := s.Promise(ref.ID)
	if !ok {
		return Promise{}, notFound(op, ref.ID, RulePromise)
	}
	if ref.Incarnation != 0 && ref.Incarnation != p.Incarnation {
		return Promise{}, staleIncarnation(op, ref.ID, p.Incarnation, ref.Incarnation)
	}
	return p.At(now), nil
}

// findTask returns the task of ref and its promise, both as of now.
func findTask(s Store, now int64, op string, ref Ref) (Task, Promise, error) {
	if ref.ID == "" {
		return Task{}, Promise{}, invalid(op, ref.ID, RuleID, "")
	}
	t, ok := s.Task(ref.ID)
	if !ok {
		return Task{}, Promise{}, notFound(op, ref.ID, RuleTask)
	}
	p, ok := s.Promise(ref.ID)
	if !ok {
		return Task{}, Promise{}, notFound(op, ref.ID, RulePromise)
	}
	if ref.Incarnation != 0 && ref.Incarnation != t.Incarnation {
		return Task{}, Promise{}, staleIncarnation(op, ref.ID, t.Incarnation, ref.Incarnation)
	}
	p = p.At(now)
	return t.At(now, p), p, nil
}

// guard is the check in front of everything a worker does: the task exists, is in state want at now,
// and has the version the worker presents.
func guard(s Store, now int64, op string, ref TaskRef, want TaskState) (Task, Promise, error) {
	t, p, err := findTask(s, now, op, Ref{ref.ID, ref.Incarnation})
	if err != nil {
		return Task{}, Promise{}, err
	}
	if t.State != want {
		return Task{}, Promise{}, wrongState(op, t, want)
	}
	if t.Version != ref.Version {
		return Task{}, Promise{}, staleVersion(op, t.ID, t.Version, ref.Version)
	}
	return t, p, nil
}

// checkLease refuses a lease without a holder or with a ttl below 1 ms.
func checkLease(op, id, pid string, ttl int64) error {
	if pid == "" {
		return invalid(op, id, RuleLease, "the process id is empty")
	}
	if ttl < 1 {
		return invalid(op, id, RuleLease, "the time to live is less than 1 ms")
	}
	return nil
}
