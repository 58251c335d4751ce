package recovery

// Fulfill settles the promise of an acquired task, on behalf of the worker that holds it. It is the first
// half of the chain, as [Settle] is, and always settles: a valid lease implies a live promise.
//
// Errors: [Invalid], [NotFound], [Conflict].
func Fulfill(s Store, now int64, ref TaskRef, state PromiseState, value []byte) (Settlement, error) {
	const op = "fulfill"
	if !state.Settable() {
		return Settlement{}, invalid(op, ref.ID, RuleSettleTo, "cannot settle to "+state.String())
	}
	_, p, err := guard(s, now, op, ref, TaskAcquired)
	if err != nil {
		return Settlement{}, err
	}
	return settle(s, p.settled(now, state, value)), nil
}
