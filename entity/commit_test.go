package entity

import (
	"reflect"
	"testing"
)

func TestBatch(t *testing.T) {
	s := newState(t, "a")
	if b, ok := s.Batch(9, 9); ok {
		t.Fatalf("%+v", b)
	}
	for _, id := range []string{"1", "2", "3"} {
		m := called(order, "a", id)
		m.Input = []byte("12345")
		deliver(t, s, m)
	}
	deliver(t, s, lock(refund, "s", 0, "a"))
	deliver(t, s, signal(user, "a", "4"))
	for _, tc := range []struct{ operations, bytes, want int }{
		{9, 99, 3}, {2, 99, 2}, {1, 99, 1}, {0, 99, 1}, {-1, -1, 1}, {9, 15, 3}, {9, 14, 2}, {9, 10, 2}, {9, 9, 1}, {9, 0, 1},
	} {
		b, ok := s.Batch(tc.operations, tc.bytes)
		if !ok || len(b.Operations) != tc.want {
			t.Errorf("%+v: %d operations", tc, len(b.Operations))
		}
	}
	b, _ := s.Batch(1, 0)
	want := Batch{Entity: "a", Incarnation: 1, Operations: []Operation{{Origin: order, Request: "1", Name: "op", Input: []byte("12345"), Call: true}}}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("%+v", b)
	}
}

// Value, replies, signals, queue and version change together.
func TestCommit(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, called(order, "a", "1"))
	deliver(t, s, signal(order, "a", "2"))
	deliver(t, s, called(user, "a", "3"))
	deliver(t, s, called(user, "a", "4"))
	b, _ := s.Batch(9, 9)
	deliver(t, s, signal(refund, "a", "5")) // meanwhile
	out, err := s.Commit(0, Commit{Incarnation: b.Incarnation, Version: b.Version, Exists: true, Value: []byte("v"),
		Results: []Result{{Request: "1", Output: []byte("one")}, {Request: "2", Output: []byte("nobody's")}, {Request: "3", Failed: true, Output: []byte("why")}},
		Sends:   []Send{{To: "b", Operation: "x", Input: []byte("i")}, {To: "a", Operation: "y", DueAt: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	a := ID("a").party()
	same(t, out, []Message{
		Reply{Entity: "a", Caller: order, Request: "1", Output: []byte("one")},
		Reply{Entity: "a", Caller: user, Request: "3", Failed: true, Output: []byte("why")},
		Signal{Origin: a, Entity: "b", Request: "1.0.0", Operation: "x", Input: []byte("i")},
		Signal{Origin: a, Entity: "a", Request: "1.0.1", Operation: "y", DueAt: 7},
	})
	wantRunnable(t, s, "4", "5")
	next, _ := s.Batch(9, 9)
	if next.Version != 1 || !next.Exists || string(next.Value) != "v" {
		t.Errorf("%+v", next)
	}
	if next.Operations[1].Call {
		t.Error("a signal wants no result")
	}
}

func TestCommitRefused(t *testing.T) {
	s, err := New("a", 5)
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, s, called(order, "a", "0"))
	run(t, s, 1, Reply{Entity: "a", Caller: order, Request: "0"})
	deliver(t, s, called(order, "a", "1"))
	deliver(t, s, signal(user, "a", "2"))
	deliver(t, s, lock(refund, "s", 0, "a"))
	deliver(t, s, signal(user, "a", "3"))
	results := func(ids ...string) (out []Result) {
		for _, id := range ids {
			out = append(out, Result{Request: id})
		}
		return out
	}
	for name, tc := range map[string]struct {
		c       Commit
		code    Code
		rule    string
		request string
	}{
		"earlier incarnation":   {Commit{Incarnation: 4, Version: 1, Results: results("1")}, Conflict, RuleIncarnation, ""},
		"later incarnation":     {Commit{Incarnation: 6, Version: 1, Results: results("1")}, Conflict, RuleIncarnation, ""},
		"stale":                 {Commit{Incarnation: 5, Version: 0, Results: results("1")}, Conflict, RuleVersion, ""},
		"from the future":       {Commit{Incarnation: 5, Version: 2, Results: results("1")}, Conflict, RuleVersion, ""},
		"empty":                 {Commit{Incarnation: 5, Version: 1}, Invalid, RuleResults, ""},
		"absent with bytes":     {Commit{Incarnation: 5, Version: 1, Results: results("1"), Value: []byte{0}}, Invalid, RuleAbsent, ""},
		"another operation":     {Commit{Incarnation: 5, Version: 1, Results: results("2")}, Invalid, RuleBatch, "2"},
		"wrong order":           {Commit{Incarnation: 5, Version: 1, Results: results("1", "1")}, Invalid, RuleBatch, "1"},
		"past a lock":           {Commit{Incarnation: 5, Version: 1, Results: results("1", "2", "3")}, Invalid, RuleBatch, "3"},
		"signal without target": {Commit{Incarnation: 5, Version: 1, Results: results("1"), Sends: []Send{{To: "b", Operation: "o"}, {Operation: "o"}}}, Invalid, RuleID, "5.1.1"},
		"signal of nothing":     {Commit{Incarnation: 5, Version: 1, Results: results("1"), Sends: []Send{{To: "b"}}}, Invalid, RuleID, "5.1.0"},
		"before the epoch":      {Commit{Incarnation: 5, Version: 1, Results: results("1"), Sends: []Send{{To: "b", Operation: "o", DueAt: -1}}}, Invalid, RuleTime, "5.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			e := refused(t, s, func() error { _, err := s.Commit(0, tc.c); return err }, tc.code, tc.rule)
			if e.Op != "commit" || e.Entity != "a" || e.Request != tc.request {
				t.Errorf("%+v", e)
			}
		})
	}
}

// Of two workers with the same batch one commits, also when the record was dropped and created again.
func TestOneCommitPerBatch(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	b, _ := s.Batch(1, 0)
	c := Commit{Incarnation: b.Incarnation, Version: b.Version, Results: []Result{{Request: "1"}}}
	if _, err := s.Commit(0, c); err != nil {
		t.Fatal(err)
	}
	refused(t, s, func() error { _, err := s.Commit(0, c); return err }, Conflict, RuleVersion)

	again, err := New("a", 2)
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, again, signal(user, "a", "1"))
	refused(t, again, func() error { _, err := again.Commit(0, c); return err }, Conflict, RuleIncarnation)
}
