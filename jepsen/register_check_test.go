package jepsen

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	absent  = RegisterState{}
	pending = func(param string) RegisterState { return RegisterState{Created: true, Param: param} }
	settled = func(param, value string) RegisterState {
		return RegisterState{Created: true, Param: param, Value: value}
	}
)

// op is one operation from one time to another.
func op(kind RegisterKind, value string, from, to int, seen RegisterState) RegisterOp {
	return RegisterOp{ID: "p", Kind: kind, Value: value, Called: time.Duration(from), Answered: time.Duration(to), Seen: seen}
}

func open(kind RegisterKind, value string, from int) RegisterOp {
	return RegisterOp{ID: "p", Kind: kind, Value: value, Called: time.Duration(from), Open: true}
}

// TestRegisterChecker plants what a broken server would do, and what a good one may do.
func TestRegisterChecker(t *testing.T) {
	const create, settle, get = RegisterCreate, RegisterSettle, RegisterGet
	for _, c := range []struct {
		name string
		ok   bool
		ops  []RegisterOp
	}{
		{"one after the other", true, []RegisterOp{
			op(get, "", 0, 1, absent), op(create, "a", 2, 3, pending("a")), op(settle, "x", 4, 5, settled("a", "x")), op(get, "", 6, 7, settled("a", "x"))}},
		{"the second create gets the first", true, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(create, "b", 2, 3, pending("a"))}},
		{"creates side by side, in the other order", true, []RegisterOp{
			op(create, "a", 0, 9, pending("b")), op(create, "b", 1, 8, pending("b"))}},
		{"a settle finds nothing", true, []RegisterOp{
			op(settle, "x", 0, 5, absent), op(create, "a", 3, 9, pending("a"))}},
		{"a read during a write sees either", true, []RegisterOp{
			op(create, "a", 0, 9, pending("a")), op(get, "", 1, 2, absent), op(get, "", 3, 4, pending("a"))}},
		{"an open create is seen", true, []RegisterOp{
			open(create, "a", 0), op(get, "", 5, 6, absent), op(get, "", 7, 8, pending("a"))}},
		{"an open create is never seen", true, []RegisterOp{
			open(create, "a", 0), op(get, "", 5, 6, absent), op(create, "b", 7, 8, pending("b")), op(get, "", 9, 10, pending("b"))}},
		{"an open settle takes place late", true, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), open(settle, "x", 2), op(get, "", 50, 51, pending("a")), op(settle, "y", 52, 53, settled("a", "x"))}},

		{"a stale read", false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(settle, "x", 2, 3, settled("a", "x")), op(get, "", 4, 5, pending("a"))}},
		{"a read that goes back", false, []RegisterOp{
			op(create, "a", 0, 9, pending("a")), op(get, "", 1, 2, pending("a")), op(get, "", 3, 4, absent)}},
		{"a lost write", false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 2, 3, absent)}},
		{"a lost write that another replaced", false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(create, "b", 2, 3, pending("b"))}},
		{"settled twice", false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(settle, "x", 2, 3, settled("a", "x")), op(settle, "y", 4, 5, settled("a", "y"))}},
		{"two winners side by side", false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(settle, "x", 2, 9, settled("a", "x")), op(settle, "y", 3, 8, settled("a", "y"))}},
		{"a value that no client wrote", false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 2, 3, settled("a", "ghost"))}},
		{"an open write that comes and goes", false, []RegisterOp{
			open(create, "a", 0), op(get, "", 1, 2, pending("a")), op(get, "", 3, 4, absent)}},
		{"a write before it was asked for", false, []RegisterOp{
			op(get, "", 0, 1, pending("a")), open(create, "a", 2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := CheckRegister(c.ops, 10*time.Second, 0)
			if v.OK() != c.ok {
				t.Errorf("ok is %v, expected %v: %+v", v.OK(), c.ok, v)
			}
			if v.Ops != len(c.ops) || v.IDs != 1 {
				t.Errorf("%d operations on %d ids were counted", v.Ops, v.IDs)
			}
		})
	}
}

// TestLateAnswer: the checker distinguishes an answer that was read after its create's effect from a wrong one.
func TestLateAnswer(t *testing.T) {
	const create, settle, get = RegisterCreate, RegisterSettle, RegisterGet
	// The create takes effect by 3, since it is seen; its answer has what was settled from 4 on.
	late := []RegisterOp{
		op(create, "a", 0, 9, settled("a", "x")), op(create, "b", 2, 3, pending("a")), op(settle, "x", 4, 5, settled("a", "x"))}
	if v := CheckRegister(late, 10*time.Second, 0); v.OK() || len(v.Late) != 1 || len(v.Violations) != 0 {
		t.Errorf("a late answer: %+v", v)
	}
	for name, more := range map[string]RegisterOp{
		"a stale read afterwards": op(get, "", 10, 11, pending("a")),
		"another winner":          op(create, "c", 10, 11, settled("c", "x")),
		"gone":                    op(get, "", 10, 11, absent),
	} {
		v := CheckRegister(append(slices.Clone(late), more), 10*time.Second, 0)
		if len(v.Violations) != 1 || len(v.Late) != 0 {
			t.Errorf("%s passes as a late answer: %+v", name, v)
		}
	}
	// An answer later than the call's end is nothing that a repeated create explains.
	early := []RegisterOp{op(create, "a", 0, 3, settled("a", "x")), op(settle, "x", 4, 5, settled("a", "x"))}
	if v := CheckRegister(early, 10*time.Second, 0); len(v.Violations) != 1 {
		t.Errorf("an answer from the future: %+v", v)
	}
}

// TestRegisterDeadline plants what a server may do with a promise that times out 10 after its creation, and what not.
func TestRegisterDeadline(t *testing.T) {
	const create, settle, get = RegisterCreate, RegisterSettle, RegisterGet
	const slack = 3
	expired := settled("a", timedOut)
	for _, c := range []struct {
		name        string
		ok, noOrder bool
		ops         []RegisterOp
	}{
		{"a read after the deadline", true, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 2, 3, pending("a")), op(get, "", 10, 11, expired)}},
		{"a settle after the deadline", true, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(settle, "x", 10, 11, expired), op(get, "", 12, 13, expired)}},
		{"settled before, and seen after the deadline", true, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(settle, "x", 8, 9, settled("a", "x")), op(get, "", 20, 21, settled("a", "x"))}},
		{"an open settle that came too late", true, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), open(settle, "x", 5), op(get, "", 15, 16, expired), op(get, "", 90, 91, expired)}},
		{"the expiration has not run", true, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 30, 31, pending("a")), op(get, "", 32, 33, expired)}},
		{"a clock that is ahead within the bound", true, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 7, 8, expired)}},

		{"timed out, later resolved", false, true, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 10, 11, expired), op(settle, "x", 12, 13, settled("a", "x"))}},
		{"timed out, later pending", false, true, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 10, 11, expired), op(get, "", 12, 13, pending("a"))}},
		{"resolved, later timed out", false, true, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(settle, "x", 2, 3, settled("a", "x")), op(get, "", 12, 13, expired)}},
		{"timed out too early", false, false, []RegisterOp{
			op(create, "a", 0, 1, pending("a")), op(get, "", 2, 6, expired)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.ops {
				c.ops[i].Deadline = 10
			}
			v := CheckRegister(c.ops, 10*time.Second, slack)
			if v.OK() != c.ok || (len(v.Violations) == 1) != c.noOrder {
				t.Errorf("%+v", v)
			}
		})
	}
	never := []RegisterOp{op(create, "a", 0, 1, pending("a")), op(get, "", 20, 21, expired)}
	if v := CheckRegister(never, 10*time.Second, slack); len(v.Violations) != 1 {
		t.Errorf("a promise without a deadline times out: %+v", v)
	}
}

// TestRegisterCheckerKeepsIDsApart: the checker finds one bad id among good ones, and only that one.
func TestRegisterCheckerKeepsIDsApart(t *testing.T) {
	var ops []RegisterOp
	for i := range 50 {
		seen := pending("a")
		if i == 17 {
			seen = absent
		}
		for _, o := range []RegisterOp{op(RegisterCreate, "a", 0, 1, pending("a")), op(RegisterGet, "", 2, 3, seen)} {
			o.ID = fmt.Sprintf("p%d", i)
			ops = append(ops, o)
		}
	}
	v := CheckRegister(ops, 10*time.Second, 0)
	if len(v.Violations) != 1 || v.Violations[0][:4] != "p17:" {
		t.Errorf("violations: %q", v.Violations)
	}
}

// TestUndecidedIsNoPass gives the checker more than it can do in no time.
func TestUndecidedIsNoPass(t *testing.T) {
	ops := []RegisterOp{op(RegisterCreate, "a", 0, 1, pending("a"))}
	for i := range 24 {
		ops = append(ops, open(RegisterSettle, fmt.Sprint(i), 2))
	}
	ops = append(ops, op(RegisterGet, "", 3, 4, settled("a", "no client's")))
	v := CheckRegister(ops, time.Nanosecond, 0)
	if v.OK() || len(v.Undecided) != 1 {
		t.Errorf("ok is %v, undecided %q", v.OK(), v.Undecided)
	}
}

// TestRegisterLaw: a history that was made from an order is accepted; with one answer changed to a state
// that never was, it is not.
func TestRegisterLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 14).Draw(t, "operations")
		var ops []RegisterOp
		var state RegisterState
		for i := range n {
			o := RegisterOp{ID: "p", Client: i, Value: fmt.Sprint(i)}
			o.Kind = rapid.SampledFrom([]RegisterKind{RegisterCreate, RegisterSettle, RegisterGet}).Draw(t, "kind")
			// It takes effect at time 10 i, somewhere between its call and its answer.
			o.Called = time.Duration(10*i - rapid.IntRange(0, 40).Draw(t, "sooner"))
			o.Answered = time.Duration(10*i + rapid.IntRange(0, 40).Draw(t, "later"))
			lost := o.Kind != RegisterGet && rapid.IntRange(0, 4).Draw(t, "open") == 0
			if lost && rapid.Bool().Draw(t, "never") {
				o.Open = true // and it has no effect
			} else {
				state = o.next(state)
				o.Seen, o.Open = state, lost
			}
			ops = append(ops, o)
		}
		shuffled := rapid.Permutation(ops).Draw(t, "order of notes")
		if v := CheckRegister(shuffled, time.Minute, 0); !v.OK() {
			t.Fatalf("a good history is refused: %v", v.Violations)
		}
		closed := slices.IndexFunc(shuffled, func(o RegisterOp) bool { return !o.Open })
		if closed < 0 {
			return
		}
		shuffled[closed].Seen.Value = "never"
		if v := CheckRegister(shuffled, time.Minute, 0); v.OK() {
			t.Fatalf("a planted answer is accepted: %v", shuffled)
		}
	})
}
