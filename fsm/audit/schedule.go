package audit

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// schedule checks a schedule: it is what its key says, and its runs follow each other.
func (a *auditor) schedule(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	scheduleID := more[0]
	s, err := state.DecodeSchedule(value)
	if err != nil {
		a.damaged(ns, scheduleID, key, err.Error())
		return
	}
	if !a.canonical(ns, scheduleID, key, keys.Of(keys.Schedule, s.Namespace, s.Id), nil) {
		return
	}
	a.here(ns, scheduleID)
	switch {
	case s.NextRunAtMs <= s.LastRunAtMs:
		a.found(ns, scheduleID, RuleSchedule, "its next run is at %d, its last one was at %d", s.NextRunAtMs, s.LastRunAtMs)
	case s.Incarnation == 0 || s.Incarnation > a.newest:
		a.found(ns, scheduleID, RuleSchedule, "it was created at index %d, the last one is %d", s.Incarnation, a.newest)
	case s.CreatedAtMs > a.now:
		a.found(ns, scheduleID, RuleClock, "it was created at %d, after %d", s.CreatedAtMs, a.now)
	}
}
