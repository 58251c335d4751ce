package audit

import (
	"fmt"
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// wakeless returns why no object in the state will advance an open execution, or "" if one will: a held or
// announced task, a grace, its own expired deadline, or a settlement of an awaited promise. Actions of
// clients and other partitions count as such settlements.
func (a *auditor) wakeless(ns string, h state.Header, s *journal.State, p recovery.Promise) string {
	if !p.Live(a.now) && a.Has(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, ns, h.ID)) {
		return ""
	}
	t, ok := a.storedTask(ns, h.ID)
	if !ok {
		return "it has no task"
	}
	switch t.State {
	case recovery.TaskAcquired:
		if !a.Has(keys.DeadlineOf(keys.DeadlineLease, t.LeaseAt, ns, h.ID)) {
			return fmt.Sprintf("worker %q holds its task, and nothing ends the lease", t.PID)
		}
		return ""
	case recovery.TaskPending:
		if !a.Has(keys.ReadyOf(ns, t.Target, t.RetryAt, h.ID)) && !a.Has(keys.DeadlineOf(keys.DeadlineRetry, t.RetryAt, ns, h.ID)) {
			return fmt.Sprintf("its task is pending, neither in the queue of %q nor with a retry timer", t.Target)
		}
		return ""
	case recovery.TaskHalted:
		return "" // by an operator, who will continue it
	case recovery.TaskFulfilled:
		return "its task is fulfilled"
	}
	if h.GraceAt != 0 && a.Has(keys.DeadlineOf(keys.DeadlineGrace, h.GraceAt, ns, h.ID)) {
		return ""
	}
	kind, on, _, blocked := s.Wait()
	if !blocked {
		return fmt.Sprintf("its task is suspended, and it is %s", s.Status())
	}
	var dead []string
	for _, promise := range on {
		if s.Resolved(promise) {
			continue
		}
		why := a.unsettled(ns, h.ID, promise)
		if why == "" && kind == journal.AwaitAny {
			return ""
		}
		if why != "" {
			dead = append(dead, fmt.Sprintf("it waits for %q, %s", promise, why))
		}
	}
	return strings.Join(dead, "; ")
}

// unsettled returns why an awaited promise will not resume an execution, or "".
func (a *auditor) unsettled(ns, awaiter string, promise id.PromiseID) string {
	p, ok := a.storedPromise(ns, string(promise))
	switch {
	case !ok:
		return "which does not exist"
	case p.State != recovery.PromisePending:
		return "which is " + p.State.String() + ", and its journal does not record it"
	case !resumesWithoutRow(a.From) && !a.Has(keys.Of(keys.Callback, ns, string(promise), awaiter)):
		return "and has no callback on it"
	case p.Timer && !a.Has(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, ns, p.ID)):
		return "a timer that is not in the deadline index"
	case p.Target != "":
		if child, ok := a.storedHeader(ns, p.ID); !ok || child.Status.Terminal() {
			return "a child that no longer runs"
		}
	}
	return ""
}
