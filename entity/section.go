package entity

import "slices"

// Enter begins a critical section on the given entities, in any order, repeated or not (section 4.6.1:
// CS-Enter). It returns the lock request to be sent; the execution then waits for [LockGranted]. The
// section's id is never used twice by this execution. There is no section inside another.
func (h *Holder) Enter(section string, entities []ID) (LockRequest, error) {
	m := LockRequest{Section: Section{Holder: h.Self, ID: section}, Set: LockSet(entities)}
	if rule, detail := m.fault(); rule != "" {
		return LockRequest{}, refuse("enter", m, Invalid, rule, detail)
	}
	switch h.Phase {
	case Ended:
		return LockRequest{}, refuse("enter", m, Conflict, RuleEnded, "the execution has ended")
	case Acquiring, Inside:
		return LockRequest{}, refuse("enter", m, Forbidden, RuleNesting, "it is "+h.Phase.String()+" section "+h.Section)
	}
	h.Phase, h.Section, h.Set = Acquiring, section, m.Set
	return m, nil
}

// Granted handles the message that all locks are held. It reports whether the execution is now inside. The
// caller sends the returned messages: they release locks that the execution does not await, since it has
// ended or the message is a late repetition. A message about the section that the execution is inside changes
// nothing.
//
// The error, an [*Error], says that the message is malformed, addressed to another execution, or that its
// lock set is not the section's.
func (h *Holder) Granted(g LockGranted) (send []Message, entered bool, err error) {
	if rule, detail := g.fault(); rule != "" {
		return nil, false, refuse("granted", g, Invalid, rule, detail)
	}
	if g.Section.Holder != h.Self {
		return nil, false, refuse("granted", g, Invalid, RuleAddress, "it reached "+h.Self.String())
	}
	mine := (h.Phase == Acquiring || h.Phase == Inside) && g.Section.ID == h.Section
	switch {
	case !mine:
		return Unclaimed(g), false, nil
	case !slices.Equal(g.Set, h.Set):
		return nil, false, refuse("granted", g, Conflict, RuleLockSet, "it is not the set that was asked for")
	case h.Phase == Inside:
		return nil, false, nil
	}
	h.Phase = Inside
	return nil, true, nil
}

// Exit leaves the section (section 4.6.1: CS-Exit) and returns the messages to be sent, one unlock for each
// entity. It is refused while a call of the section has no reply: the source's section ends when all its
// entities are idle.
func (h *Holder) Exit() ([]Message, error) {
	if err := h.awake("exit", "", ""); err != nil {
		return nil, err
	}
	if h.Phase != Inside {
		return nil, h.refuse("exit", "", "", Forbidden, RuleInside, "it is in no section")
	}
	if len(h.Pending) > 0 {
		p := h.Pending[0]
		return nil, h.refuse("exit", p.Entity, p.Request, Forbidden, RuleExitIdle, "a call has not been answered")
	}
	out := unlockAll(h.section(), h.Set)
	h.leave(Outside)
	return out, nil
}

// End records that the execution has ended, in any way and any phase, and returns the messages to send. It
// unlocks an entered section: calls of it that are under way run before the entities serve others, and their
// replies are dropped. It withdraws a lock request that is under way. A second End changes nothing.
func (h *Holder) End() []Message {
	var out []Message
	switch h.Phase {
	case Acquiring:
		out = []Message{Withdraw{Section: h.section(), Set: h.Set}}
	case Inside:
		out = unlockAll(h.section(), h.Set)
	}
	h.leave(Ended)
	return out
}

func (h *Holder) section() Section { return Section{Holder: h.Self, ID: h.Section} }

func (h *Holder) leave(to Phase) {
	h.Phase, h.Section, h.Set, h.Pending = to, "", nil, nil
}
