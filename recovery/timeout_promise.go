package recovery

// TimeoutPromise settles a pending promise if now is its deadline or later. It settles at exactly TimeoutAt:
// a timer is resolved with an empty value, any other promise is rejected as timed out. It is the first half
// of the chain, as [Settle] is. In every other case, a missing promise included, nothing changes and the
// Settlement is not Changed.
func TimeoutPromise(s Store, now int64, ref Ref) Settlement {
	p, ok := s.Promise(ref.ID)
	if !ok || (ref.Incarnation != 0 && ref.Incarnation != p.Incarnation) {
		return Settlement{}
	}
	if p.State != PromisePending || p.Live(now) {
		return Settlement{Promise: p}
	}
	return settle(s, p.At(now))
}
