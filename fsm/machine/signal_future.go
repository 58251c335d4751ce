package machine

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/journal"
	"perdure/recovery"
)

// signalFuture begins a wait for a signal that can be one of several waits: an invocation that completes when
// the execution has a signal of the name that it has not consumed. It consumes none, so a wait that is
// cancelled or never read takes no signal from another one.
func (c *commit) signalFuture(e journal.InvokeScheduled) error {
	if c.t.m.feature < state.LevelFunctions {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "operation %q needs feature level %d, the partition is at %d",
			e.Promise, state.LevelFunctions, c.t.m.feature).With("id", c.ex.h.ID)
	}
	if e.Function == "" {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "operation %q waits for a signal without a name", e.Promise).With("id", c.ex.h.ID)
	}
	if err := c.add(journal.InvokeStarted{Promise: e.Promise, Attempt: 1}); err != nil {
		return err
	}
	if _, _, buffered := c.ex.j.NextReceipt(e.Function); buffered {
		return c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: noValue()})
	}
	_, err := c.promise(recovery.CreateRequest{ID: string(e.Promise), Param: []byte(e.Function), Tags: state.SignalTags(), External: true, TimeoutAt: state.Never})
	return err
}

func noValue() []byte { return recovery.AppendOutcome(nil, recovery.Outcome{}) }

// signalArrived completes the waits for signals that the execution has and has not consumed.
func (t *txn) signalArrived(ex *execution) {
	for _, promise := range ex.j.OpenSignals() {
		p, ok := t.store(ex.ns).Promise(string(promise))
		if _, _, buffered := ex.j.NextReceipt(string(p.Param)); !ok || !buffered {
			continue
		}
		t.mustNot(ex, t.settle(ex.ns, p.ID, recovery.PromiseResolved, noValue()))
	}
}
