package entity

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// Names that the tests share.
var (
	order  = Party{PartyExecution, "order", 3}
	refund = Party{PartyExecution, "refund", 4}
	user   = Party{PartyClient, "user", 0}
)

func newState(t *testing.T, id ID) *State {
	t.Helper()
	s, err := New(id, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newHolder(t *testing.T, p Party) *Holder {
	t.Helper()
	h, err := NewHolder(p.ID, p.Incarnation)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// deliver delivers what must be admitted, and compares what is to be sent.
func deliver(t *testing.T, s *State, m Message, want ...Message) {
	t.Helper()
	got, err := s.Deliver(0, m)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
	sound(t, s)
}

func same(t *testing.T, got, want []Message) {
	t.Helper()
	if len(got) != len(want) || (len(got) > 0 && !reflect.DeepEqual(got, want)) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
}

func sound(t *testing.T, s *State) {
	t.Helper()
	for _, v := range s.Invariants() {
		t.Error(v)
	}
}

// refused asserts a refusal by rule that has changed nothing.
func refused(t *testing.T, s *State, do func() error, code Code, rule string) *Error {
	t.Helper()
	before := AppendState(nil, s)
	err := do()
	var e *Error
	if !errors.As(err, &e) || e.Rule != rule || e.Code != code {
		t.Fatalf("got %v, want %v by rule %s", err, code, rule)
	}
	if after := AppendState(nil, s); !bytes.Equal(before, after) {
		t.Fatalf("the refusal changed %q to %q", before, after)
	}
	return e
}

func refusedDelivery(t *testing.T, s *State, m Message, code Code, rule string) *Error {
	t.Helper()
	return refused(t, s, func() error { _, err := s.Deliver(0, m); return err }, code, rule)
}

// runnable returns the requests of the operations that may run now: of the queue, then of the lane.
func runnable(s *State) []string {
	var ids []string
	for _, lane := range []bool{false, true} {
		for _, o := range s.eligible(lane) {
			ids = append(ids, o.request())
		}
	}
	return ids
}

func wantRunnable(t *testing.T, s *State, want ...string) {
	t.Helper()
	if got := runnable(s); !reflect.DeepEqual(got, want) {
		t.Fatalf("may run: %q, want %q", got, want)
	}
}

// run commits the first n operations and compares what is to be sent.
func run(t *testing.T, s *State, n int, want ...Message) {
	t.Helper()
	b, _ := s.Batch(n, 1<<20)
	c := Commit{Incarnation: b.Incarnation, Version: b.Version, Lane: b.Lane}
	for _, o := range b.Operations {
		c.Results = append(c.Results, Result{Request: o.Request})
	}
	got, err := s.Commit(0, c)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
	sound(t, s)
}

func signal(from Party, to ID, request string) Signal {
	return Signal{Origin: from, Entity: to, Request: request, Operation: "op"}
}

func called(from Party, to ID, request string) Call {
	return Call{Origin: from, Entity: to, Request: request, Operation: "op"}
}

func inSection(c Call, section string) Call {
	c.Section = section
	return c
}

func due(s Signal, at int64) Signal {
	s.DueAt = at
	return s
}

func lock(holder Party, section string, position int, set ...ID) LockRequest {
	return LockRequest{Section{holder, section}, set, position}
}

func withdraw(holder Party, section string, position int, set ...ID) Withdraw {
	return Withdraw{Section{holder, section}, set, position}
}

func granted(holder Party, section string, set ...ID) LockGranted {
	return LockGranted{Section{holder, section}, set}
}

func unlock(holder Party, section string, entity ID) Unlock {
	return Unlock{Section{holder, section}, entity}
}
