package recovery

// RegisterListener asks that address be told, by an Unblock, when the promise settles. Registering
// twice is registering once. If the promise is settled nothing is registered and no Unblock will come:
// the answer is the answer.
//
// With anyAwaited false only awaitable promises may be listened to ([Promise.Awaitable]).
//
// Errors: [Invalid], [NotFound], [Conflict] for another incarnation, [Precondition] if the promise is
// not awaitable.
func RegisterListener(s Store, now int64, ref Ref, address string, anyAwaited bool) (Registered, error) {
	const op = "register listener"
	if address == "" {
		return Registered{}, invalid(op, ref.ID, RuleAddress, "the address is empty")
	}
	p, err := findPromise(s, now, op, ref)
	switch {
	case err != nil:
		return Registered{}, err
	case !anyAwaited && !p.Awaitable():
		return Registered{}, precondition(op, p.ID, RuleExternal, "")
	case p.State != PromisePending:
		return Registered{Promise: p}, nil
	}
	s.AddListener(p.ID, address)
	return Registered{Promise: p, Waiting: true}, nil
}
