package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

// EntityID names an entity: its name, '@', and a key. Entity.ID makes one.
type EntityID string

// Entity is a durable entity: a name, and the operations that a worker runs on the values of all entities of that name.
// An entity runs one operation at a time, in the order in which each sender has sent them. Register it with a Worker.
type Entity[S any] struct {
	name  string
	ops   map[string]EntityOperation[S]
	codec Codec
}

// EntityOperation is an operation of an entity with values of type S. Op makes one.
type EntityOperation[S any] struct {
	name string
	run  func(ctx *EntityContext, c Codec, state *S, input []byte) ([]byte, error)
}

// Op makes an operation. fn may change the value; what it returns is the result for a caller. An operation that returns
// an error or panics leaves the value as it found it, and the signals that it sent are not sent: the caller gets the
// error. fn runs again if its worker is lost before the result is recorded, so effects outside happen at least once.
func Op[S, In, Out any](name string, fn func(ctx *EntityContext, state *S, in In) (Out, error)) EntityOperation[S] {
	if name == "" || !utf8.ValidString(name) {
		panic(fmt.Sprintf("durable: %q is not the name of an operation", name))
	}
	return EntityOperation[S]{name: name, run: func(ctx *EntityContext, c Codec, state *S, input []byte) ([]byte, error) {
		var in In
		if err := decode(c, "the input of", name, input, &in); err != nil {
			return nil, err
		}
		out, err := fn(ctx, state, in)
		if err != nil {
			return nil, err
		}
		return encode(c, "the result of", name, out)
	}}
}

// OpDelete is the operation that every entity has unless it defines one of this name: it deletes the value.
const OpDelete = "delete"

// NewEntity makes an entity. It panics when the name is not one, or when two operations have one name.
func NewEntity[S any](name string, ops ...EntityOperation[S]) *Entity[S] {
	if err := id.ValidateEntity(name + "@key"); err != nil || strings.Contains(name, "@") {
		panic(fmt.Sprintf("durable: %q is not the name of an entity", name))
	}
	e := &Entity[S]{name: name, ops: map[string]EntityOperation[S]{}}
	for _, op := range ops {
		if _, taken := e.ops[op.name]; taken {
			panic(fmt.Sprintf("durable: entity %q has two operations %q", name, op.name))
		}
		e.ops[op.name] = op
	}
	return e
}

// WithCodec sets the codec of the entity's values, inputs and results, instead of the worker's.
func (e *Entity[S]) WithCodec(c Codec) *Entity[S] {
	e.codec = c
	return e
}

// ID is the id of the entity with a key: 1 byte or more, no ':' and no NUL.
func (e *Entity[S]) ID(key string) EntityID { return EntityID(e.name + "@" + key) }

// Name is the name under which tasks of these entities wait: '@' and the entity's name.
func (e *Entity[S]) Name() string { return "@" + e.name }

// call implements Registration. No execution has an entity's name as its function.
func (e *Entity[S]) call(_ Context, t *activation) ([]byte, error) {
	t.failTask(fmt.Errorf("durable: %q is an entity, not a function", e.name))
	return nil, nil
}

// EntityContext is the context of an operation. It ends when the entity's task is no longer this worker's.
type EntityContext struct {
	context.Context
	// ID is the entity's id, Operation the operation's name, Sender its origin: an execution's id, an entity's, or
	// "client".
	ID                EntityID
	Operation, Sender string
	codec             Codec
	signals           []*perdurev1.EntitySignal
	deleted           bool
}

// Key is the entity's key.
func (c *EntityContext) Key() string {
	_, key, _ := strings.Cut(string(c.ID), "@")
	return key
}

// Signal sends a signal to an entity, itself too. It is sent when the operation's result is recorded, once.
func (c *EntityContext) Signal(to EntityID, operation string, input any, opts ...SignalOption) error {
	s, err := entitySignal(c.codec, to, operation, input, opts)
	if err == nil {
		c.signals = append(c.signals, s)
	}
	return err
}

// Delete deletes the entity's value when the operation succeeds.
func (c *EntityContext) Delete() { c.deleted = true }

// SignalOption is an option of a signal to an entity.
type SignalOption func(*perdurev1.EntitySignal)

// SignalDelay queues the signal after d. Such a signal is not in the order of its sender's others.
func SignalDelay(d time.Duration) SignalOption {
	return func(s *perdurev1.EntitySignal) { s.DelayMs = client.Millis(d) }
}

func entitySignal(c Codec, to EntityID, operation string, input any, opts []SignalOption) (*perdurev1.EntitySignal, error) {
	if err := checkEntity(to, operation); err != nil {
		return nil, err
	}
	data, err := encode(c, "the input of", operation, input)
	if err != nil {
		return nil, err
	}
	s := &perdurev1.EntitySignal{Id: string(to), Operation: operation, Input: data}
	for _, opt := range opts {
		opt(s)
	}
	return s, nil
}

// TypeEntity is the failure type of an operation on an entity that breaks a rule; nothing was sent.
const TypeEntity = "entity"

func entityError(format string, args ...any) error {
	return &Error{Type: TypeEntity, Message: fmt.Sprintf(format, args...), NonRetryable: true}
}

func checkEntity(to EntityID, operation string) error {
	if err := id.ValidateEntity(string(to)); err != nil {
		return entityError("%v", err)
	}
	if operation == "" || len(operation) > 200 || !utf8.ValidString(operation) || !utf8.ValidString(string(to)) {
		return entityError("%q of %q is not the name of an operation", operation, to)
	}
	return nil
}

// TypeUnknownOperation is the failure type of an operation that the entity does not have.
const TypeUnknownOperation = "unknown_operation"

// TypeEntityFull is the failure type of an operation whose signals an entity did not take for fullTimeout: too much
// waits there. Nothing was sent.
const TypeEntityFull = "entity_full"

// fullTimeout is how long a batch waits for an entity whose backlog is full. The batch of an entity that waits for itself,
// directly or through others, would wait for ever.
const fullTimeout = 5 * time.Second

// runner runs batches of an entity's operations.
type runner interface {
	runBatch(ctx context.Context, log *slog.Logger, c Codec, b *perdurev1.EntityBatch, full map[string]bool) (*perdurev1.CommitEntity, error)
}

// runBatch runs the operations of a batch one after the other, as many as fit into one commit. An operation that signals
// one of the full entities fails. The error says that the value cannot be read.
func (e *Entity[S]) runBatch(ctx context.Context, log *slog.Logger, c Codec, b *perdurev1.EntityBatch, full map[string]bool) (*perdurev1.CommitEntity, error) {
	if e.codec != nil {
		c = e.codec
	}
	out := &perdurev1.CommitEntity{Version: b.GetVersion(), Lane: b.GetLane(), Exists: b.GetExists(), Value: b.GetValue()}
	var state S
	stale := true // state is not what out.Value encodes
	used := load{}
	for _, op := range b.GetOperations() {
		if stale {
			state = *new(S)
			if err := decode(c, "the value of "+b.GetId(), "", out.Value, &state); err != nil {
				return nil, err
			}
			stale = false
		}
		ec := &EntityContext{Context: ctx, ID: EntityID(b.GetId()), Operation: op.GetName(), Sender: op.GetSender(), codec: c}
		result, err := e.run(ec, log, c, &state, op)
		exists, value := true, out.Value
		switch {
		case err == nil && ec.deleted:
			exists, value, stale = false, nil, true
		case err == nil:
			value, err = encode(c, "the value of "+b.GetId(), "", state)
		}
		if own := loadOf(ec.signals); err == nil && own.exceeds(id.MaxCommitBytes/2) {
			err = &Error{Type: TypeTooLarge, NonRetryable: true, Message: fmt.Sprintf("%s of %s sends %d signals of %d bytes, the limits are %d and %d",
				op.GetName(), b.GetId(), own.items, own.bytes, id.MaxCommitItems, id.MaxCommitBytes/2)}
		}
		if i := slices.IndexFunc(ec.signals, func(s *perdurev1.EntitySignal) bool { return full[s.Id] }); err == nil && i >= 0 {
			err = &Error{Type: TypeEntityFull, Message: fmt.Sprintf("%s of %s signals %s, whose backlog stays full", op.GetName(), b.GetId(), ec.signals[i].Id)}
			log.Warn("operation failed: an entity takes no more signals", "event", "entity_full", "operation", op.GetName(),
				"sender", op.GetSender(), "full", ec.signals[i].Id)
		}
		done := &perdurev1.EntityResult{Request: op.GetRequest(), Outcome: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: result}}}
		if err != nil {
			exists, value, stale, ec.signals = out.Exists, out.Value, true, nil
			done.Outcome.Result = &perdurev1.Outcome_Failure{Failure: failureBy(c, err)}
		}
		used = used.plus(loadOf(ec.signals)).plus(load{bytes: proto.Size(done)})
		if len(out.Results) > 0 && used.exceeds(id.MaxCommitBytes-id.MaxPayloadBytes) {
			break // it runs again, in the next batch
		}
		out.Exists, out.Value = exists, value
		out.Signals = append(out.Signals, ec.signals...)
		out.Results = append(out.Results, done)
	}
	return out, nil
}

// load is what operations add to their commit, without the value.
type load struct{ items, bytes int }

func loadOf(signals []*perdurev1.EntitySignal) (l load) {
	for _, s := range signals {
		l.items++
		l.bytes += proto.Size(s)
	}
	return l
}

func (l load) plus(o load) load { return load{l.items + o.items, l.bytes + o.bytes} }

func (l load) exceeds(bytes int) bool { return l.items > id.MaxCommitItems || l.bytes > bytes }

// run runs one operation. A panic is logged and is its error.
func (e *Entity[S]) run(ctx *EntityContext, log *slog.Logger, c Codec, state *S, op *perdurev1.EntityOperation) (result []byte, err error) {
	known, ok := e.ops[op.GetName()]
	switch {
	case !ok && op.GetName() == OpDelete:
		ctx.deleted = true
		return nil, nil
	case !ok:
		return nil, &Error{Type: TypeUnknownOperation, Message: fmt.Sprintf("entity %q has no operation %q", e.name, op.GetName()), NonRetryable: true}
	}
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic in an entity's operation", "event", "operation_panic", "operation", ctx.Operation, "sender", ctx.Sender,
				"panic", p, "stack", string(debug.Stack()))
			err = &Error{Type: TypePanic, Message: fmt.Sprint(p)}
		}
	}()
	return known.run(ctx, c, state, op.GetInput())
}

// runEntity runs an entity's batches until the task ends, is lost, or the worker stops.
func (t *activation) runEntity(e runner) {
	full := fullEntities{}
	for batch := t.task.GetEntity(); batch != nil; {
		t.checkpoint()
		t.secureLease()
		made, err := e.runBatch(t.ctx, t.logger(), t.codec, batch, full.failing)
		if err != nil {
			t.failTask(err)
		}
		t.checkRight()
		const credit = 1
		req := t.w.c.NewRequest()
		made.Task = t.key.token()
		resp := t.askUntil(func() *perdurev1.WorkRequest {
			// A message of its own for every attempt: an earlier one may still be on its way out.
			again := &perdurev1.CommitEntity{Request: req.Wire(), Task: made.Task, Version: made.Version, Lane: made.Lane, Results: made.Results,
				Exists: made.Exists, Value: made.Value, Signals: made.Signals, Credit: t.w.grantable(t.hold, credit)}
			return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_CommitEntity{CommitEntity: again}}
		}, func(e *perdurev1.CallError) bool { return full.refused(e, batch.GetId(), t.w.clock.Now()) })
		if refusal := resp.GetError(); refusal != nil && full.failing[refusal.GetMetadata()["id"]] && isFull(refusal) {
			continue // the batch runs again; the operations that signal the full entity fail
		} else if refusal != nil {
			t.refused("a commit", refusal)
		}
		if resp.GetCommitEntity() == nil {
			t.failTask(errors.New("durable: a commit of an entity was answered by something else"))
		}
		t.w.committed(t)
		full.sent(made.Signals)
		if batch = resp.GetCommitEntity().GetNext(); batch == nil {
			t.w.activationEnded(t.hold)
		}
	}
}

// fullEntities are the entities that have refused the signals of an activation's batches.
type fullEntities struct {
	// refusals are those that each has made one after the other, with less than fullTimeout between two.
	refusals map[string]refusals
	// failing are those for which the present batch waits no longer.
	failing map[string]bool
}

// refusals are the first and the last time at which an entity refused signals.
type refusals struct{ first, last time.Time }

// isFull reports whether a commit was refused because too much waits at an entity.
func isFull(e *perdurev1.CallError) bool {
	return e.GetReason() == perdurev1.Reason_REASON_OVERLOADED && e.GetMetadata()["rule"] == "entity_backlog"
}

// refused notes the refusal of a batch of the entity self, and reports whether the batch should wait no longer: for
// itself it waits not at all, for another one until that has refused for fullTimeout.
func (f *fullEntities) refused(e *perdurev1.CallError, self string, now time.Time) bool {
	if !isFull(e) {
		return false
	}
	full := e.GetMetadata()["id"]
	r, known := f.refusals[full]
	if !known || now.Sub(r.last) > fullTimeout {
		r.first = now
	}
	r.last = now
	if f.refusals == nil {
		f.refusals = map[string]refusals{}
	}
	f.refusals[full] = r
	if full != self && now.Sub(r.first) < fullTimeout {
		return false
	}
	if f.failing == nil {
		f.failing = map[string]bool{}
	}
	f.failing[full] = true
	return true
}

// sent notes that a batch's signals were taken.
func (f *fullEntities) sent(signals []*perdurev1.EntitySignal) {
	f.failing = nil
	for _, s := range signals {
		delete(f.refusals, s.Id)
	}
}
