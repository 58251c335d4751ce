package journal

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"perdure/id"
)

// book is a journal under test. Every event offered to it is put to State, to the dumb twin and to Check,
// and the three must agree; a refusal must change nothing; an accepted entry must survive its encoding.
type book struct {
	t       failer
	state   *State
	twin    twin
	entries []Entry
	opts    []Option
}

// failer is what *testing.T and *rapid.T have in common here.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

const eid = id.PromiseID("order-42")

// kid is the n-th child of the execution under test.
func kid(n uint32) id.PromiseID { return eid.Child(n) }

func set(n uint32) JoinSetID { return JoinSetID(kid(n)) }

// testBound lets each policy of the tests name its own bound.
func testBound(policy string) int {
	switch policy {
	case "never":
		return 0
	case "once":
		return 1
	case "negative":
		return -5
	case "forever":
		return int(^uint(0) >> 1)
	}
	return DefaultRetryBound
}

func newBook(t failer) *book {
	opts := []Option{WithRetryBound(testBound)}
	return &book{t: t, state: New(eid, opts...), twin: twin{eid: eid, bound: testBound}, opts: opts}
}

// started is a book of a running execution with these entries behind the start.
func started(t failer, events ...Event) *book {
	t.Helper()
	b := newBook(t)
	b.accept(ExecutionStarted{ComponentDigest: "d1", Input: []byte("in"), IdempotencyKey: "k1"})
	b.accept(events...)
	return b
}

// accept appends events that must be accepted.
func (b *book) accept(events ...Event) *book {
	b.t.Helper()
	for _, ev := range events {
		if v := b.propose(b.state.NextSeq(), ev); v != nil {
			b.t.Fatalf("%#v: %v", ev, v)
		}
	}
	return b
}

// refuse proposes an event that must be refused by the rule.
func (b *book) refuse(rule string, ev Event) *Violation {
	b.t.Helper()
	return b.refuseAt(b.state.NextSeq(), rule, ev)
}

func (b *book) refuseAt(seq uint64, rule string, ev Event) *Violation {
	b.t.Helper()
	v := b.propose(seq, ev)
	if v == nil {
		b.t.Fatalf("accepted %#v, want %s", ev, rule)
	} else if v.Rule != rule {
		b.t.Fatalf("%v, want %s", v, rule)
	}
	return v
}

// propose checks one event by State, the twin and Check, and returns State's refusal.
func (b *book) propose(seq uint64, ev Event) *Violation {
	b.t.Helper()
	before := b.state.Clone()
	checked := b.state.Check(seq, ev)
	if !reflect.DeepEqual(comparable(before), comparable(b.state)) {
		b.t.Fatalf("Check of %#v changed the state", ev)
	}
	err := b.state.Append(seq, ev)
	if !reflect.DeepEqual(checked, err) {
		b.t.Fatalf("Check says %v, Append %v", checked, err)
	}
	if accepts := b.twin.accepts(seq, ev); accepts != (err == nil) {
		b.t.Fatalf("%#v after %#v: State says %v, the twin says %v", ev, b.entries, err, accepts)
	}
	next := Entry{Seq: seq, Time: int64(1000 - len(b.entries)), Event: ev}
	found := Check(eid, append(slices.Clone(b.entries), next), b.opts...)
	if (len(found) == 0) != (err == nil) {
		b.t.Fatalf("%#v after %#v: State says %v, Check finds %v", ev, b.entries, err, found)
	}
	if err != nil {
		if !reflect.DeepEqual(comparable(before), comparable(b.state)) {
			b.t.Fatalf("the refused %#v changed the state", ev)
		}
		return b.checkRefusal(seq, ev, err, found)
	}
	b.twin.journal = append(b.twin.journal, ev)
	b.entries = append(b.entries, next)
	b.checkState(next)
	return nil
}

// checkRefusal checks a refusal's position, and that Check agrees on the rule. Check lists every broken rule,
// State the first it meets; K15 aside, State's is among Check's.
func (b *book) checkRefusal(seq uint64, ev Event, err error, found []Violation) *Violation {
	b.t.Helper()
	var v *Violation
	if !errors.As(err, &v) {
		b.t.Fatalf("the refusal is a %T", err)
	}
	kind := Kind(0)
	if ev != nil {
		kind = ev.Kind()
	}
	if v.Execution != eid || v.Seq != seq || v.Kind != kind || v.Detail == "" {
		b.t.Fatalf("the refusal of %#v at %d is %#v", ev, seq, v)
	}
	for _, f := range found {
		if f.Seq != uint64(len(b.entries)) || f.Kind != kind || f.Execution != eid || f.Detail == "" {
			b.t.Fatalf("Check accuses entry %d of %d: %#v", f.Seq, len(b.entries), f)
		}
	}
	if !slices.ContainsFunc(found, func(f Violation) bool { return f.Rule == v.Rule }) {
		b.t.Fatalf("State names %q for %#v, Check finds %v", v.Rule, ev, found)
	}
	return v
}

// checkState compares State's answers with the twin's scans, and the entry with its encoding.
func (b *book) checkState(e Entry) {
	b.t.Helper()
	s, w := b.state, &b.twin
	if s.Status() != w.status() || s.Status() != StatusOf(b.entries) || s.NextSeq() != uint64(len(b.entries)) ||
		s.NextChild() != w.nextChild() || s.EID() != eid {
		b.t.Fatalf("after %#v: status %v, next %d, child %d", e.Event, s.Status(), s.NextSeq(), s.NextChild())
	}
	kind, on, signal, blocked := s.Wait()
	if blocked != (w.status() == StatusBlocked) || s.WaitSatisfied() != (blocked && w.satisfied(w.wait())) {
		b.t.Fatalf("after %#v: blocked %v, satisfied %v", e.Event, blocked, s.WaitSatisfied())
	}
	if open := (ExecutionAwaiting{on, kind, signal, s.waitedSet()}); blocked && !reflect.DeepEqual(open, w.wait()) {
		b.t.Fatalf("the open wait is %#v", open)
	} else if !blocked && !reflect.DeepEqual(open, ExecutionAwaiting{}) {
		b.t.Fatalf("a wait without being blocked: %#v", open)
	}
	for n := range s.NextChild() + 1 {
		b.checkChild(kid(n))
	}
	data := AppendEntry(nil, e)
	back, err := DecodeEntry(data)
	if err != nil || !bytes.Equal(AppendEntry(nil, back), data) || back.Seq != e.Seq || back.Time != e.Time {
		b.t.Fatalf("%#v was read back as %#v, %v", e, back, err)
	}
	if !reflect.DeepEqual(withoutEmpty(back.Event), withoutEmpty(e.Event)) {
		b.t.Fatalf("%#v was read back as %#v", e, back)
	}
}

// waitedSet is the join set of the open wait.
func (s *State) waitedSet() JoinSetID {
	if s.waitKind != AwaitJoinSet {
		return ""
	}
	return JoinSetID(s.eid.Child(s.waitSet))
}

func (b *book) checkChild(p id.PromiseID) {
	b.t.Helper()
	s, w := b.state, &b.twin
	if s.Resolved(p) != w.resolved(p) {
		b.t.Fatalf("%s resolved: %v", p, s.Resolved(p))
	}
	info, invoke := s.Invoke(p)
	if invoke != w.scheduled(p) || info.Completed != w.completed(p) || info.Started != (w.starts(p) > 0) ||
		int(info.Retries) != w.retries(p) || invoke && !info.Kind.Valid() {
		b.t.Fatalf("%s: %+v, %v", p, info, invoke)
	}
	if open := w.openAttempt(p); !info.Completed && int(info.Open) != open || info.Completed && info.Open != 0 {
		b.t.Fatalf("%s: open attempt %d, the twin counts %d", p, info.Open, open)
	}
	fired, timer := s.Timer(p)
	if timer != w.timer(p) || fired != (timer && w.resolved(p)) {
		b.t.Fatalf("%s: fired %v, timer %v", p, fired, timer)
	}
	for _, kind := range []AwaitKind{AwaitSingle, AwaitAny, AwaitAll} {
		on := []id.PromiseID{p, kid(0)}
		if s.Satisfied(kind, on, "") != w.satisfied(ExecutionAwaiting{On: on, Wait: kind}) {
			b.t.Fatalf("%v on %v: satisfied %v", kind, on, s.Satisfied(kind, on, ""))
		}
	}
}

// comparable is a state without what DeepEqual cannot compare or what does not matter: the function, and
// the empty forms of slices and maps.
func comparable(s *State) State {
	c := *s.Clone()
	c.bound, c.signalIndex = nil, nil
	for i := range c.signals {
		c.signals[i].buffered = append([]unconsumed{}, c.signals[i].buffered...)
	}
	c.children = append([]child{}, c.children...)
	c.signals = append([]signal{}, c.signals...)
	return c
}

// withoutEmpty makes the empty byte fields of an event nil, as decoding does.
func withoutEmpty(ev Event) Event {
	v := reflect.New(reflect.TypeOf(ev)).Elem()
	v.Set(reflect.ValueOf(ev))
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 {
			f.SetZero()
		}
	}
	return v.Interface().(Event)
}

// at proposes the same event in each of these situations and expects the rules named.
func refusedIn(t *testing.T, ev Event, rules map[Status]string) {
	t.Helper()
	situations := map[Status][]Event{
		StatusNone:       nil,
		StatusRunning:    {},
		StatusBlocked:    {scheduled(0), ExecutionAwaiting{On: []id.PromiseID{kid(0)}, Wait: AwaitSingle}},
		StatusCancelling: {CancelRequested{}},
		StatusCompleted:  {ExecutionCompleted{}},
		StatusFailed:     {ExecutionFailed{}},
		StatusCancelled:  {CancelRequested{}, ExecutionCancelled{}},
	}
	for status, rule := range rules {
		b := newBook(t)
		if status != StatusNone {
			b = started(t, situations[status]...)
		}
		if b.state.Status() != status {
			t.Fatalf("the situation for %v is %v", status, b.state.Status())
		}
		b.refuse(rule, ev)
	}
}

// unlessRunning is the row of the events that only running code makes.
func unlessRunning(t *testing.T, ev Event) {
	t.Helper()
	refusedIn(t, ev, map[Status]string{
		StatusNone:       RuleStartsWithStarted,
		StatusBlocked:    RuleBlocked,
		StatusCancelling: RuleCancellingAdmit,
		StatusCompleted:  RuleTerminalIsLast,
		StatusFailed:     RuleTerminalIsLast,
		StatusCancelled:  RuleTerminalIsLast,
	})
}

// unlessOpen is the row of the events that no terminal journal takes.
func unlessOpen(t *testing.T, ev Event) {
	t.Helper()
	refusedIn(t, ev, map[Status]string{
		StatusNone:      RuleStartsWithStarted,
		StatusCompleted: RuleTerminalIsLast,
		StatusFailed:    RuleTerminalIsLast,
		StatusCancelled: RuleTerminalIsLast,
	})
}

// Short forms for the histories of the tests.

func scheduled(n uint32) Event {
	return InvokeScheduled{Promise: kid(n), Invoke: InvokeFunction, Function: "f", Input: []byte("i"), RetryPolicy: "p"}
}

func attempted(n, attempt uint32) Event { return InvokeStarted{Promise: kid(n), Attempt: attempt} }

func completed(n, attempt uint32, result string) Event {
	return InvokeCompleted{Promise: kid(n), Result: []byte(result), Attempt: attempt}
}

func retrying(n, attempt uint32) Event {
	return InvokeRetrying{Promise: kid(n), FailedAttempt: attempt, Error: []byte("e"), RetryAt: 5}
}

func timer(n uint32) Event { return TimerScheduled{Promise: kid(n), Duration: 10, FireAt: 20} }

func delivered(name string, n uint64, payload string) Event {
	return SignalDelivered{Name: name, Payload: []byte(payload), DeliveryID: n}
}

func received(child uint32, name string, n uint64, payload string) Event {
	return SignalReceived{Promise: kid(child), Name: name, Payload: []byte(payload), DeliveryID: n}
}

func awaiting(kind AwaitKind, children ...uint32) Event {
	e := ExecutionAwaiting{Wait: kind}
	for _, n := range children {
		e.On = append(e.On, kid(n))
	}
	return e
}

func awaitingSignal(child uint32, name string) Event {
	return ExecutionAwaiting{On: []id.PromiseID{kid(child)}, Wait: AwaitSignal, Signal: name}
}

func submitted(s, p uint32) Event { return JoinSetSubmitted{Set: set(s), Promise: kid(p)} }

func awaited(s, p uint32, result string) Event {
	return JoinSetAwaited{Set: set(s), Promise: kid(p), Result: []byte(result)}
}
