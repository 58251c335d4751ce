package entity

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestNew(t *testing.T) {
	s := newState(t, "a")
	if !s.Collectable() || s.Runnable() {
		t.Errorf("%+v", s)
	}
	sound(t, s)
	for _, tc := range []struct {
		id          ID
		incarnation uint64
		rule        string
	}{{"", 1, RuleID}, {"a", 0, RuleIncarnation}} {
		if s, err := New(tc.id, tc.incarnation); !ruleIs(err, tc.rule) || s != nil {
			t.Errorf("%+v: %v, %v", tc, s, err)
		}
	}
}

// A record may be dropped exactly when it says nothing.
func TestCollectable(t *testing.T) {
	for name, m := range map[string]Message{
		"signal": signal(user, "a", "1"), "scheduled": due(signal(user, "a", "1"), 9), "lock": lock(order, "s", 0, "a"),
	} {
		s := newState(t, "a")
		if _, err := s.Deliver(0, m); err != nil || s.Collectable() {
			t.Errorf("%s: %v, collectable: %v", name, err, s.Collectable())
		}
	}
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	if _, err := s.Commit(0, Commit{Incarnation: 1, Results: []Result{{Request: "1"}}, Exists: true}); err != nil {
		t.Fatal(err)
	}
	if s.Collectable() {
		t.Error("it has a value, if an empty one")
	}
	deliver(t, s, signal(user, "a", "2"))
	run(t, s, 1)
	if !s.Collectable() {
		t.Errorf("%+v", s)
	}
}

func TestClone(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	deliver(t, s, due(signal(user, "a", "2"), 9))
	before := AppendState(nil, s)
	c := s.Clone()
	if !reflect.DeepEqual(s, c) {
		t.Fatalf("%+v and %+v", s, c)
	}
	c.Tick(10)
	run(t, c, 1)
	run(t, c, 1)
	if after := AppendState(nil, s); string(after) != string(before) {
		t.Errorf("the clone's fate changed %q to %q", before, after)
	}
}

// Messages that no state takes.
func TestMalformedMessages(t *testing.T) {
	noParty := Party{Kind: PartyExecution, Incarnation: 1}
	unborn := Party{Kind: PartyExecution, ID: "order"}
	other := Party{Kind: 4, ID: "order"}
	entity := Party{Kind: PartyEntity, ID: "b"}
	lives := Party{Kind: PartyEntity, ID: "b", Incarnation: 1}
	for name, tc := range map[string]struct {
		m    Message
		rule string
	}{
		"signal without origin":                {signal(noParty, "a", "1"), RuleID},
		"signal of an unborn":                  {signal(unborn, "a", "1"), RuleParty},
		"signal of another kind":               {signal(other, "a", "1"), RuleParty},
		"signal of no kind":                    {signal(Party{}, "a", "1"), RuleParty},
		"signal of an entity with incarnation": {signal(lives, "a", "1"), RuleParty},
		"signal without entity":                {signal(user, "", "1"), RuleID},
		"signal without request":               {signal(user, "a", ""), RuleID},
		"signal without operation":             {Signal{Origin: user, Entity: "a", Request: "1"}, RuleID},
		"signal before the epoch":              {due(signal(user, "a", "1"), -1), RuleTime},
		"call without origin":                  {called(noParty, "a", "1"), RuleID},
		"call of an entity":                    {called(entity, "a", "1"), RuleNoCallsHere},
		"call of itself":                       {called(ID("a").party(), "a", "1"), RuleNoCallsHere},
		"call without entity":                  {called(user, "", "1"), RuleID},
		"call without request":                 {called(user, "a", ""), RuleID},
		"call without operation":               {Call{Origin: user, Entity: "a", Request: "1"}, RuleID},
		"call of a client in a section":        {inSection(called(user, "a", "1"), "s"), RuleHolder},
		"lock without holder":                  {lock(noParty, "s", 0, "a"), RuleID},
		"lock of a client":                     {lock(user, "s", 0, "a"), RuleHolder},
		"lock of an entity":                    {lock(entity, "s", 0, "a"), RuleHolder},
		"lock without section":                 {lock(order, "", 0, "a"), RuleID},
		"lock of nothing":                      {lock(order, "s", 0), RuleLockSet},
		"lock of a nameless":                   {lock(order, "s", 0, "", "a"), RuleID},
		"lock out of order":                    {lock(order, "s", 1, "b", "a"), RuleLockSet},
		"lock twice":                           {lock(order, "s", 0, "a", "a"), RuleLockSet},
		"lock before its set":                  {lock(order, "s", -1, "a"), RulePosition},
		"lock behind its set":                  {lock(order, "s", 1, "a"), RulePosition},
		"withdrawal without section":           {withdraw(order, "", 0, "a"), RuleID},
		"withdrawal out of order":              {withdraw(order, "s", 1, "b", "a"), RuleLockSet},
		"withdrawal behind its set":            {withdraw(order, "s", 1, "a"), RulePosition},
		"unlock of a client":                   {unlock(user, "s", "a"), RuleHolder},
		"unlock without entity":                {unlock(order, "s", ""), RuleID},
		"word of nothing":                      {granted(order, "s"), RuleLockSet},
		"grant without holder":                 {granted(noParty, "s", "a"), RuleID},
		"reply without caller":                 {Reply{Entity: "a", Caller: noParty, Request: "1"}, RuleID},
		"reply without entity":                 {Reply{Caller: order, Request: "1"}, RuleID},
		"reply to nothing":                     {Reply{Entity: "a", Caller: order}, RuleID},
	} {
		t.Run(name, func(t *testing.T) {
			refusedDelivery(t, newState(t, "a"), tc.m, Invalid, tc.rule)
		})
	}
}

// Well-formed messages for another receiver.
func TestMisdelivered(t *testing.T) {
	for _, m := range []Message{signal(user, "b", "1"), called(order, "b", "1"), lock(order, "s", 1, "a", "b"), withdraw(order, "s", 1, "a", "b"),
		unlock(order, "s", "b"), granted(order, "s", "a"), Reply{Entity: "a", Caller: order, Request: "1"},
		Reply{Entity: "b", Caller: ID("a").party(), Request: "1"}} {
		e := refusedDelivery(t, newState(t, "a"), m, Invalid, RuleAddress)
		if !strings.Contains(e.Error(), m.Kind().String()) {
			t.Error(e)
		}
	}
}

// The queue is in the order of arrival, for all senders.
func TestQueue(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	deliver(t, s, called(order, "a", "1"))
	deliver(t, s, signal(ID("b").party(), "a", "2"))
	deliver(t, s, signal(ID("a").party(), "a", "3"))
	deliver(t, s, signal(order, "a", "4"))
	wantRunnable(t, s, "1", "1", "2", "3", "4")
}

// An operation is taken once while it waits. Another origin may use the same request.
func TestRequestOnce(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	deliver(t, s, called(order, "a", "1"))
	deliver(t, s, due(signal(user, "a", "2"), 9))
	for _, m := range []Message{signal(user, "a", "1"), due(signal(user, "a", "1"), 9), called(order, "a", "1"), signal(order, "a", "1"),
		signal(user, "a", "2"), called(user, "a", "2")} {
		e := refusedDelivery(t, s, m, Conflict, RuleRequestOnce)
		if e.Request != m.(operation).request() || e.Party != m.From() || e.Entity != "a" || e.Op != "deliver" {
			t.Errorf("%+v", e)
		}
	}
	deliver(t, s, signal(Party{PartyExecution, "order", 4}, "a", "1"))
	run(t, s, 1)
	deliver(t, s, signal(user, "a", "1")) // to know what has run is the channel's business
}

// Messages say who they belong to, which is what a channel keeps in order.
func TestFromTo(t *testing.T) {
	a, b := ID("a").party(), ID("b").party()
	for _, tc := range []struct {
		m        Message
		from, to Party
	}{
		{signal(user, "a", "1"), user, a},
		{called(order, "a", "1"), order, a},
		{lock(order, "s", 0, "a", "b"), order, a},
		{lock(order, "s", 1, "a", "b"), a, b},
		{withdraw(order, "s", 0, "a", "b"), order, a},
		{withdraw(order, "s", 1, "a", "b"), a, b},
		{granted(order, "s", "a", "b"), b, order},
		{unlock(order, "s", "b"), order, b},
		{Reply{Entity: "a", Caller: order, Request: "1"}, a, order},
		// Malformed ones have no receiver, and do not panic.
		{lock(order, "s", 3, "a"), Party{}, Party{}},
		{lock(order, "s", -1, "a"), Party{}, Party{}},
		{granted(order, "s"), Party{}, order},
	} {
		if tc.m.From() != tc.from || tc.m.To() != tc.to {
			t.Errorf("%v: from %v to %v", tc.m, tc.m.From(), tc.m.To())
		}
	}
}

func TestLockSet(t *testing.T) {
	given := []ID{"b", "a", "b", "@c"}
	if got := LockSet(given); !reflect.DeepEqual(got, []ID{"@c", "a", "b"}) || given[0] != "b" {
		t.Errorf("%v of %v", got, given)
	}
}

func TestSchedule(t *testing.T) {
	s := newState(t, "a")
	if _, ok := s.NextScheduled(); ok || s.Tick(math.MaxInt64) {
		t.Error("nothing is scheduled")
	}
	for _, m := range []Signal{due(signal(user, "a", "late"), math.MaxInt64), due(signal(user, "a", "5"), 5), due(signal(user, "a", "7"), 7),
		due(signal(user, "a", "5 again"), 5), signal(user, "a", "now")} {
		deliver(t, s, m)
	}
	wantRunnable(t, s, "now")
	if at, ok := s.NextScheduled(); !ok || at != 5 {
		t.Errorf("next due at %d, %v", at, ok)
	}
	if s.Tick(4) {
		t.Error("nothing is due at 4")
	}
	if !s.Tick(5) || s.Tick(5) {
		t.Error("two are due at 5, once")
	}
	sound(t, s)
	wantRunnable(t, s, "now", "5", "5 again")

	// Expired signals enter the lane before each delivery or commit.
	if _, err := s.Deliver(7, signal(user, "a", "at 7")); err != nil {
		t.Fatal(err)
	}
	wantRunnable(t, s, "now", "at 7", "5", "5 again", "7")
	if _, err := s.Deliver(7, due(signal(user, "a", "at 8"), 8)); err != nil {
		t.Fatal(err)
	}
	wantRunnable(t, s, "now", "at 7", "5", "5 again", "7")
	if _, err := s.Deliver(8, due(signal(user, "a", "overdue"), 8)); err != nil {
		t.Fatal(err)
	}
	wantRunnable(t, s, "now", "at 7", "5", "5 again", "7", "at 8", "overdue")
	if _, err := s.Commit(math.MaxInt64, Commit{Incarnation: 1, Results: []Result{{Request: "now"}}}); err != nil {
		t.Fatal(err)
	}
	wantRunnable(t, s, "at 7", "5", "5 again", "7", "at 8", "overdue", "late")
	sound(t, s)
}

// A refused message does not even run the expirations.
func TestRefusalDoesNotTick(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, due(signal(user, "a", "1"), 5))
	refused(t, s, func() error { _, err := s.Deliver(9, signal(user, "b", "2")); return err }, Invalid, RuleAddress)
	refused(t, s, func() error { _, err := s.Commit(9, Commit{}); return err }, Conflict, RuleIncarnation)
}

// Due signals do not wait behind the queue, and the queue does not starve: batches of the lane and of the queue take
// turns. The lane is bounded, and a commit of it lets the next signals in.
func TestLane(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "q1"))
	deliver(t, s, signal(user, "a", "q2"))
	for i := range LaneLength + 2 {
		deliver(t, s, due(signal(user, "a", fmt.Sprint("d", i)), 5))
	}
	s.Tick(5)
	if _, more := s.NextScheduled(); more || len(s.Lane) != LaneLength || len(s.Delayed) != 2 {
		t.Fatalf("%d in the lane, %d delayed, more due: %v", len(s.Lane), len(s.Delayed), more)
	}
	sound(t, s)
	for i, want := range []string{"d0", "q1", "d1", "q2", "d2", "d3"} {
		b, _ := s.Batch(1, 0)
		if b.Operations[0].Request != want {
			t.Fatalf("batch %d is %s, want %s", i, b.Operations[0].Request, want)
		}
		wrong := Commit{Incarnation: 1, Version: b.Version, Lane: !b.Lane, Results: []Result{{Request: want}}}
		refused(t, s, func() error { _, err := s.Commit(5, wrong); return err }, Invalid, RuleBatch)
		if _, err := s.Commit(5, Commit{Incarnation: 1, Version: b.Version, Lane: b.Lane, Results: []Result{{Request: want}}}); err != nil {
			t.Fatal(err)
		}
		sound(t, s)
	}
	if len(s.Lane) != LaneLength-2 || len(s.Delayed) != 0 {
		t.Fatalf("%d in the lane, %d delayed", len(s.Lane), len(s.Delayed))
	}
	// A due signal does not run under a lock, and does not keep it from being taken.
	late, _ := s.Batch(1, 0)
	deliver(t, s, lock(order, "s", 0, "a"), granted(order, "s", "a"))
	refused(t, s, func() error {
		_, err := s.Commit(5, Commit{Incarnation: 1, Version: late.Version, Lane: true, Results: []Result{{Request: late.Operations[0].Request}}})
		return err
	}, Conflict, RuleLane)
	if b, ok := s.Batch(1, 0); ok {
		t.Fatalf("%v runs under a lock", b)
	}
}
