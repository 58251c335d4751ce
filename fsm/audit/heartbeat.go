package audit

import (
	"bytes"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
)

// heartbeats checks the bytes of heartbeats and that their execution is open. openSteps checks them by its journal.
func (a *auditor) heartbeats(key, value []byte) {
	ns, more, rest, ok := a.parts(key, 1)
	if !ok {
		return
	}
	objectID := more[0]
	incarnation, rest, err := keys.CutUint64(rest)
	if err != nil || len(rest) != 0 {
		a.damaged(ns, objectID, key, "no heartbeats have this key")
		return
	}
	steps, err := state.DecodeHeartbeats(value)
	switch {
	case err != nil:
		a.damaged(ns, objectID, key, err.Error())
		return
	case !bytes.Equal(state.EncodeHeartbeats(steps), value):
		a.damaged(ns, objectID, key, "the heartbeats are not written the one way there is")
	}
	a.here(ns, objectID)
	switch h, ok := a.storedHeader(ns, objectID); {
	case !ok || h.Incarnation != incarnation || h.Status.Terminal():
		a.found(ns, objectID, RuleHeartbeat, "heartbeats of %d steps, and incarnation %d of their execution is not open", len(steps), incarnation)
	case h.HeartbeatAt == 0:
		a.found(ns, objectID, RuleHeartbeat, "heartbeats of %d steps, and the header has none", len(steps))
	}
}

// openSteps checks the heartbeats of an open execution by its journal.
func (a *auditor) openSteps(ns string, h state.Header, j *journal.State) {
	if h.HeartbeatAt == 0 {
		return
	}
	b, ok := a.Get(keys.HeartbeatOf(ns, h.ID, h.Incarnation))
	if !ok {
		a.found(ns, h.ID, RuleHeartbeat, "the header has a heartbeat at %d, and none is stored", h.HeartbeatAt)
		return
	}
	steps, err := state.DecodeHeartbeats(b)
	if err != nil {
		return // heartbeats reports it
	}
	last := int64(0)
	for _, s := range steps {
		last = max(last, s.AtMS)
		promise := id.PromiseID(h.ID).Child(s.Child)
		switch inv, known := j.Invoke(promise); {
		case !known && s.Child != j.NextChild():
			a.found(ns, h.ID, RuleHeartbeat, "heartbeat of %q, and %d child ids are taken", promise, j.NextChild())
		case known && (inv.Completed || inv.Kind != journal.InvokeStep && inv.Kind != journal.InvokeHTTP):
			a.found(ns, h.ID, RuleHeartbeat, "heartbeat of %q, which is no step without a result", promise)
		}
	}
	switch {
	case last != h.HeartbeatAt:
		a.found(ns, h.ID, RuleHeartbeat, "the last heartbeat is at %d, the header says %d", last, h.HeartbeatAt)
	case last > a.report.ClockMS:
		a.found(ns, h.ID, RuleClock, "the last heartbeat is at %d, the machine's time is %d", last, a.report.ClockMS)
	}
}
