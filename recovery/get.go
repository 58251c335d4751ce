package recovery

// GetPromise returns the promise as of now, or a [NotFound] or [Conflict] error.
func GetPromise(s Store, now int64, ref Ref) (Promise, error) {
	return findPromise(s, now, "get promise", ref)
}

// GetTask returns the task and its promise as of now, or a [NotFound] or [Conflict] error.
func GetTask(s Store, now int64, ref Ref) (Task, Promise, error) {
	return findTask(s, now, "get task", ref)
}
