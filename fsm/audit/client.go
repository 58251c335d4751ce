package audit

import (
	"fmt"
	"strconv"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// clientPromise checks a promise of a client of the recovery protocol against its tags; of is false for other promises.
func (a *auditor) clientPromise(ns string, p recovery.Promise) (of bool) {
	address, targeted := state.AddressOf(p.Target)
	if !state.OfClient(p) {
		if targeted {
			a.found(ns, p.ID, RuleClient, "its target is the address %q, and it is no client's", address)
		}
		return false
	}
	form, _, err := state.ParamForm(p)
	if err != nil || !form.Fits(p.Param) {
		a.found(ns, p.ID, RuleClient, "its parameter of %d bytes has the form %d: %v", len(p.Param), form, err)
	}
	user := recovery.Promise{Tags: state.UserTags(p.Tags)}
	is := func(key, value string) bool { v, _ := user.Tag(key); return v == value }
	target, has := user.Tag(state.TagTarget)
	delay, _ := user.Tag(state.TagDelay)
	at, _ := strconv.ParseInt(delay, 10, 64)
	switch {
	case targeted != has || address != target || p.Target != "" && !targeted:
		a.found(ns, p.ID, RuleClient, "its target is %q, its tags say %q", p.Target, target)
	case p.Timer != is(state.TagTimer, "true") || p.External != (is(state.TagExternal, "true") || is(state.TagScope, "global")):
		a.found(ns, p.ID, RuleClient, "a timer: %t, external: %t, and its tags say otherwise", p.Timer, p.External)
	case p.DelayUntil != at:
		a.found(ns, p.ID, RuleClient, "it is delayed until %d, its tags say %q", p.DelayUntil, delay)
	}
	return true
}

// unblock checks an unblock that waits for its delivery: it is of a settled promise, or of one that is gone, and the
// deadline index leads to its end.
func (a *auditor) unblock(key, value []byte) {
	ns, more, _, ok := a.parts(key, 2)
	if !ok {
		return
	}
	address, objectID := more[0], more[1]
	at, rest, err := keys.CutUint64(value)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		a.damaged(ns, objectID, key, err.Error())
		return
	}
	if !a.canonical(ns, objectID, key, keys.Of(keys.Unblock, ns, address, objectID), nil) {
		return
	}
	a.here(ns, objectID)
	if !a.Has(keys.DeadlineOf(keys.DeadlineUnblock, int64(at), ns, state.UnblockID(objectID, address))) {
		a.found(ns, objectID, RuleDeadline, "an unblock for %q waits until %d, which is not in the index", address, at)
	}
}

// unblockUntil reads until when an unblock waits, by its name in the deadline index.
func (a *auditor) unblockUntil(ns, unblockID string) (at int64, ok bool) {
	objectID, address := state.CutUnblockID(unblockID)
	value, ok := a.Get(keys.Of(keys.Unblock, ns, address, objectID))
	n, _, err := keys.CutUint64(value)
	return int64(n), ok && err == nil
}
