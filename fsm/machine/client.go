package machine

import (
	"math"
	"strconv"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// defaultClientRetryMS is after what time the address of a pending client task is told again, unless the entry says it.
const (
	defaultClientRetryMS = 30_000
	maxClientRetryMS     = 24 * 60 * 60 * 1000
)

// retry is the interval of a task's retry timer, in milliseconds.
func (t *txn) retry(ns, objectID string) int64 {
	if task, ok := t.store(ns).Task(objectID); ok {
		if _, client := state.AddressOf(task.Target); client {
			return t.m.clientRetry
		}
	}
	return retryMS
}

// ofClient reports whether an object is the promise of a client of the recovery protocol.
func (t *txn) ofClient(ns, objectID string) bool {
	p, ok := t.store(ns).Promise(objectID)
	return ok && state.OfClient(p)
}

// clientCommand notes that a transaction is that of a client's command.
func (t *txn) clientCommand() { t.level = max(t.level, state.LevelFunctions) }

// clientPromise checks a client's promise, and returns what the rules create.
func (t *txn) clientPromise(ns string, req *perdurev1.CreateClientPromiseRequest) (recovery.CreateRequest, *api.Error) {
	bad := func(rule, format string, args ...any) (recovery.CreateRequest, *api.Error) {
		return recovery.CreateRequest{}, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, format, args...).
			With("namespace", ns).With("id", req.GetId()).With("rule", rule)
	}
	if refused := t.clientID(ns, req.GetId()); refused != nil {
		return recovery.CreateRequest{}, refused
	}
	tags := wire.DecodeTags(req.Tags)
	if key, reserved := state.ReservedTag(tags); reserved {
		return bad(recovery.RuleTags, "tag %q of promise %q begins with a NUL", key, req.Id)
	}
	if req.TimeoutAtMs < 0 || req.TimeoutAtMs > state.Never {
		return bad(recovery.RuleTimes, "deadline %d of promise %q is not within 0 and %d", req.TimeoutAtMs, req.Id, state.Never)
	}
	if req.CreatedAtMs < 0 {
		return bad(recovery.RuleTimes, "creation %d of promise %q is negative", req.CreatedAtMs, req.Id)
	}
	form, headers, refused := valueForm(ns, req.Id, req.Param)
	if refused != nil {
		return recovery.CreateRequest{}, refused
	}
	given := recovery.Promise{Tags: tags}
	is := func(key, value string) bool { v, _ := given.Tag(key); return v == value }
	out := recovery.CreateRequest{
		ID: req.Id, Incarnation: t.index, Param: req.Param.GetData(), Tags: state.ClientTags(tags, form, headers),
		Timer: is(state.TagTimer, "true"), External: is(state.TagExternal, "true") || is(state.TagScope, "global"), TimeoutAt: req.TimeoutAtMs,
		CreatedAt: req.CreatedAtMs,
	}
	if address, ok := given.Tag(state.TagTarget); ok {
		if refused := checkAddress(ns, req.Id, address); refused != nil {
			return recovery.CreateRequest{}, refused
		}
		out.Target = state.ClientTarget(address)
	}
	if delay, ok := given.Tag(state.TagDelay); ok {
		at, err := strconv.ParseInt(delay, 10, 64)
		if err != nil || at < 0 {
			return bad(recovery.RuleDelay, "the delay %q of promise %q is no time in milliseconds", delay, req.Id)
		}
		if out.Target == "" || at >= out.TimeoutAt {
			return bad(recovery.RuleDelay, "the delay %d of promise %q needs a target, and a deadline after it", at, req.Id)
		}
		out.DelayUntil = at
	}
	return out, nil
}

// clientID refuses an id that a client's promise cannot have: one that belongs to an entity, or to an operation of an
// execution that exists.
func (t *txn) clientID(ns, objectID string) *api.Error {
	if err := id.Validate(objectID); err != nil {
		return badID(ns, err)
	}
	_, task := id.EntityOfTask(objectID)
	if _, call := id.EntityOfCall(objectID); task || call {
		return api.Errorf(perdurev1.Reason_REASON_BAD_ID, "%q is how an entity names its promises", objectID).With("namespace", ns).With("id", objectID)
	}
	if p, err := id.Parse(objectID); err == nil && p.Depth() > 0 {
		if _, ok := t.headerOf(ns, id.Origin(objectID)); ok {
			return api.Errorf(perdurev1.Reason_REASON_BAD_ID, "%q is how execution %q names its operations", objectID, id.Origin(objectID)).
				With("namespace", ns).With("id", objectID)
		}
	}
	return nil
}

// checkAddress refuses what cannot be an address. The edge checks that it is a URI.
func checkAddress(ns, objectID, address string) *api.Error {
	if address == "" || len(address) > id.MaxIDBytes || strings.IndexByte(address, 0) >= 0 || strings.HasPrefix(address, askerScheme) {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%q, of %d bytes, is no address", address[:min(len(address), 80)], len(address)).
			With("namespace", ns).With("id", objectID).With("rule", recovery.RuleAddress)
	}
	return nil
}

// valueForm checks how a client gave a value.
func valueForm(ns, objectID string, v *perdurev1.Value) (recovery.DataForm, []recovery.Tag, *api.Error) {
	form, ok := wire.DecodeForm(v.GetForm())
	if !ok || !form.Fits(v.GetData()) {
		return 0, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d bytes of data do not have the form %s", len(v.GetData()), v.GetForm()).
			With("namespace", ns).With("id", objectID)
	}
	return form, wire.DecodeTags(v.GetHeaders()), nil
}

// clientValue is the stored form of a client's result.
func clientValue(ns, objectID string, v *perdurev1.Value) ([]byte, *api.Error) {
	form, headers, refused := valueForm(ns, objectID, v)
	if refused != nil {
		return nil, refused
	}
	return recovery.AppendOutcome(nil, recovery.Outcome{Data: v.GetData(), Form: form, Headers: headers}), nil
}

// sameOrigin refuses a wait of one call tree for another.
func sameOrigin(ns, awaited, awaiter string) *api.Error {
	if id.Origin(awaited) == id.Origin(awaiter) {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%q cannot wait for %q, which has another origin", awaiter, awaited).
		With("namespace", ns).With("id", awaiter).With("rule", "same_origin")
}

// clientTask refuses an id whose task is not a client's: requests of clients do not reach executions and entities.
func (t *txn) clientTask(ns, objectID string) *api.Error {
	task, ok := t.store(ns).Task(objectID)
	if !ok {
		return nil // the rules refuse it, in their order
	}
	if _, client := state.AddressOf(task.Target); client {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no client task %q in namespace %q", objectID, ns).
		With("namespace", ns).With("id", objectID).With("rule", recovery.RuleTask)
}

// taskRef names a client's task at a version. A version that no task reaches is one that none has.
func taskRef(objectID string, version uint64) recovery.TaskRef {
	return recovery.TaskRef{ID: objectID, Version: min(version, math.MaxInt64)}
}

// settleClient settles a promise by a rule, and runs the chain.
func (t *txn) settleClient(ns string, st recovery.Settlement, err error) *api.Error {
	if err != nil {
		return ruleError(ns, err)
	}
	t.chain(ns, st)
	return nil
}

// taskReply shows a client's task as it is after the command.
func (t *txn) taskReply(ns, objectID string) *commandv1.Reply {
	p, _ := t.store(ns).Promise(objectID)
	task, _ := t.store(ns).Task(objectID)
	return &commandv1.Reply{Kind: &commandv1.Reply_ClientTask{ClientTask: &perdurev1.ClientTaskResponse{
		Task: wire.EncodeClientTask(ns, task.At(t.now, p)),
	}}}
}

// holdingReply shows its promise, too.
func (t *txn) holdingReply(ns, objectID string) *commandv1.Reply {
	reply := t.taskReply(ns, objectID)
	p, _ := t.store(ns).Promise(objectID)
	reply.GetClientTask().Promise = wire.EncodePromise(ns, p.At(t.now))
	return reply
}
