package entity

import (
	"slices"
	"strings"
)

// Phase is an execution's state with regard to critical sections. The numbers are part of the stored encoding
// and never change.
type Phase uint8

// The phases of a holder.
const (
	// Outside: in no section.
	Outside Phase = 1
	// Acquiring: it has asked for locks and waits for [LockGranted].
	Acquiring Phase = 2
	// Inside: its section is entered; every entity of its set is locked by it.
	Inside Phase = 3
	// Ended: it does nothing more. Final.
	Ended Phase = 4
)

// Valid reports whether p is one of the four phases.
func (p Phase) Valid() bool { return p >= Outside && p <= Ended }

// String returns the name of p.
func (p Phase) String() string {
	switch p {
	case Outside:
		return "outside"
	case Acquiring:
		return "acquiring"
	case Inside:
		return "inside"
	case Ended:
		return "ended"
	}
	return "invalid"
}

// Holder is an execution as entities know it: the messages that it may send, and the locks that it must
// release. The caller stores it with the execution. Its methods check first and change it in place, or return
// an [*Error] and change nothing; none is safe for concurrent use. The fields are for reading and storing.
type Holder struct {
	// Self is the execution.
	Self  Party
	Phase Phase
	// Section and Set are the section's id and its entities, ascending, while Acquiring or Inside.
	Section string
	Set     []ID
	// Pending are the section's calls without reply, by entity, at most one each.
	Pending []Pending
}

// Pending is a call of a section that has not been answered.
type Pending struct {
	Entity  ID
	Request string
}

// NewHolder returns an execution that is in no section. The incarnation is at least 1.
func NewHolder(execution string, incarnation uint64) (*Holder, error) {
	h := &Holder{Self: Party{Kind: PartyExecution, ID: execution, Incarnation: incarnation}, Phase: Outside}
	if rule, detail := h.Self.fault(); rule != "" {
		return nil, &Error{Code: Invalid, Op: "new holder", Party: h.Self, Rule: rule, Detail: detail}
	}
	return h, nil
}

// Clone returns a copy that shares nothing modifiable.
func (h *Holder) Clone() *Holder {
	c := *h
	c.Set = slices.Clone(h.Set)
	c.Pending = slices.Clone(h.Pending)
	return &c
}

func (h *Holder) refuse(op string, entity ID, request string, code Code, rule, detail string) error {
	return &Error{Code: code, Op: op, Entity: entity, Party: h.Self, Section: h.Section, Request: request, Rule: rule, Detail: detail}
}

// awake refuses the operations of an execution that has ended or that waits for locks. In the source,
// acquiring is one expression without a step between request and grant (section 4.6.1).
func (h *Holder) awake(op string, entity ID, request string) error {
	switch h.Phase {
	case Ended:
		return h.refuse(op, entity, request, Conflict, RuleEnded, "the execution has ended")
	case Acquiring:
		return h.refuse(op, entity, request, Forbidden, RuleAwaitLock, "it waits for the locks of its section")
	}
	return nil
}

func (h *Holder) locks(entity ID) bool {
	_, ok := slices.BinarySearch(h.Set, entity)
	return h.Phase == Inside && ok
}

func (h *Holder) pending(entity ID) (int, bool) {
	return slices.BinarySearchFunc(h.Pending, entity, func(p Pending, id ID) int {
		return strings.Compare(string(p.Entity), string(id))
	})
}

// Call returns the call to be sent (section 4.4.4: Orch-Call-Ent). Inside a section the entity must be
// locked by it, and have no other call of it under way (section 4.6.2: CS-Call-Ent). The request is never
// used twice by this execution.
func (h *Holder) Call(entity ID, request, operation string, input []byte) (Call, error) {
	m := Call{Origin: h.Self, Entity: entity, Request: request, Operation: operation, Input: input}
	if rule, detail := m.fault(); rule != "" {
		return Call{}, h.refuse("call", entity, request, Invalid, rule, detail)
	}
	if err := h.awake("call", entity, request); err != nil {
		return Call{}, err
	}
	if h.Phase != Inside {
		return m, nil
	}
	i, busy := h.pending(entity)
	switch {
	case !h.locks(entity):
		return Call{}, h.refuse("call", entity, request, Forbidden, RuleCallLocked, "the entity is not in the lock set")
	case busy:
		return Call{}, h.refuse("call", entity, request, Forbidden, RuleOneCall, "it has not answered the section's request "+h.Pending[i].Request)
	}
	m.Section = h.Section
	h.Pending = slices.Insert(h.Pending, i, Pending{Entity: entity, Request: request})
	return m, nil
}

// Signal returns the signal to be sent (section 4.4.4: Orch-Signal-Ent), scheduled if dueAt is not 0. Inside
// a section the entity must not be locked by it (section 4.6.2: CS-Signal-Ent). The request is never used
// twice by this execution.
func (h *Holder) Signal(entity ID, request, operation string, input []byte, dueAt int64) (Signal, error) {
	m := Signal{Origin: h.Self, Entity: entity, Request: request, Operation: operation, Input: input, DueAt: dueAt}
	if rule, detail := m.fault(); rule != "" {
		return Signal{}, h.refuse("signal", entity, request, Invalid, rule, detail)
	}
	if err := h.awake("signal", entity, request); err != nil {
		return Signal{}, err
	}
	if h.locks(entity) {
		return Signal{}, h.refuse("signal", entity, request, Forbidden, RuleSignalFree, "the entity is in the lock set")
	}
	return m, nil
}

// Replied takes a reply to this execution. It reports whether a call of the section was waiting for it, and
// changes nothing if not: the holder does not track calls outside a section. The error says that the reply is
// malformed or addressed to another execution.
func (h *Holder) Replied(r Reply) (bool, error) {
	if rule, detail := r.fault(); rule != "" {
		return false, refuse("reply", r, Invalid, rule, detail)
	}
	if r.Caller != h.Self {
		return false, refuse("reply", r, Invalid, RuleAddress, "it reached "+h.Self.String())
	}
	i, ok := h.pending(r.Entity)
	if !ok || h.Pending[i].Request != r.Request {
		return false, nil
	}
	h.Pending = slices.Delete(h.Pending, i, i+1)
	return true, nil
}

// MayStartChild returns nil if the execution may start a child execution now: not inside a section
// (section 3.4.1).
func (h *Holder) MayStartChild() error { return h.outside("start a child", RuleNoChild) }

// MayContinueAsNew returns nil if the execution may continue as new now: not inside a section (figure 9).
func (h *Holder) MayContinueAsNew() error { return h.outside("continue as new", RuleNoRestart) }

func (h *Holder) outside(op, rule string) error {
	if err := h.awake(op, "", ""); err != nil {
		return err
	}
	if h.Phase == Inside {
		return h.refuse(op, "", "", Forbidden, rule, "it is inside a critical section")
	}
	return nil
}
