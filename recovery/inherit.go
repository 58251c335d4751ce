package recovery

// InheritLease extends a lease that runs at now to at least its own TTL after since. It never shortens a
// lease. It returns true if it extended the lease; in every other case, a missing task or an ended lease
// included, it changes nothing.
//
// A new leader calls it at the machine's clock (now) with its own clock (since), before time moves on.
// Between the two no leader could extend the lease, so that time does not count against its holder.
func InheritLease(s Store, now int64, ref Ref, since int64) bool {
	t, own, ok := timerTask(s, ref)
	if !ok || t.State != TaskAcquired || t.LeaseAt <= now || !own.Live(now) {
		return false
	}
	at := after(max(now, since), t.TTL)
	if at <= t.LeaseAt {
		return false
	}
	t.LeaseAt = at
	s.PutTask(t)
	return true
}
