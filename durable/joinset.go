package durable

import (
	"errors"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// JoinSet is a set of futures whose results a function takes in the order of their completion. NewJoinSet
// makes one. Its operations are recorded: a replayed function takes the same results in the same order.
type JoinSet[T any] struct {
	t *activation
	n uint32
	// members are the submitted futures in order, positions their indexes by child number.
	members   []*Future[T]
	positions map[uint32]int
	// taken says by position which members Next has returned; count is how many.
	taken []bool
	count int
	// lowest: no member below this position is without a result. seen: nor is one among the first seen results of the
	// journal a member that was not taken.
	lowest, seen int
	closed       bool
}

// maxNamed is how many members a wait names. A wait for more names the join set, so that its size does not
// depend on theirs.
const maxNamed = 64

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
	s := &JoinSet[T]{t: t, n: n, positions: map[uint32]int{}}
	if rec != nil {
		return s, nil
	}
	return s, t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: t.child(n)}}})
}

// Len is the number of members whose results Next has not returned.
func (s *JoinSet[T]) Len() int { return len(s.members) - s.count }

// Submit adds a future: of a child, a step, a call, a signal or a promise, but not of a timer. A future
// belongs to one set at most, and a set takes no more of them once Next was called. An *Error of type
// TypeJoinSet says which rule was broken.
func (s *JoinSet[T]) Submit(ctx Context, f *Future[T]) error {
	t, err := enterWith(ctx, "JoinSet.Submit", "", f)
	if err != nil {
		return err
	}
	switch {
	case s.t != t:
		return joinSetError("the join set is of another execution, or of an earlier activation of this one")
	case s.closed || s.count > 0:
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
	s.positions[f.n] = len(s.members)
	s.members, s.taken, s.seen = append(s.members, f), append(s.taken, false), 0
	return nil
}

// Next waits for the next member that has its result and was not returned before, and returns it: Get then
// returns at once. The error is ErrJoinSetEmpty when there is none, or ErrCancelled.
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
	if taken := t.journal.op(s.n).results(); s.count < len(taken) {
		n := taken[s.count]
		i, ok := s.positions[n]
		if !ok {
			t.failTask(&MismatchError{ID: t.child(s.n), Journal: "join set with member " + t.child(n), Code: "the code has not submitted it"})
		}
		return s.take(i), nil
	}
	i, ready := s.firstDone()
	for tries := 0; !ready; tries++ {
		if tries == maxWaits {
			t.failTask(fmt.Errorf("durable: %s: %d commits found the wait satisfied, but the journal has no result", t.child(s.n), maxWaits))
		}
		continued := t.continued
		if err := s.await(); err != nil {
			return nil, err
		}
		if t.continued != continued {
			tries = -1 // as a replay counts them
		}
		i, ready = s.firstDone()
	}
	if t.cancelAsked.Load() {
		return nil, ErrCancelled // no marker can be recorded
	}
	f := s.members[i]
	err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_JoinSetAwaited{JoinSetAwaited: &perdurev1.JoinSetAwaited{
		JoinSetId: t.child(s.n), PromiseId: f.ID(), Result: t.journal.op(f.n).outcome}}})
	if err != nil {
		return nil, err
	}
	return s.take(i), nil
}

func (s *JoinSet[T]) take(i int) *Future[T] {
	s.taken[i] = true
	s.count++
	return s.members[i]
}

// firstDone is the position of the member whose result is first in the journal, of those that were not taken;
// ok is false if none has one. Later entries come later in the journal, so a replay that knows more results
// chooses the same one.
func (s *JoinSet[T]) firstDone() (i int, ok bool) {
	for settled := s.t.journal.settled; s.seen < len(settled); s.seen++ {
		if i, ok := s.positions[settled[s.seen]]; ok && !s.taken[i] {
			return i, true
		}
	}
	return 0, false
}

// await waits for a member's result; none of those that were not taken has one. It returns nil or ErrCancelled; when it
// has to wait, the activation ends here.
func (s *JoinSet[T]) await() error {
	t := s.t
	for s.taken[s.lowest] {
		s.lowest++
	}
	if open := s.Len(); open > maxNamed && len(t.background.open) == 0 {
		return t.awaitOnce(&perdurev1.ExecutionAwaiting{WaitingOn: []string{s.members[s.lowest].ID()},
			Kind: perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET, JoinSetId: t.child(s.n)})
	}
	var open []Awaitable
	for i := s.lowest; i < len(s.members); i++ {
		if !s.taken[i] {
			open = append(open, s.members[i])
		}
	}
	return t.await(perdurev1.AwaitKind_AWAIT_KIND_ANY, numbers(open)...)
}

// Close ends the use of the set. Members without a taken result stay open; their futures may still be read.
func (s *JoinSet[T]) Close() { s.closed = true }

// members are the recorded members of a join set; none while its creation is not recorded.
func (rec *record) members() []uint32 {
	if rec == nil {
		return nil
	}
	return rec.set.submitted
}

// results are the members whose results the function is recorded to have taken.
func (rec *record) results() []uint32 {
	if rec == nil {
		return nil
	}
	return rec.set.consumed
}

// join applies an event of a join set and one of its members.
func (r *history) join(set, promise string, apply func(set *memberRecord, n uint32)) error {
	rec, err := r.find(set)
	if err != nil {
		return err
	}
	if _, err := r.find(promise); err != nil {
		return err
	}
	if rec.set == nil {
		return fmt.Errorf("%q is no join set", set)
	}
	n, _ := id.PromiseID(promise).IsChildOf(r.id)
	apply(rec.set, n)
	return nil
}
