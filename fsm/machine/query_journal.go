package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// A page of a journal holds at most so many entries and about so many bytes.
const (
	pageEntries = 1000
	pageBytes   = 1 << 20
)

func (x *query) journal(req *perdurev1.JournalRequest) (*commandv1.QueryReply, *api.Error) {
	h, ok := x.Header(x.q.Namespace, x.q.Id)
	if !ok {
		return nil, wire.NotFound(x.q.Namespace, x.q.Id)
	}
	limit := int(req.Limit)
	if limit <= 0 || limit > pageEntries {
		limit = pageEntries
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Journal{Journal: &perdurev1.JournalResponse{
		Entries: x.entries(h, req.FromSeq, limit, pageBytes), NextSeq: h.Events,
	}}}, nil
}

// task answers what a worker needs to advance an execution it has acquired, with the journal's first
// page. A token that is not current is refused.
func (x *query) task(req *commandv1.TaskQuery) (*commandv1.QueryReply, *api.Error) {
	h, ok := x.Header(x.q.Namespace, x.q.Id)
	task, hasTask := x.Task(x.q.Namespace, x.q.Id)
	if !ok || !hasTask || h.Incarnation != req.Incarnation || task.Version != req.Version || task.State != recovery.TaskAcquired {
		return nil, api.Errorf(perdurev1.Reason_REASON_STALE_TASK, "task %q is not held at version %d", x.q.Id, req.Version).
			With("namespace", x.q.Namespace).With("id", x.q.Id)
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Task{Task: &perdurev1.Task{
		Token: wire.Token(x.q.Namespace, task), Function: h.Function, Status: wire.EncodeStatus(h.Status),
		Entries: x.entries(h, 0, pageEntries, pageBytes), NextSeq: h.Events,
		CreatedMs: h.CreatedMS, DeadlineMs: h.DeadlineMS, Tags: wire.EncodeTags(h.Tags),
	}}}, nil
}
