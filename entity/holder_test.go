package entity

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// inPhase returns an execution in a phase; its section locks b and d, and has a call to d under way.
func inPhase(t *testing.T, p Phase) *Holder {
	t.Helper()
	h := newHolder(t, order)
	if p == Acquiring || p == Inside {
		if _, err := h.Enter("s", []ID{"d", "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if p == Inside {
		if _, entered, err := h.Granted(granted(order, "s", "b", "d")); err != nil || !entered {
			t.Fatal(entered, err)
		}
		if _, err := h.Call("d", "under way", "op", nil); err != nil {
			t.Fatal(err)
		}
	}
	if p == Ended {
		h.End()
	}
	if h.Phase != p || len(h.Invariants()) != 0 {
		t.Fatalf("%+v, %v", h, h.Invariants())
	}
	return h
}

// The table of what an execution may do, by phase; "" is allowed.
func TestHolder(t *testing.T) {
	call := func(k ID, id, op string) func(h *Holder) error {
		return func(h *Holder) error { _, err := h.Call(k, id, op, nil); return err }
	}
	signals := func(k ID, id string, due int64) func(h *Holder) error {
		return func(h *Holder) error { _, err := h.Signal(k, id, "op", nil, due); return err }
	}
	enter := func(section string, set ...ID) func(h *Holder) error {
		return func(h *Holder) error { _, err := h.Enter(section, set); return err }
	}
	exit := func(h *Holder) error { _, err := h.Exit(); return err }
	for name, tc := range map[string]struct {
		do    func(h *Holder) error
		rules [4]string // outside, acquiring, inside, ended
	}{
		"call a locked":              {call("b", "1", "op"), [4]string{"", RuleAwaitLock, "", RuleEnded}},
		"call an unlocked":           {call("c", "1", "op"), [4]string{"", RuleAwaitLock, RuleCallLocked, RuleEnded}},
		"call a busy":                {call("d", "1", "op"), [4]string{"", RuleAwaitLock, RuleOneCall, RuleEnded}},
		"call without entity":        {call("", "1", "op"), [4]string{RuleID, RuleID, RuleID, RuleID}},
		"call without request":       {call("b", "", "op"), [4]string{RuleID, RuleID, RuleID, RuleID}},
		"call without operation":     {call("b", "1", ""), [4]string{RuleID, RuleID, RuleID, RuleID}},
		"signal a locked":            {signals("b", "1", 0), [4]string{"", RuleAwaitLock, RuleSignalFree, RuleEnded}},
		"schedule to a locked":       {signals("b", "1", 9), [4]string{"", RuleAwaitLock, RuleSignalFree, RuleEnded}},
		"signal an unlocked":         {signals("c", "1", 0), [4]string{"", RuleAwaitLock, "", RuleEnded}},
		"signal before the epoch":    {signals("c", "1", -1), [4]string{RuleTime, RuleTime, RuleTime, RuleTime}},
		"signal without entity":      {signals("", "1", 0), [4]string{RuleID, RuleID, RuleID, RuleID}},
		"enter":                      {enter("t", "a"), [4]string{"", RuleNesting, RuleNesting, RuleEnded}},
		"enter without name":         {enter("", "a"), [4]string{RuleID, RuleID, RuleID, RuleID}},
		"enter nothing":              {enter("t"), [4]string{RuleLockSet, RuleLockSet, RuleLockSet, RuleLockSet}},
		"enter without entity":       {enter("t", "a", ""), [4]string{RuleID, RuleID, RuleID, RuleID}},
		"exit with a call under way": {exit, [4]string{RuleInside, RuleAwaitLock, RuleExitIdle, RuleEnded}},
		"start a child":              {(*Holder).MayStartChild, [4]string{"", RuleAwaitLock, RuleNoChild, RuleEnded}},
		"continue as new":            {(*Holder).MayContinueAsNew, [4]string{"", RuleAwaitLock, RuleNoRestart, RuleEnded}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, rule := range tc.rules {
				h := inPhase(t, Phase(i+1))
				phase, section := h.Phase, h.Section
				before := AppendHolder(nil, h)
				err := tc.do(h)
				if rule == "" {
					if err != nil {
						t.Errorf("%v: %v", phase, err)
					}
					if v := h.Invariants(); len(v) != 0 {
						t.Errorf("%v: %v", phase, v)
					}
					continue
				}
				var e *Error
				if !errors.As(err, &e) || e.Rule != rule || e.Party != order {
					t.Errorf("%v: got %v, want %s", phase, err, rule)
					continue
				}
				if phase == Inside && !strings.HasPrefix(name, "enter") && e.Section != section {
					t.Errorf("the section is not named: %v", e)
				}
				if after := AppendHolder(nil, h); !bytes.Equal(before, after) {
					t.Errorf("%v: the refusal changed %q to %q", phase, before, after)
				}
			}
		})
	}
}

func TestNewHolder(t *testing.T) {
	for _, tc := range []struct {
		id          string
		incarnation uint64
		rule        string
	}{{"", 1, RuleID}, {"x", 0, RuleParty}} {
		if h, err := NewHolder(tc.id, tc.incarnation); !ruleIs(err, tc.rule) || h != nil {
			t.Errorf("%+v: %v, %v", tc, h, err)
		}
	}
}

// The messages of a whole section, and which of them say that they belong to it.
func TestSection(t *testing.T) {
	h := newHolder(t, order)
	set := []ID{"b", "a", "b"}
	m, err := h.Enter("s", set)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []Message{m}, []Message{lock(order, "s", 0, "a", "b")})
	if !reflect.DeepEqual(set, []ID{"b", "a", "b"}) {
		t.Errorf("the argument was sorted: %v", set)
	}
	out, entered, err := h.Granted(granted(order, "s", "a", "b"))
	if err != nil || !entered || out != nil {
		t.Fatal(out, entered, err)
	}
	if out, entered, err := h.Granted(granted(order, "s", "a", "b")); err != nil || entered || out != nil {
		t.Fatal(out, entered, err)
	}
	c, err := h.Call("b", "1", "op", []byte("i"))
	if err != nil || !reflect.DeepEqual(c, Call{Origin: order, Entity: "b", Request: "1", Operation: "op", Input: []byte("i"), Section: "s"}) {
		t.Fatal(c, err)
	}
	if _, err := h.Call("a", "2", "op", nil); err != nil {
		t.Fatal(err)
	}
	s, err := h.Signal("c", "3", "op", []byte("i"), 9)
	if err != nil || !reflect.DeepEqual(s, Signal{Origin: order, Entity: "c", Request: "3", Operation: "op", Input: []byte("i"), DueAt: 9}) {
		t.Fatal(s, err)
	}
	for _, r := range []Reply{{Entity: "b", Caller: order, Request: "0"}, {Entity: "c", Caller: order, Request: "1"}} {
		if awaited, err := h.Replied(r); awaited || err != nil {
			t.Fatal(awaited, err)
		}
	}
	for _, r := range []Reply{{Entity: "b", Caller: order, Request: "1"}, {Entity: "a", Caller: order, Request: "2"}} {
		if _, err := h.Exit(); !ruleIs(err, RuleExitIdle) {
			t.Fatal(err)
		}
		if awaited, err := h.Replied(r); !awaited || err != nil {
			t.Fatal(awaited, err)
		}
		if awaited, err := h.Replied(r); awaited || err != nil {
			t.Fatal("a repetition was awaited", err)
		}
	}
	if _, err := h.Call("b", "4", "op", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Replied(Reply{Entity: "b", Caller: order, Request: "4"}); err != nil {
		t.Fatal(err)
	}
	out, err = h.Exit()
	if err != nil {
		t.Fatal(err)
	}
	same(t, out, []Message{unlock(order, "s", "a"), unlock(order, "s", "b")})
	if c, err := h.Call("z", "5", "op", nil); err != nil || c.Section != "" {
		t.Fatal(c, err)
	}
	if _, err := h.Enter("t", []ID{"z"}); err != nil {
		t.Fatal(err)
	}
}

// A message about locks that no section awaits is answered with unlocks by every receiver.
func TestUnclaimed(t *testing.T) {
	want := []Message{unlock(order, "s", "a"), unlock(order, "s", "b")}
	same(t, Unclaimed(granted(order, "s", "a", "b")), want)
	for p := Outside; p.Valid(); p++ {
		h := newHolder(t, order)
		switch p {
		case Acquiring, Inside:
			if _, err := h.Enter("t", []ID{"a"}); err != nil {
				t.Fatal(err)
			}
		case Ended:
			h.End()
		}
		if p == Inside {
			if _, _, err := h.Granted(granted(order, "t", "a")); err != nil {
				t.Fatal(err)
			}
		}
		before := AppendHolder(nil, h)
		out, entered, err := h.Granted(granted(order, "s", "a", "b"))
		if err != nil || entered {
			t.Fatal(p, entered, err)
		}
		same(t, out, want)
		if after := AppendHolder(nil, h); !bytes.Equal(before, after) {
			t.Errorf("%v: %q became %q", p, before, after)
		}
	}
}

func TestNewsForAnotherParty(t *testing.T) {
	for name, tc := range map[string]struct {
		g    LockGranted
		rule string
	}{
		"malformed":           {granted(order, "", "b"), RuleID},
		"another":             {granted(refund, "s", "b", "d"), RuleAddress},
		"another incarnation": {granted(Party{PartyExecution, "order", 9}, "s", "b", "d"), RuleAddress},
		"another set":         {granted(order, "s", "b"), RuleLockSet},
	} {
		h := inPhase(t, Acquiring)
		if out, entered, err := h.Granted(tc.g); !ruleIs(err, tc.rule) || entered || out != nil || h.Phase != Acquiring {
			t.Errorf("%s: %v, %v, %v", name, out, entered, err)
		}
	}
	h := inPhase(t, Inside)
	for name, tc := range map[string]struct {
		r    Reply
		rule string
	}{
		"malformed": {Reply{Caller: order, Request: "1"}, RuleID},
		"another":   {Reply{Entity: "d", Caller: refund, Request: "under way"}, RuleAddress},
	} {
		if awaited, err := h.Replied(tc.r); !ruleIs(err, tc.rule) || awaited || len(h.Pending) != 1 {
			t.Errorf("%s: %v, %v", name, awaited, err)
		}
	}
}

// However it ends, the execution gives back what it has or asked for, once.
func TestEnd(t *testing.T) {
	for p, want := range map[Phase][]Message{
		Outside:   nil,
		Acquiring: {withdraw(order, "s", 0, "b", "d")},
		Inside:    {unlock(order, "s", "b"), unlock(order, "s", "d")},
		Ended:     nil,
	} {
		h := inPhase(t, p)
		same(t, h.End(), want)
		if h.Phase != Ended || len(h.Invariants()) != 0 {
			t.Errorf("%+v", h)
		}
		same(t, h.End(), nil)
		if awaited, err := h.Replied(Reply{Entity: "d", Caller: order, Request: "under way"}); awaited || err != nil {
			t.Error(awaited, err)
		}
	}
}

func TestHolderClone(t *testing.T) {
	h := inPhase(t, Inside)
	before := AppendHolder(nil, h)
	c := h.Clone()
	if !reflect.DeepEqual(h, c) {
		t.Fatalf("%+v and %+v", h, c)
	}
	if _, err := c.Call("b", "1", "op", nil); err != nil {
		t.Fatal(err)
	}
	c.End()
	if after := AppendHolder(nil, h); !bytes.Equal(before, after) {
		t.Errorf("the clone's fate changed %q to %q", before, after)
	}
}
