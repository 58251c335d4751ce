package recovery

// Propagate is the second half of the settlement chain for everyone in st: every awaiter is resumed
// and every listener unblocked. It is for callers whose awaiters have no condition of their own.
// The Executes are in the order of the awaiters.
func Propagate(s Store, now int64, st Settlement, retry int64) Effects {
	var fx Effects
	for _, awaiter := range st.Awaiters {
		_, woken := Resume(s, now, awaiter, st.Promise.ID, retry)
		fx.Add(woken)
	}
	fx.Add(st.Unblocks())
	return fx
}

// Unblocks returns one Unblock for each listener of the settlement.
func (st Settlement) Unblocks() Effects {
	var fx Effects
	for _, address := range st.Listeners {
		fx.Unblocks = append(fx.Unblocks, Unblock{Address: address, Promise: st.Promise})
	}
	return fx
}

// Chain settles a promise and runs the whole settlement chain: [Settle], then [Propagate].
func Chain(s Store, now int64, ref Ref, state PromiseState, value []byte, retry int64) (Settlement, Effects, error) {
	st, err := Settle(s, now, ref, state, value)
	if err != nil {
		return Settlement{}, Effects{}, err
	}
	return st, Propagate(s, now, st, retry), nil
}
