package machine

import (
	"slices"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// applyRetryGraph runs a graph that has failed, or was cancelled, again under the same id: a new incarnation,
// which keeps completed and skipped nodes and restarts all others. It is idempotent by its stored reply.
func applyRetryGraph(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetRetryGraph(), cmd.Namespace
	old, ok := t.execution(ns, req.Id)
	if !ok {
		return nil, wire.NotFound(ns, req.Id)
	}
	refuse := func(format string, args ...any) (*commandv1.Reply, *api.Error) {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, format, args...).With("namespace", ns).With("id", req.Id)
	}
	h := old.h
	switch {
	case h.Kind != state.KindGraph:
		return refuse("execution %q is no graph run", h.ID)
	case h.Parent != "":
		return refuse("graph run %q is part of %q, which decides about it", h.ID, h.Parent)
	case !h.Status.Terminal():
		return refuse("graph run %q has not ended: it is %s", h.ID, h.Status)
	case h.Status == journal.StatusCompleted:
		return nil, finished(old)
	case h.Purge != "":
		return nil, beingPurged(old)
	case h.Generation >= state.MaxGeneration:
		return refuse("graph run %q has been retried %d times", h.ID, h.Generation)
	case h.Incarnation == t.index:
		return nil, api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "graph run %q began in this very entry", h.ID).
			With("namespace", ns).With("id", h.ID)
	}
	if t.notifyingOperations(ns, h.ID) {
		return nil, errNotifying(ns, h.ID)
	}
	key := keys.GraphOf(ns, h.ID, h.Incarnation)
	stored, _ := t.get(key)
	g, _, input, err := state.DecodeGraph(stored)
	if err != nil {
		state.PanicCorrupt("graph", key, err)
	}
	kept := t.keepNodes(old, len(g.Nodes))
	signals := t.latches(old)
	t.replace(old)
	deadline := int64(0)
	if h.DeadlineMS != 0 {
		deadline = t.deadline(h.DeadlineMS - h.CreatedMS)
	}
	ex, err := t.start(ns, birth{
		id: h.ID, function: state.FunctionGraph, digest: h.Digest, input: input, tags: h.Tags, deadlineMS: deadline,
		request: h.StartRequest, graph: g, stored: slices.Clone(stored), generation: h.Generation + 1, former: h.Incarnation, signals: signals,
	})
	t.mustNot(old, err)
	return &commandv1.Reply{Kind: &commandv1.Reply_RetryGraph{RetryGraph: &perdurev1.RetryGraphResponse{
		Incarnation: ex.h.Incarnation, FormerIncarnation: h.Incarnation, Reset_: uint32(len(g.Nodes) - kept),
	}}}, nil
}

// keepNodes writes the new incarnation's rows of completed and skipped nodes. Outputs stay in the rows of the
// incarnations that made them.
func (t *txn) keepNodes(old *execution, nodes int) (kept int) {
	prefix := keys.NodePrefix(old.ns, old.h.ID, old.h.Incarnation)
	type keptRow struct {
		n   int
		row state.NodeRow
	}
	var rows []keptRow
	t.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		n, err := state.NodeOfKey(key, prefix, nodes)
		var row state.NodeRow
		if err == nil {
			row, err = state.DecodeRow(append([]byte(nil), value...))
		}
		if err != nil {
			state.PanicCorrupt("node", key, err)
		}
		if row.Status != reduction.StatusCompleted && row.Status != reduction.StatusSkipped {
			return true
		}
		if row.Status == reduction.StatusCompleted && row.From == 0 {
			row.From = old.h.Incarnation
		}
		row.Kept, row.Output, row.Wave = true, nil, 0
		rows = append(rows, keptRow{n, row})
		return true
	})
	for _, k := range rows {
		t.put(keys.NodeOf(old.ns, old.h.ID, t.index, uint32(k.n)), k.row.Encode())
	}
	return len(rows)
}

// latches reads the signals that a run has received.
func (t *txn) latches(ex *execution) (out []latch) {
	prefix := keys.LatchPrefix(ex.ns, ex.h.ID, ex.h.Incarnation)
	t.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		name, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt("signal", key, err)
		}
		out = append(out, latch{name, append([]byte(nil), value...)})
		return true
	})
	return out
}

// replace frees the id of an ended execution for a new incarnation: it removes the promise and the listing
// entry, and leaves journal, graph and rows.
func (t *txn) replace(old *execution) {
	t.store(old.ns).remove(old.h.ID)
	t.remove(keys.VisibilityOf(old.ns, closedClass(old.h.Status), old.h.CreatedMS, old.h.ID))
	t.detach(old)
}

// remove deletes a settled promise. What has not been notified yet waits for the next promise of this id.
func (s store) remove(objectID string) {
	if p, ok := s.Promise(objectID); !ok || p.State == recovery.PromisePending {
		return
	}
	s.t.dropNotification(s.ns, objectID)
	// A task that follows counts as new, since its promise is: PutTask.
	if p, _ := s.Promise(objectID); p.Target != "" && (state.OfClient(p) || s.t.m.feature >= state.LevelInline) {
		s.t.remove(keys.Of(keys.Task, s.ns, objectID))
	}
	if !s.dropInlinePromise(objectID) {
		s.t.remove(keys.Of(keys.Promise, s.ns, objectID))
	}
	s.t.forgetLast()
}
