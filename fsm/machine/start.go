package machine

import (
	"bytes"
	"errors"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
)

// applyStart starts an execution under an id of the caller's choice. The id is the idempotency key: the same
// start again returns the existing execution, any other is a conflict.
func applyStart(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetStart(), cmd.Namespace
	if err := id.ValidateRoot(req.Id); err != nil {
		return nil, badID(ns, err)
	}
	if err := reserved(req.Function); err != nil {
		return nil, err.With("namespace", ns).With("id", req.Id)
	}
	if ex, ok := t.execution(ns, req.Id); ok {
		if err := t.sameStart(ex, req); err != nil {
			return nil, err
		}
		rid := cmd.GetRequest().GetId()
		return started(ex, len(rid) > 0 && bytes.Equal(rid, ex.h.StartRequest)), nil
	}
	if _, ok := t.store(ns).Promise(req.Id); ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "id %q is a promise already", req.Id).
			With("namespace", ns).With("id", req.Id)
	}
	if _, known := t.get(keys.Of(keys.Function, ns, req.Function)); !known && !req.AllowUnknownFunction {
		return nil, api.Errorf(perdurev1.Reason_REASON_FUNCTION_UNKNOWN,
			"no worker has ever registered a function %q in namespace %q", req.Function, ns).
			With("namespace", ns).With("id", req.Id).With("function", req.Function)
	}
	ex, err := t.start(ns, birth{
		id: req.Id, function: req.Function, digest: req.ComponentDigest, input: req.Input,
		tags: wire.DecodeTags(req.Tags), deadlineMS: t.deadline(req.TimeoutMs), request: cmd.GetRequest().GetId(),
	})
	if err != nil {
		return nil, ruleError(ns, err)
	}
	return started(ex, true), nil
}

// reserved refuses the function names that the server uses itself.
func reserved(function string) *api.Error {
	if !strings.HasPrefix(function, "$") {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST,
		"function %q: names that begin with $ are reserved for the server", function).With("function", function)
}

func badID(ns string, err error) *api.Error {
	e := err.(*id.Error)
	return api.Errorf(perdurev1.Reason_REASON_BAD_ID, "%s", e.Error()).With("namespace", ns).With("id", e.ID).With("rule", e.Rule)
}

func started(ex *execution, created bool) *commandv1.Reply {
	return &commandv1.Reply{Kind: &commandv1.Reply_Start{Start: &perdurev1.StartResponse{
		Id: ex.h.ID, Incarnation: ex.h.Incarnation, Created: created, Status: wire.EncodeStatus(ex.h.Status),
	}}}
}

// deadline converts a timeout to a point in time; 0 for none.
func (t *txn) deadline(timeoutMS int64) int64 {
	if timeoutMS <= 0 || timeoutMS >= state.Never-t.now {
		return 0
	}
	return t.now + timeoutMS
}

// sameStart refuses a start that differs from the one that created the execution.
func (t *txn) sameStart(ex *execution, req *perdurev1.StartRequest) *api.Error {
	differs := ""
	switch {
	case ex.h.Function != req.Function:
		differs = "function " + ex.h.Function + ", not " + req.Function
	case !bytes.Equal(t.input(ex), req.Input):
		differs = "another input"
	default:
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "execution %q was started before with %s", ex.h.ID, differs).
		With("namespace", ex.ns).With("id", ex.h.ID)
}

// input reads the input back from the journal's first entry.
func (t *txn) input(ex *execution) []byte {
	key := keys.JournalEntry(ex.ns, ex.h.ID, ex.h.Incarnation, 0)
	b, ok := t.get(key)
	if !ok {
		state.PanicCorrupt("journal", key, &state.CorruptError{What: "journal", Key: key, Detail: "no first entry"})
	}
	entry, err := journal.DecodeEntry(b)
	if err != nil {
		state.PanicCorrupt("journal", key, err)
	}
	started, ok := entry.Event.(journal.ExecutionStarted)
	if !ok {
		state.PanicCorrupt("journal", key, errors.New("the first entry is "+entry.Event.Kind().String()))
	}
	return started.Input
}
