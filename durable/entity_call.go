package durable

import (
	"maps"
	"slices"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// CallEntity runs an operation of an entity and waits for its result. An operation that failed is an *Error.
func CallEntity[Out any](ctx Context, to EntityID, operation string, input any) (Out, error) {
	f, err := GoCallEntity[Out](ctx, to, operation, input)
	if err != nil {
		var none Out
		return none, err
	}
	out, err := f.Get(ctx)
	f.t.journal.forget(f.n)
	return out, err
}

// GoCallEntity asks an entity to run an operation, with the next commit, and does not wait for the result.
func GoCallEntity[Out any](ctx Context, to EntityID, operation string, input any) (*Future[Out], error) {
	t, err := enterNamed(ctx, "CallEntity", operation)
	if err != nil {
		return nil, err
	}
	if err := checkEntity(to, operation); err != nil {
		return nil, err
	}
	if s := t.section; s != nil {
		_, busy := s.calls[to]
		switch {
		case !s.ids[to]:
			return nil, entityError("%s is not locked by this critical section, which may call only %v", to, slices.Sorted(maps.Keys(s.ids)))
		case busy:
			return nil, entityError("%s has not answered this critical section's earlier call", to)
		}
	}
	data, err := encode(t.codec, "the input of", operation, input)
	if err != nil {
		return nil, err
	}
	n, err := t.sendEntity("call "+operation, string(to), &perdurev1.Send{What: &perdurev1.Send_EntityCall{
		EntityCall: &perdurev1.EntityCall{Id: string(to), Operation: operation, Input: data}}})
	if err != nil {
		return nil, err
	}
	if t.section != nil {
		t.section.calls[to] = n
	}
	return &Future[Out]{t: t, n: n, cleaning: t.cleaning(), name: operation, codec: t.codec, entity: true}, nil
}

// SignalEntity asks an entity to run an operation, once, with the next commit. The result is dropped.
func SignalEntity(ctx Context, to EntityID, operation string, input any, opts ...SignalOption) error {
	t, err := enterNamed(ctx, "SignalEntity", operation)
	if err != nil {
		return err
	}
	if t.section != nil && t.section.ids[to] {
		return entityError("%s is locked by this critical section, which calls it and does not signal it", to)
	}
	signal, err := entitySignal(t.codec, to, operation, input, opts)
	if err != nil {
		return err
	}
	_, err = t.sendEntity("signal "+operation, string(to), &perdurev1.Send{What: &perdurev1.Send_EntitySignal{EntitySignal: signal}})
	return err
}

// section is the critical section that a function is in: its entities, and the calls whose results were not read.
type section struct {
	ids   map[EntityID]bool
	calls map[EntityID]uint32
}

// Lock begins a critical section on entities, in any order: no other execution's operation runs on them until it ends.
// It waits until all are locked. All executions lock in one order, so sections never wait for each other in a cycle.
//
// Inside, the function may run steps, sleep, and call the locked entities, one call of each at a time. It starts no
// child, signals no locked entity, calls no other, and begins no other section; each of these is an *Error of type
// TypeEntity. unlock ends the section, after the results of its calls; a second call does nothing. The section of a
// function that ends, by whatever path, ends with it.
func Lock(ctx Context, entities ...EntityID) (unlock func() error, err error) {
	t, err := enter(ctx, "Lock")
	if err != nil {
		return nil, err
	}
	if t.section != nil {
		return nil, entityError("the function is in a critical section already")
	}
	if len(entities) == 0 {
		return nil, entityError("a critical section locks one entity at least")
	}
	s := &section{ids: map[EntityID]bool{}, calls: map[EntityID]uint32{}}
	for _, one := range entities {
		if err := checkEntity(one, "lock"); err != nil {
			return nil, err
		}
		s.ids[one] = true
	}
	locks := &perdurev1.EntityLocks{}
	for _, one := range slices.Sorted(maps.Keys(s.ids)) {
		locks.Ids = append(locks.Ids, string(one))
	}
	n, err := t.sendEntity("lock", strings.Join(locks.Ids, "\n"), &perdurev1.Send{What: &perdurev1.Send_EntityLocks{EntityLocks: locks}})
	if err != nil {
		return nil, err
	}
	if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n); err != nil {
		return nil, err
	}
	if _, err := t.consume(n, t.codec); err != nil {
		return nil, err
	}
	t.section = s
	return func() error { return t.unlock(ctx, s) }, nil
}

// unlock ends a critical section, once.
func (t *activation) unlock(ctx Context, s *section) error {
	if _, err := enter(ctx, "unlock"); err != nil {
		return err
	}
	if t.section != s {
		return nil
	}
	if open := slices.Sorted(maps.Values(s.calls)); len(open) > 0 {
		if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_ALL, open...); err != nil {
			return err
		}
	}
	_, err := t.sendEntity("unlock", "", &perdurev1.Send{What: &perdurev1.Send_EntityUnlock{EntityUnlock: &perdurev1.EntityUnlock{}}})
	if err == nil {
		t.section = nil
	}
	return err
}

// answered notes that the function has the results of operations.
func (t *activation) answered(ns ...uint32) {
	if t.section == nil {
		return
	}
	for to, n := range t.section.calls {
		if slices.Contains(ns, n) {
			delete(t.section.calls, to)
		}
	}
}

// sendEntity takes the next child number for a one-way operation on entities.
func (t *activation) sendEntity(name, target string, send *perdurev1.Send) (uint32, error) {
	return t.sendOperation(name, []byte(target), send)
}

// sendOperation takes the next child number for a one-way operation. A replay keeps the input that is recorded.
func (t *activation) sendOperation(name string, input []byte, send *perdurev1.Send) (uint32, error) {
	n, rec, err := t.take(opSend, name)
	if err != nil || rec != nil {
		return n, err
	}
	send.PromiseId = t.child(n)
	return n, t.stage(nil, send, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: t.child(n), Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: name, Input: input, RetryPolicy: "attempts=1"}}})
}
