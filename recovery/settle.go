package recovery

// Settlement is the result of the first half of the settlement chain: the settled promise, the awaiters and
// the listeners to notify.
type Settlement struct {
	// Promise is the promise after the operation.
	Promise Promise
	// Changed reports that this operation settled it. If not, it was settled before (or its deadline has passed,
	// or [TimeoutPromise] found no expired deadline), and Awaiters and Listeners are empty.
	Changed bool
	// Awaiters are the tasks whose callbacks were consumed, ascending. The caller passes each to [Resume],
	// now or when its own condition holds.
	Awaiters []string
	// Listeners are the addresses that were consumed, ascending. The caller sends each an Unblock.
	Listeners []string
}

// Settle settles a promise as a request asks: state is resolved, rejected or rejected_canceled. It is the
// first half of the chain. It settles the promise at now, fulfils its own task, in any state, and removes the
// task from all callback sets. It consumes the promise's callbacks and listeners and returns them.
//
// If the promise is settled or its deadline has passed, Settle returns it and changes nothing; the caller
// compares states.
//
// Errors: [Invalid], [NotFound], [Conflict] for another incarnation.
func Settle(s Store, now int64, ref Ref, state PromiseState, value []byte) (Settlement, error) {
	const op = "settle"
	if !state.Settable() {
		return Settlement{}, invalid(op, ref.ID, RuleSettleTo, "cannot settle to "+state.String())
	}
	p, err := findPromise(s, now, op, ref)
	if err != nil {
		return Settlement{}, err
	}
	if p.State != PromisePending {
		return Settlement{Promise: p}, nil
	}
	return settle(s, p.settled(now, state, value)), nil
}

func (p Promise) settled(now int64, state PromiseState, value []byte) Promise {
	p.State, p.Value, p.SettledAt = state, value, now
	return p
}

// settle writes the first half of the chain for a promise that is pending in the store and settled in
// p.
func settle(s Store, p Promise) Settlement {
	st := Settlement{
		Promise:   p,
		Changed:   true,
		Awaiters:  s.Callbacks(p.ID),
		Listeners: s.Listeners(p.ID),
	}
	s.PutPromise(p)
	if t, ok := s.Task(p.ID); ok {
		s.PutTask(t.fulfilled())
		for _, awaited := range s.AwaitedBy(p.ID) {
			s.RemoveCallback(awaited, p.ID)
		}
	}
	for _, awaiter := range st.Awaiters {
		s.RemoveCallback(p.ID, awaiter)
	}
	if len(st.Listeners) > 0 {
		s.ClearListeners(p.ID)
	}
	return st
}
