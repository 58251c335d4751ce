package histories

import (
	"fmt"
	"math"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// The rules of trees that can be moved.
const (
	// RuleOpen: every execution of the tree has ended, and so have its children elsewhere.
	RuleOpen = "history_open"
	// RuleBusy: nothing of the tree is being deleted or ended. It soon holds.
	RuleBusy = "history_busy"
	// RuleForm: a record expresses all of what it is made of, and a row all of its record.
	RuleForm = "history_form"
	// RuleTree: the records are those of one tree, its root among them, each once and with its execution.
	RuleTree = "history_tree"
)

// Error says why a tree is not moved.
type Error struct {
	// ID is the object concerned.
	ID string
	// Rule is one of the rules here, or of those of package audit.
	Rule   string
	Detail string
}

func (e *Error) Error() string { return fmt.Sprintf("%q %s", e.ID, e.Detail) }

func open(objectID string) *Error {
	return &Error{objectID, RuleOpen, "has not ended"}
}

func form(objectID, format string, args ...any) *Error {
	return &Error{objectID, RuleForm, fmt.Sprintf(format, args...)}
}

// OfExecution is the record of an execution of a tree that has ended. taskVersion is that of its task; 0 for a graph run.
// The error is an *Error.
func OfExecution(tree string, h state.Header, taskVersion uint64) (*perdurev1.HistoryRecord, error) {
	switch {
	case !h.Status.Terminal():
		return nil, open(h.ID)
	case h.Generation > 0:
		return nil, form(h.ID, "has had %d incarnations before this one", h.Generation)
	case h.ChildrenAt != 0 || h.SweepAt != 0:
		return nil, &Error{h.ID, RuleBusy, "still ends its children"}
	case h.Purge != "":
		return nil, &Error{h.ID, RuleBusy, "is being purged"}
	}
	e := &perdurev1.HistoryExecution{
		Id: h.ID, Function: h.Function, Digest: h.Digest, Status: wire.EncodeStatus(h.Status),
		CreatedMs: h.CreatedMS, ClosedMs: h.ClosedMS, DeadlineMs: h.DeadlineMS, Events: h.Events, Tags: wire.EncodeTags(h.Tags),
		Parent: h.Parent, ParentIncarnation: h.ParentIncarnation, ParentPromise: h.ParentPromise,
		Graph: h.Kind == state.KindGraph, Wave: h.Wave, TaskVersion: taskVersion,
		CancelReason: h.CancelReason, Terminated: h.Terminated, CleanupMs: h.CleanupMS, CleanupChild: h.CleanupChild,
		ClosePolicy: uint32(h.ClosePolicy), FailedAttempts: h.FailedAttempts, RetryAtMs: h.RetryAt, BegunAttempt: h.BegunAttempt,
	}
	if Within(tree, h.Parent) {
		e.ParentIncarnation = 0
	}
	if r := h.Retry; r != (state.Retry{}) {
		e.Retry = &perdurev1.HistoryRetry{Attempts: r.Attempts, InitialMs: r.InitialMS, MaxMs: r.MaxMS, FactorPercent: r.FactorPercent, JitterPercent: r.JitterPercent}
	}
	return &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Execution{Execution: e}}, nil
}

// OfPromise is the record of a promise. One that is pending although its execution has ended, such as a timer that has not
// fired, is cancelled in the record: nobody waits for it. The error is an *Error: a child elsewhere is open.
func OfPromise(p recovery.Promise) (*perdurev1.HistoryRecord, error) {
	c, elsewhere := state.ChildOf(p)
	switch {
	case !p.State.Settled() && elsewhere:
		return nil, open(c.ID)
	case !p.State.Settled():
		p.State, p.SettledAt = recovery.PromiseRejectedCanceled, p.CreatedAt
	}
	w := &perdurev1.HistoryPromise{
		Id: p.ID, State: p.State.String(), Param: p.Param, Value: p.Value, Tags: wire.EncodeTags(p.Tags), Target: p.Target, Timer: p.Timer,
		External: p.External, TimeoutMs: p.TimeoutAt, CreatedMs: p.CreatedAt, SettledMs: p.SettledAt, DelayUntilMs: p.DelayUntil,
	}
	if elsewhere {
		w.Child = c.ID
	}
	return &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Promise{Promise: w}}, nil
}

// OfEntry is the record of an event of an execution's journal.
func OfEntry(objectID string, e journal.Entry) *perdurev1.HistoryRecord {
	return &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Event{Event: &perdurev1.HistoryEvent{Id: objectID, Entry: wire.EncodeEntry(e)}}}
}

// OfGraph is the record of a run's graph, given its stored form.
func OfGraph(objectID string, stored []byte) (*perdurev1.HistoryRecord, error) {
	graph, _, input, err := state.DecodeGraph(stored)
	if err != nil {
		return nil, err
	}
	return &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Graph{Graph: &perdurev1.HistoryGraph{Id: objectID, Graph: graph, Input: input}}}, nil
}

// OfNode is the record of a node of a run, given its stored form.
func OfNode(objectID string, node uint32, stored []byte) (*perdurev1.HistoryRecord, error) {
	r, err := state.DecodeRow(stored)
	if err != nil {
		return nil, err
	}
	if r.Kept || r.Generation != 0 || r.From != 0 || r.RetryAt != 0 {
		return nil, form(objectID, "has a node %d of another incarnation, or one that waits for its next attempt", node)
	}
	return &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Node{Node: &perdurev1.HistoryNode{
		Id: objectID, Node: node, Status: uint32(r.Status), Signal: r.Signal, Child: r.Child, Attempt: r.Attempt,
		StartedMs: r.Started, EndedMs: r.Ended, Wave: r.Wave, Propagated: r.Propagated, Failure: r.Failure, Output: r.Output,
	}}}, nil
}

// OfSignal is the record of a signal that a run has received.
func OfSignal(objectID, name string, payload []byte) *perdurev1.HistoryRecord {
	return &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Signal{Signal: &perdurev1.HistorySignal{Id: objectID, Name: name, Payload: payload}}}
}

// IDOf is the id that a record is about; "" of one without a kind.
func IDOf(rec *perdurev1.HistoryRecord) string {
	switch k := rec.GetKind().(type) {
	case *perdurev1.HistoryRecord_Execution:
		return k.Execution.GetId()
	case *perdurev1.HistoryRecord_Promise:
		return k.Promise.GetId()
	case *perdurev1.HistoryRecord_Event:
		return k.Event.GetId()
	case *perdurev1.HistoryRecord_Graph:
		return k.Graph.GetId()
	case *perdurev1.HistoryRecord_Node:
		return k.Node.GetId()
	case *perdurev1.HistoryRecord_Signal:
		return k.Signal.GetId()
	}
	return ""
}

// rowsOf are the rows of a record in a namespace and an incarnation, without the listing. tree is the root id of the
// record's tree. The error is an *Error.
func rowsOf(ns, tree string, rec *perdurev1.HistoryRecord, incarnation uint64) ([]state.Write, error) {
	objectID := IDOf(rec)
	switch k := rec.GetKind().(type) {
	case *perdurev1.HistoryRecord_Execution:
		return executionRows(ns, tree, k.Execution, incarnation)
	case *perdurev1.HistoryRecord_Promise:
		p, err := promise(k.Promise, incarnation)
		if err != nil {
			return nil, err
		}
		return one(keys.Of(keys.Promise, ns, objectID), recovery.AppendPromise(nil, p)), nil
	case *perdurev1.HistoryRecord_Event:
		e, err := wire.DecodeEntry(k.Event.GetEntry())
		if err != nil {
			return nil, form(objectID, "has an entry %d that is none: %v", k.Event.GetEntry().GetSeq(), err)
		}
		return one(keys.JournalEntry(ns, objectID, incarnation, e.Seq), journal.AppendEntry(nil, e)), nil
	case *perdurev1.HistoryRecord_Graph:
		stored, err := state.EncodeGraph(k.Graph.GetGraph(), k.Graph.GetInput())
		if err != nil {
			return nil, form(objectID, "has a graph that is none: %v", err)
		}
		return one(keys.GraphOf(ns, objectID, incarnation), stored), nil
	case *perdurev1.HistoryRecord_Node:
		return one(keys.NodeOf(ns, objectID, incarnation, k.Node.GetNode()), nodeRow(k.Node).Encode()), nil
	case *perdurev1.HistoryRecord_Signal:
		return one(keys.LatchOf(ns, objectID, incarnation, k.Signal.GetName()), append([]byte{}, k.Signal.GetPayload()...)), nil
	}
	return nil, form(objectID, "has a record of no kind that this program knows")
}

func one(key, value []byte) []state.Write { return []state.Write{{Key: key, Value: value}} }

// executionRows are the header and the task.
func executionRows(ns, tree string, e *perdurev1.HistoryExecution, incarnation uint64) ([]state.Write, error) {
	h, err := header(tree, e, incarnation)
	if err != nil {
		return nil, err
	}
	out := []state.Write{{Key: keys.Of(keys.Header, ns, h.ID), Value: h.Encode()}}
	if h.Kind == state.KindGraph {
		return out, nil
	}
	task := recovery.Task{ID: h.ID, Incarnation: incarnation, State: recovery.TaskFulfilled, Version: e.GetTaskVersion(), Target: h.Function}
	return append(out, state.Write{Key: keys.Of(keys.Task, ns, h.ID), Value: recovery.AppendTask(nil, task)}), nil
}

// header is the header of a record of an execution of a tree.
func header(tree string, e *perdurev1.HistoryExecution, incarnation uint64) (state.Header, error) {
	status := journal.Status(uint8(e.GetStatus()))
	switch {
	case wire.EncodeStatus(status) != e.GetStatus() || !status.Terminal():
		return state.Header{}, open(e.GetId())
	case e.GetClosePolicy() > uint32(state.CloseAbandon):
		return state.Header{}, form(e.GetId(), "has the close policy %d, which is unknown", e.GetClosePolicy())
	case (e.GetId() != tree) != Within(tree, e.GetParent()):
		return state.Header{}, &Error{e.GetId(), RuleTree, fmt.Sprintf("has the parent %q", e.GetParent())}
	}
	h := state.Header{
		ID: e.GetId(), Incarnation: incarnation, Function: e.GetFunction(), Digest: e.GetDigest(), Status: status,
		CreatedMS: e.GetCreatedMs(), ClosedMS: e.GetClosedMs(), DeadlineMS: e.GetDeadlineMs(), Events: e.GetEvents(), Tags: wire.DecodeTags(e.GetTags()),
		Parent: e.GetParent(), ParentIncarnation: e.GetParentIncarnation(), ParentPromise: e.GetParentPromise(), Wave: e.GetWave(),
	}
	h.HeaderMore = state.HeaderMore{
		CancelReason: e.GetCancelReason(), Terminated: e.GetTerminated(), CleanupMS: e.GetCleanupMs(), CleanupChild: e.GetCleanupChild(),
		ClosePolicy: state.ClosePolicy(e.GetClosePolicy()), FailedAttempts: e.GetFailedAttempts(), RetryAt: e.GetRetryAtMs(), BegunAttempt: e.GetBegunAttempt(),
	}
	if r := e.GetRetry(); r != nil {
		h.Retry = state.Retry{Attempts: r.GetAttempts(), InitialMS: r.GetInitialMs(), MaxMS: r.GetMaxMs(), FactorPercent: r.GetFactorPercent(), JitterPercent: r.GetJitterPercent()}
	}
	if e.GetGraph() {
		h.Kind = state.KindGraph
	}
	if Within(tree, h.Parent) {
		h.ParentIncarnation = incarnation
	}
	return h, nil
}

// Below is the prefix of the ids of an execution's operations, at any depth.
func Below(objectID string) string {
	first := string(id.PromiseID(objectID).Child(0))
	return first[:len(first)-1]
}

// Within reports whether an id is that of a tree's root, or of an execution or promise below it.
func Within(tree, objectID string) bool {
	if objectID == tree {
		return true
	}
	p := id.PromiseID(objectID)
	_, err := id.Parse(objectID)
	return err == nil && p.Root() == tree
}

// promise is the promise of a record.
func promise(w *perdurev1.HistoryPromise, incarnation uint64) (recovery.Promise, error) {
	s, ok := recovery.ParsePromiseState(w.GetState())
	if !ok || !s.Settled() {
		return recovery.Promise{}, form(w.GetId(), "has a promise in the state %q", w.GetState())
	}
	p := recovery.Promise{
		ID: w.GetId(), Incarnation: incarnation, State: s, Param: w.GetParam(), Value: w.GetValue(), Tags: wire.DecodeTags(w.GetTags()), Target: w.GetTarget(),
		Timer: w.GetTimer(), External: w.GetExternal(), TimeoutAt: w.GetTimeoutMs(), CreatedAt: w.GetCreatedMs(), SettledAt: w.GetSettledMs(),
		DelayUntil: w.GetDelayUntilMs(),
	}
	if _, address := state.AddressOf(p.Target); address || state.OfClient(p) {
		return recovery.Promise{}, form(p.ID, "is a client's promise, and no part of an execution")
	}
	return p, nil
}

// nodeRow is the node of a record.
func nodeRow(w *perdurev1.HistoryNode) *state.NodeRow {
	return &state.NodeRow{
		Status: reduction.StatusKind(min(w.GetStatus(), math.MaxUint8)), Signal: w.GetSignal(), Child: w.GetChild(), Attempt: w.GetAttempt(),
		Started: w.GetStartedMs(), Ended: w.GetEndedMs(), Wave: w.GetWave(), Propagated: w.GetPropagated(), Failure: w.GetFailure(), Output: w.GetOutput(),
	}
}
