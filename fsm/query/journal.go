package query

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// Bounds of a journal page: its entries, and approximately its bytes.
const (
	pageEntries = 1000
	PageBytes   = 1 << 20
)

func (x *Read) journal(req *perdurev1.JournalRequest) (*commandv1.QueryReply, *api.Error) {
	h, ok := x.Header(x.Query.Namespace, x.Query.Id)
	if !ok {
		return nil, wire.NotFound(x.Query.Namespace, x.Query.Id)
	}
	limit := int(req.Limit)
	if limit <= 0 || limit > pageEntries {
		limit = pageEntries
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Journal{Journal: &perdurev1.JournalResponse{
		Entries: x.entries(h, req.FromSeq, limit, PageBytes), NextSeq: h.Events, Incarnation: h.Incarnation,
	}}}, nil
}

// task returns the state that a worker needs to advance an acquired execution, with the first page of the journal from
// from_seq on; from_seq comes from a worker, and beyond the journal it counts as 0. It refuses a stale token.
func (x *Read) task(req *commandv1.TaskQuery) (*commandv1.QueryReply, *api.Error) {
	if entityID, ok := id.EntityOfTask(x.Query.Id); ok {
		return x.entityTask(entityID, req)
	}
	h, ok := x.Header(x.Query.Namespace, x.Query.Id)
	task, hasTask := x.Task(x.Query.Namespace, x.Query.Id)
	if !ok || !hasTask || h.Incarnation != req.Incarnation || task.Version != req.Version || task.State != recovery.TaskAcquired {
		return nil, api.Errorf(perdurev1.Reason_REASON_STALE_TASK, "task %q is not held at version %d", x.Query.Id, req.Version).
			With("namespace", x.Query.Namespace).With("id", x.Query.Id)
	}
	var of *perdurev1.CleanupOf
	if h.IsCleanup() {
		cancelled, ok := x.Header(x.Query.Namespace, h.Parent)
		if !ok || cancelled.Incarnation != h.ParentIncarnation {
			return nil, wire.NotFound(x.Query.Namespace, h.Parent)
		}
		of = &perdurev1.CleanupOf{Id: cancelled.ID, Incarnation: cancelled.Incarnation, Function: cancelled.Function,
			NextSeq: cancelled.Events, CreatedMs: cancelled.CreatedMS, DeadlineMs: cancelled.DeadlineMS}
	}
	from := req.FromSeq
	if from >= h.Events {
		from = 0
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Task{Task: &perdurev1.Task{
		Token: wire.Token(x.Query.Namespace, task), Function: h.Function, Status: wire.EncodeStatus(h.Status),
		Entries: x.entries(h, from, pageEntries, PageBytes), NextSeq: h.Events,
		CreatedMs: h.CreatedMS, DeadlineMs: h.DeadlineMS, Tags: wire.EncodeTags(h.Tags),
		CleanupMs: h.CleanupMS, CleanupOf: of, Steps: x.steps(h),
	}}}, nil
}
