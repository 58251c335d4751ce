package recovery

// TimeoutPromise carries out the deadline of a promise: if it is pending and now is its deadline or
// later, it is settled at exactly TimeoutAt, resolved with an empty value if it is a timer, else
// rejected as timed out. It is the first half of the chain, as [Settle] is. In every other case, a
// missing promise included, nothing changes and the Settlement is not Changed.
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
