package machine

import (
	"fmt"
	"slices"

	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// checkedBacklog is how many entries of an entity's lists are checked after a command, on average.
const checkedBacklog = 512

// checkInvariants checks the objects that a command has touched: promises, tasks and relations by the server
// invariants of the recovery protocol, and executions, whose promise, task and journal must agree (the ending
// table). A violation halts the replica before any write of the entry is stored.
func (t *txn) checkInvariants() error {
	for _, o := range t.entities {
		// Of a long backlog only some versions are checked, so that a command's cost does not grow with it.
		if n := uint64(len(o.Queue)+len(o.Delayed)) / checkedBacklog; n > 0 && t.index%(n+1) != 0 {
			continue
		}
		for _, v := range o.Invariants() {
			return &audit.InvariantError{Namespace: o.ns, ID: string(o.ID), Rule: v.Name, Detail: v.Detail}
		}
	}
	for _, ex := range t.touched {
		if ex.holder != nil {
			for _, v := range ex.holder.Invariants() {
				return &audit.InvariantError{Namespace: ex.ns, ID: ex.h.ID, Rule: v.Name, Detail: v.Detail}
			}
		}
		broken := func(rule, format string, args ...any) error {
			return &audit.InvariantError{Namespace: ex.ns, ID: ex.h.ID, Rule: rule, Detail: fmt.Sprintf(format, args...)}
		}
		s := t.store(ex.ns)
		p, ok := s.Promise(ex.h.ID)
		if !ok {
			return broken("orphan_journal", "an execution without a promise")
		}
		if ex.h.Kind == state.KindGraph {
			if rule, detail := t.graphInvariant(ex, p); rule != "" {
				return broken(rule, "%s", detail)
			}
			continue
		}
		task, ok := s.Task(ex.h.ID)
		if !ok {
			return broken("orphan_invokes", "an execution without a task")
		}
		status := ex.h.Status
		if ex.j != nil {
			status = ex.j.Status()
		}
		if p.State.Settled() != status.Terminal() {
			return broken("ending", "promise %s, journal %s", p.State, status)
		}
		if task.State == recovery.TaskPending && task.RetryAt == 0 {
			return broken(recovery.PendingTaskNoTimeout, "a pending task without a retry timer")
		}
		if (task.State == recovery.TaskSuspended) != (status == journal.StatusBlocked) {
			return broken("suspended_blocked", "task %s, journal %s", task.State, status)
		}
		if status == journal.StatusBlocked && ex.j.WaitSatisfied() {
			return broken("satisfied_wait_resumed", "the wait is satisfied and the execution was not resumed")
		}
		if status == journal.StatusBlocked && p.Live(t.now) && !t.awaitsPending(ex) {
			return broken(recovery.SuspendedNoCallback, "it waits for no pending promise")
		}
	}
	return t.checkWritten()
}

// awaitsPending reports that a promise of an execution's wait is pending.
func (t *txn) awaitsPending(ex *execution) bool {
	_, on, _, _ := ex.j.Wait()
	for _, promise := range slices.Backward(on) { // most often the last one is settled last
		if p, ok := t.store(ex.ns).Promise(string(promise)); ok && p.State == recovery.PromisePending && !ex.j.Resolved(promise) {
			return true
		}
	}
	return false
}

// checkWritten checks what the transaction has written by the invariants of the recovery protocol.
func (t *txn) checkWritten() error {
	for _, w := range t.table.log {
		if _, there := (state.Must{From: t.below}).Get(w.key); w.fresh && there {
			return &audit.InvariantError{ID: string(w.key), Rule: "fresh_key", Detail: "a write counts as the key's first one, and there is a value"}
		}
	}
	return t.m.invariants.Check(t, t.now, func(yield func(key []byte, removed bool) bool) {
		for _, w := range t.table.log {
			if !w.void && !yield(w.key, w.removed) {
				return
			}
		}
	})
}

// graphInvariant checks a graph run after a command, at a cost independent of the run's size.
func (t *txn) graphInvariant(ex *execution, p recovery.Promise) (rule, detail string) {
	switch status := ex.h.Status; {
	case p.State.Settled() != status.Terminal():
		return "ending", fmt.Sprintf("promise %s, journal %s", p.State, status)
	case p.State == recovery.PromiseRejectedTimedout && p.SettledAt != p.TimeoutAt:
		return "timedout_settled_at_mismatch", fmt.Sprintf("settled at %d, deadline %d", p.SettledAt, p.TimeoutAt)
	case status.Terminal() || ex.run == nil:
		return "", ""
	}
	r := ex.run
	phase := r.engine.Phase()
	_, more := r.next()
	switch {
	case r.busy || r.taken < len(r.ended):
		return "graph_advanced", "an attempt has ended, and its node was not updated"
	case phase.Settled() || phase == reduction.PhaseStuck:
		return "graph_concluded", fmt.Sprintf("the graph is %s, and the run has not ended", phase)
	case r.graph.MaxParallel > 0 && r.counts.slots > int(r.graph.MaxParallel):
		return "graph_max_parallel", fmt.Sprintf("%d nodes run, at most %d may", r.counts.slots, r.graph.MaxParallel)
	case more && ex.h.Status == journal.StatusRunning && ex.h.GraphAt == 0:
		return "graph_started", "a node may start, and the run has no deadline to continue"
	case r.counts.active == 0 && r.engine.Count(reduction.StatusWaiting) == 0 && ex.h.GraphAt == 0:
		return "stuck", "no node runs, and none waits"
	case ex.h.Status == journal.StatusCancelling && r.counts.attempts == 0:
		return "graph_cancelled", "nothing runs any more, and the run is Cancelling"
	}
	return "", ""
}
