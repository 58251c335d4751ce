package entity

import "fmt"

// The invariants of an entity's state hold after every operation of this package.
const (
	// StateForm: id, incarnation and next number are there, and a value that does not exist has no bytes.
	StateForm = "state_form"
	// EntryForm: what waits keeps the rules of its kind and is addressed to this entity.
	EntryForm = "entry_form"
	// EntryOrder: the queue ascends by number, the delayed signals by scheduled time and number. Each number
	// is unique and below the next number.
	EntryOrder = "entry_order"
	// DelayedSignal: what is delayed or in the lane is a scheduled signal, and nothing else.
	DelayedSignal = "delayed_signal"
	// LaneBound: the lane is within its bound.
	LaneBound = "lane_bound"
	// RequestOnce: no two waiting operations have the same origin and request.
	RequestOnce = "request_once"
	// LockForm: a lock belongs to a section of an execution, and is given back at a number that exists.
	LockForm = "lock_form"
	// LockAsked: a section has one lock request here at most, and none while it holds the lock.
	LockAsked = "lock_asked"
	// LockEnds: a released lock remains only while operations of its holder still wait.
	LockEnds = "lock_ends"
	// LockGrantable: no lock request is at the front of a free entity's queue.
	LockGrantable = "lock_grantable"
	// SectionCall: a call of a section waits only where the section holds the lock, and is served before
	// the lock ends.
	SectionCall = "section_call"
)

// The invariants of a holder.
const (
	// HolderForm: an execution in a known phase; it has a section and a lock set if and only if it is
	// acquiring or inside.
	HolderForm = "holder_form"
	// HolderPending: calls of a section go to locked entities, one to each, and exist only inside.
	HolderPending = "holder_pending"
)

// Violation is one breach of an invariant: a defect, never something to recover from at run time.
type Violation struct {
	// Name is one of the invariants above.
	Name string
	// Of is the entity or the execution.
	Of Party
	// Detail says in words what was found.
	Detail string
}

// String returns the violation in one line.
func (v Violation) String() string { return fmt.Sprintf("%s: %v: %s", v.Name, v.Of, v.Detail) }

// Invariants returns every violation in s.
func (s *State) Invariants() []Violation {
	var out []Violation
	report := func(name, detail string) { out = append(out, Violation{name, s.ID.party(), detail}) }
	switch {
	case s.ID == "", s.Incarnation == 0, s.NextSeq == 0:
		report(StateForm, "id, incarnation or next number is missing")
	case !s.Exists && len(s.Value) != 0:
		report(StateForm, "there is no value but it has bytes")
	}
	s.entryInvariants(report)
	s.lockInvariants(report)
	return out
}

func (s *State) entryInvariants(report func(name, detail string)) {
	type key struct {
		origin  Party
		request string
	}
	if len(s.Lane) > LaneLength {
		report(LaneBound, fmt.Sprintf("%d signals in the lane, at most %d", len(s.Lane), LaneLength))
	}
	requests := make(map[key]bool)
	numbers := make(map[uint64]bool)
	for _, list := range [...]struct {
		entries []Entry
		compare func(a, b Entry) int
		delayed bool
	}{{s.Queue, compareQueued, false}, {s.Lane, compareQueued, true}, {s.Delayed, compareDelayed, true}} {
		for i, e := range list.entries {
			at := fmt.Sprintf("entry %d", e.Seq)
			if i > 0 && list.compare(list.entries[i-1], e) >= 0 {
				report(EntryOrder, at+" comes after a greater one")
			}
			if numbers[e.Seq] || e.Seq == 0 || e.Seq >= s.NextSeq {
				report(EntryOrder, fmt.Sprintf("%s, the next is %d", at, s.NextSeq))
			}
			numbers[e.Seq] = true
			if list.delayed && e.dueAt() == 0 {
				report(DelayedSignal, at+" is not scheduled")
			}
			if e.Message == nil || !waits(e.Message) {
				report(EntryForm, at+" is of a kind that does not wait")
				continue
			}
			if rule, detail := e.Message.fault(); rule != "" {
				report(EntryForm, at+": "+rule+": "+detail)
			} else if e.Message.To() != s.ID.party() {
				report(EntryForm, at+" is for "+e.Message.To().String())
			}
			if o, ok := e.Message.(operation); ok {
				k := key{o.From(), o.request()}
				if requests[k] {
					report(RequestOnce, fmt.Sprintf("%s: request %q of %v", at, k.request, k.origin))
				}
				requests[k] = true
			}
		}
	}
}

func (s *State) lockInvariants(report func(name, detail string)) {
	if s.Lock.Held() {
		if rule, detail := s.Lock.Section.fault(); rule != "" {
			report(LockForm, rule+": "+detail)
		}
	}
	if s.Lock.Until != 0 && (!s.Lock.Held() || s.Lock.Until > s.NextSeq) {
		report(LockForm, fmt.Sprintf("%v until %d, the next is %d", s.Lock, s.Lock.Until, s.NextSeq))
	}
	if s.Lock.Held() && s.Lock.Until != 0 && !s.Runnable() {
		report(LockEnds, s.Lock.String()+" and nothing is left to be done under the lock")
	}
	asked := make(map[Section]bool)
	for i, e := range s.Queue {
		switch m := e.Message.(type) {
		case LockRequest:
			if asked[m.Section] || m.Section == s.Lock.Section {
				report(LockAsked, fmt.Sprintf("entry %d: section %s of %v asks again", e.Seq, m.Section.ID, m.Section.Holder))
			}
			asked[m.Section] = true
			if i == 0 && !s.Lock.Held() {
				report(LockGrantable, fmt.Sprintf("entry %d is in front and the entity is free", e.Seq))
			}
		case Call:
			if m.Section != "" && (s.Lock.Section != Section{m.Origin, m.Section} || !s.Lock.admits(e.Seq, m)) {
				report(SectionCall, fmt.Sprintf("entry %d of section %s of %v, the entity is %v", e.Seq, m.Section, m.Origin, s.Lock))
			}
		}
	}
}

// Invariants returns every violation in h.
func (h *Holder) Invariants() []Violation {
	var out []Violation
	report := func(name, detail string) { out = append(out, Violation{name, h.Self, detail}) }
	if rule, detail := h.Self.fault(); rule != "" || h.Self.Kind != PartyExecution || !h.Phase.Valid() {
		report(HolderForm, "no execution in a known phase "+rule+detail)
	}
	if h.Phase == Acquiring || h.Phase == Inside {
		if rule, detail := (LockGranted{h.section(), h.Set}).fault(); rule != "" {
			report(HolderForm, rule+": "+detail)
		}
	} else if h.Section != "" || len(h.Set) != 0 {
		report(HolderForm, h.Phase.String()+" with a section")
	}
	for i, p := range h.Pending {
		if !h.locks(p.Entity) || p.Request == "" || (i > 0 && h.Pending[i-1].Entity >= p.Entity) {
			report(HolderPending, fmt.Sprintf("request %q to %q while %v", p.Request, string(p.Entity), h.Phase))
		}
	}
	return out
}
