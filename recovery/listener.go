package recovery

// RegisterListener registers address for an Unblock at the promise's settlement. It is idempotent. If the
// promise is settled, it registers nothing and no Unblock follows: the returned promise has the value.
//
// With anyAwaited false only awaitable promises may be listened to ([Promise.Awaitable]).
//
// Errors: [Invalid], [NotFound], [Conflict] for another incarnation, [Precondition] if the promise is not
// awaitable.
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
