package recovery

// Fence checks that ref holds the lease of its task at now, and changes nothing. A caller that composes a
// larger operation for a worker calls Fence first, in the same atomic step.
//
// Errors: [Invalid], [NotFound], [Conflict].
func Fence(s Store, now int64, ref TaskRef) (Holding, error) {
	t, p, err := guard(s, now, "fence", ref, TaskAcquired)
	if err != nil {
		return Holding{}, err
	}
	return Holding{Task: t, Promise: p}, nil
}
