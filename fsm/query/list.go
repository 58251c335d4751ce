package query

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// ListBudget bounds the listing entries that one query reads before it returns a partial page.
const ListBudget = 100_000

// maxListedProblem bounds a problem in a listing, in bytes.
const maxListedProblem = 256

// ListPosition is where a listing continues: after the execution created at CreatedMS with this id.
type ListPosition struct {
	CreatedMS int64
	ID        string
}

// Encode returns the position as an opaque cursor.
func (p ListPosition) Encode() []byte {
	b := binary.AppendUvarint(binary.AppendVarint(nil, p.CreatedMS), uint64(len(p.ID)))
	return append(b, p.ID...)
}

// DecodeListPosition reads a cursor.
func DecodeListPosition(b []byte) (ListPosition, error) {
	created, n := binary.Varint(b)
	size, m := binary.Uvarint(b[max(n, 0):])
	if n <= 0 || m <= 0 || size != uint64(len(b)-n-m) {
		return ListPosition{}, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the cursor of %d bytes is damaged", len(b))
	}
	return ListPosition{CreatedMS: created, ID: string(b[n+m:])}, nil
}

// CompareListed orders executions as listings do: newest first, then by id.
func CompareListed(a, b *perdurev1.ExecutionSummary) int {
	switch {
	case a.CreatedMs > b.CreatedMs:
		return -1
	case a.CreatedMs < b.CreatedMs:
		return 1
	}
	return strings.Compare(a.Id, b.Id)
}

func classOf(s perdurev1.ExecutionStatus) keys.VisibilityClass {
	switch s {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED:
		return keys.Completed
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
		return keys.Failed
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		return keys.Cancelled
	default:
		return keys.Open
	}
}

// list reads one partition's part of a listing; the caller merges the parts of several partitions.
func (x *Read) list(req *perdurev1.ListRequest) (*commandv1.QueryReply, *api.Error) {
	limit := int(req.Limit)
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	var after ListPosition
	if len(req.Cursor) > 0 {
		p, err := DecodeListPosition(req.Cursor)
		if err != nil {
			return nil, err.(*api.Error)
		}
		after = p
	}
	classes := []keys.VisibilityClass{keys.Open, keys.Completed, keys.Failed, keys.Cancelled}
	if len(req.Status) > 0 {
		classes = classes[:0:0]
		for _, s := range req.Status {
			if c := classOf(s); !slices.Contains(classes, c) {
				classes = append(classes, c)
			}
		}
	}
	var all []*perdurev1.ExecutionSummary
	var stopped []*perdurev1.ExecutionSummary // the last entry read, of classes cut off by the budget
	for _, class := range classes {
		found, cut := x.listClass(req, class, after, limit)
		all = append(all, found...)
		if cut != nil {
			stopped = append(stopped, cut)
		}
	}
	slices.SortFunc(all, CompareListed)
	reply := &perdurev1.ListResponse{}
	more := len(all) > limit
	if more {
		all = all[:limit]
	}
	// The page must end before the position at which any class was cut off.
	for _, cut := range stopped {
		for len(all) > 0 && CompareListed(all[len(all)-1], cut) > 0 {
			all, more = all[:len(all)-1], true
		}
	}
	reply.Executions = all
	switch {
	case len(all) > 0 && (more || len(all) == limit || len(stopped) > 0):
		last := all[len(all)-1]
		reply.Cursor = ListPosition{CreatedMS: last.CreatedMs, ID: last.Id}.Encode()
	case len(stopped) > 0:
		slices.SortFunc(stopped, CompareListed)
		reply.Cursor = ListPosition{CreatedMS: stopped[0].CreatedMs, ID: stopped[0].Id}.Encode()
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_List{List: reply}}, nil
}

// unservedMS is how long a task of a pinned execution may wait before it counts as a problem.
const unservedMS = 10_000

// unserved says that no worker has taken the task of an execution that is pinned to a digest; empty if one
// has, or if the task has not waited for long.
func (x *Read) unserved(objectID string) string {
	task, ok := x.Task(x.Query.Namespace, objectID)
	if !ok || task.State != recovery.TaskPending {
		return ""
	}
	q := state.QueueOf(x.Query.Namespace, task.Target)
	p, _ := x.Promise(x.Query.Namespace, objectID)
	waits := x.ClockMS - (task.RetryAt - state.RetryMS)
	if _, queued := x.Get(keys.ReadyOf(q.Namespace, task.Target, task.RetryAt, objectID)); q.Digest == "" || !queued || waits < unservedMS || !p.Live(x.ClockMS) {
		return ""
	}
	return fmt.Sprintf("stuck: code: no worker of digest %q, or compatible with it, has taken it for %d s", q.Digest, waits/1000)
}

func (x *Read) listClass(req *perdurev1.ListRequest, class keys.VisibilityClass, after ListPosition, limit int) (found []*perdurev1.ExecutionSummary, cut *perdurev1.ExecutionSummary) {
	prefix := keys.VisibilityPrefix(x.Query.Namespace, class)
	lower := prefix
	if after.ID != "" {
		lower = append(keys.VisibilityOf(x.Query.Namespace, class, after.CreatedMS, after.ID), 0)
	}
	scanned, last := 0, ListPosition{}
	x.Scan(lower, keys.After(prefix), func(key, value []byte) bool {
		created, objectID, err := keys.ParseVisibility(key, prefix)
		if err != nil {
			state.PanicCorrupt("listing", key, err)
		}
		if scanned++; scanned > x.ListBudget {
			cut = &perdurev1.ExecutionSummary{Id: last.ID, CreatedMs: last.CreatedMS}
			return false
		}
		last = ListPosition{CreatedMS: created, ID: objectID}
		if !strings.HasPrefix(objectID, req.IdPrefix) {
			return true
		}
		h, ok := x.Header(x.Query.Namespace, objectID)
		if !ok || (req.Function != "" && h.Function != req.Function) {
			return true
		}
		p, _ := x.promiseOf(objectID)
		status := x.status(h, p)
		if len(req.Status) > 0 && !slices.Contains(req.Status, status) {
			return true
		}
		problem := ""
		if class == keys.Open {
			problem = strings.ToValidUTF8(h.Problem[:min(len(h.Problem), maxListedProblem)], "")
		}
		if req.Problem && problem == "" && status == perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
			problem = x.unserved(objectID)
		}
		if req.Problem && problem == "" {
			return true
		}
		found = append(found, &perdurev1.ExecutionSummary{
			Id: h.ID, Function: h.Function, Status: status, CreatedMs: h.CreatedMS, ClosedMs: h.ClosedMS, Incarnation: h.Incarnation,
			ParentId: h.Parent, Problem: problem,
		})
		return len(found) <= limit
	})
	return found, cut
}
