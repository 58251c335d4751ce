package recovery

// Heartbeat extends the leases of the tasks that pid holds: each lease then ends its own TTL after now. It
// ignores a ref, without an error, unless that process has acquired its task at that version, and neither the
// lease nor the promise's deadline has passed. It returns those that were extended, in the order of refs,
// each with its stored incarnation.
func Heartbeat(s Store, now int64, pid string, refs []TaskRef) []TaskRef {
	var held []TaskRef
	for _, ref := range refs {
		t, _, err := guard(s, now, "heartbeat", ref, TaskAcquired)
		if err != nil || t.PID != pid {
			continue
		}
		t.LeaseAt = after(now, t.TTL)
		s.PutTask(t)
		held = append(held, t.ref())
	}
	return held
}
