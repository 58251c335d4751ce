package entity

import (
	"slices"
	"testing"
)

// Each defect is found under its name, and nothing is found where there is none.
func TestStateInvariants(t *testing.T) {
	base := func() *State {
		s := newState(t, "a")
		deliver(t, s, lock(order, "s", 0, "a"), granted(order, "s", "a"))
		deliver(t, s, inSection(called(order, "a", "1"), "s"))
		deliver(t, s, signal(user, "a", "1"))
		deliver(t, s, lock(refund, "s", 0, "a"))
		deliver(t, s, due(signal(user, "a", "2"), 5))
		deliver(t, s, due(signal(user, "a", "3"), 5))
		return s
	}
	sound(t, base())
	for name, tc := range map[string]struct {
		want string
		harm func(s *State)
	}{
		"no id":                       {StateForm, func(s *State) { *s = State{Incarnation: 1, NextSeq: 1} }},
		"no incarnation":              {StateForm, func(s *State) { s.Incarnation = 0 }},
		"no next number":              {StateForm, func(s *State) { *s = State{ID: "a", Incarnation: 1} }},
		"absent value":                {StateForm, func(s *State) { s.Value = []byte("v") }},
		"queue out of order":          {EntryOrder, func(s *State) { s.Queue[1], s.Queue[2] = s.Queue[2], s.Queue[1] }},
		"delayed out of order":        {EntryOrder, func(s *State) { s.Delayed[0], s.Delayed[1] = s.Delayed[1], s.Delayed[0] }},
		"number twice":                {EntryOrder, func(s *State) { s.Delayed[0].Seq = s.Queue[2].Seq }},
		"number 0":                    {EntryOrder, func(s *State) { s.Delayed[0].Seq = 0 }},
		"number not reached":          {EntryOrder, func(s *State) { s.Delayed[1].Seq = s.NextSeq }},
		"delayed without time":        {DelayedSignal, func(s *State) { s.Delayed[0].Message = signal(user, "a", "2") }},
		"delayed call":                {DelayedSignal, func(s *State) { s.Delayed[0].Message = called(user, "a", "2") }},
		"nothing waits":               {EntryForm, func(s *State) { s.Queue[1].Message = nil }},
		"an unlock waits":             {EntryForm, func(s *State) { s.Queue[1].Message = unlock(order, "s", "a") }},
		"malformed":                   {EntryForm, func(s *State) { s.Queue[1].Message = signal(user, "a", "") }},
		"for another":                 {EntryForm, func(s *State) { s.Queue[1].Message = signal(user, "b", "1") }},
		"request twice":               {RequestOnce, func(s *State) { s.Delayed[0].Message = due(signal(user, "a", "1"), 5) }},
		"lock of a client":            {LockForm, func(s *State) { s.Lock.Section.Holder = user }},
		"unlocked in the future":      {LockForm, func(s *State) { s.Lock.Until = s.NextSeq + 1 }},
		"unlocked but not locked":     {LockForm, func(s *State) { s.Lock = Lock{Until: 1} }},
		"unlocked and kept":           {LockEnds, func(s *State) { s.Lock.Until = 1 }},
		"asked twice":                 {LockAsked, func(s *State) { s.Queue[1].Message = lock(refund, "s", 0, "a") }},
		"asked and held":              {LockAsked, func(s *State) { s.Queue[1].Message = lock(order, "s", 0, "a") }},
		"free and asked":              {LockGrantable, func(s *State) { s.Lock, s.Queue = Lock{}, s.Queue[2:] }},
		"call of another section":     {SectionCall, func(s *State) { s.Lock.Section.ID = "t" }},
		"call without lock":           {SectionCall, func(s *State) { s.Lock = Lock{} }},
		"call behind the lock's end":  {SectionCall, func(s *State) { s.Lock.Until = 1 }},
		"call of another's section":   {SectionCall, func(s *State) { s.Lock.Section.Holder = refund }},
		"number reached from delayed": {EntryOrder, func(s *State) { s.NextSeq = s.Delayed[1].Seq }},
	} {
		s := base()
		tc.harm(s)
		if got := s.Invariants(); !slices.ContainsFunc(got, func(v Violation) bool { return v.Name == tc.want && v.Of == s.ID.party() }) {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
}

func TestHolderInvariants(t *testing.T) {
	for name, tc := range map[string]struct {
		want  string
		phase Phase
		harm  func(h *Holder)
	}{
		"client":                 {HolderForm, Outside, func(h *Holder) { h.Self = user }},
		"unborn":                 {HolderForm, Outside, func(h *Holder) { h.Self.Incarnation = 0 }},
		"no phase":               {HolderForm, Outside, func(h *Holder) { h.Phase = 0 }},
		"phase 5":                {HolderForm, Outside, func(h *Holder) { h.Phase = 5 }},
		"inside without set":     {HolderForm, Inside, func(h *Holder) { h.Set = nil }},
		"acquiring no section":   {HolderForm, Acquiring, func(h *Holder) { h.Section = "" }},
		"set out of order":       {HolderForm, Acquiring, func(h *Holder) { slices.Reverse(h.Set) }},
		"outside with section":   {HolderForm, Outside, func(h *Holder) { h.Section = "s" }},
		"ended with set":         {HolderForm, Ended, func(h *Holder) { h.Set = []ID{"a"} }},
		"call outside":           {HolderPending, Outside, func(h *Holder) { h.Pending = []Pending{{"b", "1"}} }},
		"call of an unlocked":    {HolderPending, Inside, func(h *Holder) { h.Pending[0].Entity = "c" }},
		"call without request":   {HolderPending, Inside, func(h *Holder) { h.Pending[0].Request = "" }},
		"two calls of an entity": {HolderPending, Inside, func(h *Holder) { h.Pending = append(h.Pending, h.Pending[0]) }},
	} {
		h := inPhase(t, tc.phase)
		tc.harm(h)
		if got := h.Invariants(); !slices.ContainsFunc(got, func(v Violation) bool { return v.Name == tc.want && v.Of == h.Self }) {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
}
