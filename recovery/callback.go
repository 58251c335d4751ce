package recovery

// Registered is the answer to [RegisterCallback] and [RegisterListener].
type Registered struct {
	// Promise is the awaited promise at the time of the request. If it is settled, it has the answer and no
	// notification follows.
	Promise Promise
	// Waiting reports that the callback or listener is registered (by this request or an earlier one).
	Waiting bool
}

// RegisterCallback makes the task awaiter wait for the promise awaited: when it settles, the task is among
// the [Settlement]'s Awaiters. It is idempotent. If either promise is settled, it registers nothing and does
// not resume the task.
//
// With anyAwaited false only awaitable promises may be awaited ([Promise.Awaitable]).
//
// Errors: [Invalid]; [NotFound] if awaited is missing; [Precondition] if awaited is not awaitable, or awaiter
// is missing or has no target; [Conflict] for another incarnation of either.
func RegisterCallback(s Store, now int64, awaited, awaiter Ref, anyAwaited bool) (Registered, error) {
	const op = "register callback"
	switch {
	case awaited.ID == "" || awaiter.ID == "":
		return Registered{}, invalid(op, awaited.ID, RuleID, "")
	case awaited.ID == awaiter.ID:
		return Registered{}, invalid(op, awaited.ID, RuleSelfAwait, "")
	}
	p, err := findPromise(s, now, op, awaited)
	if err != nil {
		return Registered{}, err
	}
	own, ok := s.Promise(awaiter.ID)
	switch {
	case !ok:
		return Registered{}, precondition(op, awaiter.ID, RuleAwaiter, "the awaiter does not exist")
	case awaiter.Incarnation != 0 && awaiter.Incarnation != own.Incarnation:
		return Registered{}, staleIncarnation(op, awaiter.ID, own.Incarnation, awaiter.Incarnation)
	case own.Target == "":
		return Registered{}, precondition(op, awaiter.ID, RuleAwaiter, "the awaiter has no target")
	case !anyAwaited && !p.Awaitable():
		return Registered{}, precondition(op, p.ID, RuleExternal, "")
	case p.State != PromisePending || !own.Live(now):
		return Registered{Promise: p}, nil
	}
	s.AddCallback(p.ID, own.ID)
	return Registered{Promise: p, Waiting: true}, nil
}
