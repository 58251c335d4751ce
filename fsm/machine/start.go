package machine

import (
	"bytes"
	"crypto/sha256"
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
		rid := cmd.GetRequest().GetId()
		if replaces(req.Reuse, ex) {
			return t.startAgain(ex, req, rid)
		}
		if err := t.sameStart(ex, req); err != nil {
			return nil, err
		}
		return started(ex, len(rid) > 0 && bytes.Equal(rid, ex.h.StartRequest)), nil
	}
	if _, ok := t.store(ns).Promise(req.Id); ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "id %q is a promise already", req.Id).
			With("namespace", ns).With("id", req.Id)
	}
	if err := t.knownFunction(ns, req); err != nil {
		return nil, err
	}
	ex, err := t.start(ns, birth{
		id: strings.Clone(req.Id), function: req.Function, // the id is kept with the execution
		digest: t.startDigest(ns, req), input: req.Input,
		tags: wire.DecodeTags(req.Tags), deadlineMS: t.deadline(req.TimeoutMs), request: cmd.GetRequest().GetId(),
	})
	if err != nil {
		return nil, ruleError(ns, err)
	}
	return started(ex, true), nil
}

// replaces reports whether a start of an id that exists begins a new incarnation.
func replaces(reuse perdurev1.Reuse, ex *execution) bool {
	switch reuse {
	case perdurev1.Reuse_REUSE_ALWAYS:
		return ex.h.Status.Terminal()
	case perdurev1.Reuse_REUSE_IF_FAILED:
		return ex.h.Status.Terminal() && ex.h.Status != journal.StatusCompleted
	}
	return false
}

// startAgain starts an id whose execution has ended, as a new incarnation. It is idempotent by its stored
// reply.
func (t *txn) startAgain(old *execution, req *perdurev1.StartRequest, rid []byte) (*commandv1.Reply, *api.Error) {
	if err := t.mayBegin(old); err != nil {
		return nil, err
	}
	if req.Function == "" {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "execution %q names no function", req.Id).
			With("namespace", old.ns).With("id", req.Id)
	}
	if err := t.knownFunction(old.ns, req); err != nil {
		return nil, err
	}
	ex := t.succeed(old, succession{
		function: req.Function, digest: t.startDigest(old.ns, req), input: req.Input, tags: wire.DecodeTags(req.Tags),
		deadlineMS: t.deadline(req.TimeoutMs), request: rid,
	})
	return started(ex, true), nil
}

// startDigest is the digest that a client's start names, or else the function's current one.
func (t *txn) startDigest(ns string, req *perdurev1.StartRequest) string {
	if req.ComponentDigest != "" {
		return req.ComponentDigest
	}
	return t.digest(ns, req.Function, "")
}

// knownFunction refuses a start of a function that no worker has registered.
func (t *txn) knownFunction(ns string, req *perdurev1.StartRequest) *api.Error {
	if _, known := t.get(keys.Append(t.m.arena.open(), keys.Function, ns, req.Function)); known || req.AllowUnknownFunction {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_FUNCTION_UNKNOWN,
		"no worker has ever registered a function %q in namespace %q", req.Function, ns).
		With("namespace", ns).With("id", req.Id).With("function", req.Function)
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

// startReply is the answer to a start, in one piece of memory.
type startReply struct {
	reply commandv1.Reply
	kind  commandv1.Reply_Start
	msg   perdurev1.StartResponse
}

func started(ex *execution, created bool) *commandv1.Reply {
	answer := &startReply{}
	answer.msg.Id, answer.msg.Incarnation, answer.msg.Created, answer.msg.Status = ex.h.ID, ex.h.Incarnation, created, wire.EncodeStatus(ex.h.Status)
	answer.kind.Start, answer.reply.Kind = &answer.msg, &answer.kind
	return &answer.reply
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
	case !t.startedWith(ex, req.Input):
		differs = "another input"
	default:
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "execution %q was started before with %s", ex.h.ID, differs).
		With("namespace", ex.ns).With("id", ex.h.ID)
}

// startedWith reports whether an execution's id was started with an input.
func (t *txn) startedWith(ex *execution, input []byte) bool {
	if len(ex.h.StartInput) > 0 {
		sum := sha256.Sum256(input)
		return bytes.Equal(ex.h.StartInput, sum[:])
	}
	return bytes.Equal(t.firstEntry(ex).Input, input)
}
