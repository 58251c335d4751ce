package durable

import (
	"errors"
	"fmt"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// JoinSet is a set of futures whose results a function takes in the order of their completion. NewJoinSet makes one. Its
// operations are recorded: a replayed function takes the same results in the same order.
type JoinSet[T any] struct {
	t *activation
	n uint32
	// members are the futures submitted; taken says which of them Next has returned.
	members []*Future[T]
	taken   map[uint32]bool
	closed  bool
}

// ErrJoinSetEmpty is the error of Next when each member's result was taken.
var ErrJoinSetEmpty = errors.New("durable: the join set has no member whose result was not taken")

// TypeJoinSet is the failure type of an operation on a join set that breaks a rule; nothing was recorded.
const TypeJoinSet = "join_set"

func joinSetError(format string, args ...any) error {
	return &Error{Type: TypeJoinSet, Message: fmt.Sprintf(format, args...), NonRetryable: true}
}

// NewJoinSet makes an empty join set. The error is ErrCancelled.
func NewJoinSet[T any](ctx Context) (*JoinSet[T], error) {
	t, err := enter(ctx, "NewJoinSet")
	if err != nil {
		return nil, err
	}
	n, rec, err := t.take(opJoinSet, "")
	if err != nil {
		return nil, err
	}
	s := &JoinSet[T]{t: t, n: n, taken: map[uint32]bool{}}
	if rec != nil {
		return s, nil
	}
	return s, t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: t.child(n)}}})
}

// Len is the number of members whose results Next has not returned.
func (s *JoinSet[T]) Len() int { return len(s.members) - len(s.taken) }

// Submit adds a future: of a child, a step, a call, a signal or a promise, but not of a timer. A future belongs to one set
// at most, and a set takes no more of them once Next was called. An *Error of type TypeJoinSet says which rule was broken.
func (s *JoinSet[T]) Submit(ctx Context, f *Future[T]) error {
	t, err := enterWith(ctx, "JoinSet.Submit", f)
	if err != nil {
		return err
	}
	switch {
	case s.t != t:
		return joinSetError("the join set is of another execution, or of an earlier activation of this one")
	case s.closed || len(s.taken) > 0:
		return joinSetError("join set %s takes no more members: Next or Close was called", t.child(s.n))
	case t.joined[f.n]:
		return joinSetError("%s is in a join set already", f.ID())
	case f.timer:
		return joinSetError("%s is a timer, which no join set takes", f.ID())
	}
	recorded := t.journal.op(s.n).members()
	if k := len(s.members); k < len(recorded) {
		if recorded[k] != f.n {
			t.failTask(&MismatchError{ID: t.child(s.n), Journal: "join set with member " + t.child(recorded[k]), Code: "the code submits " + f.ID()})
		}
	} else {
		if t.cancelAsked.Load() {
			return ErrCancelled
		}
		err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_JoinSetSubmitted{JoinSetSubmitted: &perdurev1.JoinSetSubmitted{
			JoinSetId: t.child(s.n), PromiseId: f.ID()}}})
		if err != nil {
			return err
		}
	}
	if t.joined == nil {
		t.joined = map[uint32]bool{}
	}
	t.joined[f.n] = true
	s.members = append(s.members, f)
	return nil
}

// Next waits for the next member that has its result and was not returned before, and returns it: Get then returns at once.
// The error is ErrJoinSetEmpty when there is none, or ErrCancelled.
func (s *JoinSet[T]) Next(ctx Context) (*Future[T], error) {
	t, err := enter(ctx, "JoinSet.Next")
	if err != nil {
		return nil, err
	}
	switch {
	case s.t != t:
		return nil, joinSetError("the join set is of another execution, or of an earlier activation of this one")
	case s.closed:
		return nil, joinSetError("join set %s is closed", t.child(s.n))
	case s.Len() == 0:
		return nil, ErrJoinSetEmpty
	}
	if taken := t.journal.op(s.n).results(); len(s.taken) < len(taken) {
		n := taken[len(s.taken)]
		i := slices.IndexFunc(s.members, func(f *Future[T]) bool { return f.n == n })
		if i < 0 {
			t.failTask(&MismatchError{ID: t.child(s.n), Journal: "join set with member " + t.child(n), Code: "the code has not submitted it"})
		}
		s.taken[n] = true
		return s.members[i], nil
	}
	var open []Awaitable
	for _, f := range s.members {
		if !s.taken[f.n] {
			open = append(open, f)
		}
	}
	if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_ANY, numbers(open)...); err != nil {
		return nil, err
	}
	if t.cancelAsked.Load() {
		return nil, ErrCancelled // no marker can be recorded
	}
	f := open[firstDone(t, open)].(*Future[T])
	err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_JoinSetAwaited{JoinSetAwaited: &perdurev1.JoinSetAwaited{
		JoinSetId: t.child(s.n), PromiseId: f.ID(), Result: t.journal.op(f.n).outcome}}})
	if err != nil {
		return nil, err
	}
	s.taken[f.n] = true
	return f, nil
}

// Close ends the use of the set. Members whose results were not taken go on; their futures may still be read.
func (s *JoinSet[T]) Close() { s.closed = true }

// members are the recorded members of a join set; none while its creation is not recorded.
func (rec *record) members() []uint32 {
	if rec == nil {
		return nil
	}
	return rec.submitted
}

// results are the members whose results the function is recorded to have taken.
func (rec *record) results() []uint32 {
	if rec == nil {
		return nil
	}
	return rec.consumed
}

// join applies an event of a join set and one of its members.
func (r *history) join(set, promise string, apply func(set *record, n uint32)) error {
	rec, err := r.find(set)
	if err != nil {
		return err
	}
	if _, err := r.find(promise); err != nil {
		return err
	}
	n, _ := id.PromiseID(promise).IsChildOf(r.id)
	apply(rec, n)
	return nil
}
