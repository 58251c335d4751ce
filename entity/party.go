package entity

import "strconv"

// ID names an entity: the source's pair of name and key (section 4.4) as one text, opaque here. Locks are
// taken in the order of its bytes.
type ID string

// party is the entity as a sender or receiver.
func (id ID) party() Party { return Party{Kind: PartyEntity, ID: string(id)} }

// PartyKind says what a Party is. The numbers are part of the stored encoding and never change.
type PartyKind uint8

// The kinds of parties.
const (
	// PartyExecution is a durable function: the source's orchestration. It may do all that [Holder]
	// allows.
	PartyExecution PartyKind = 1
	// PartyEntity is an entity. It may signal.
	PartyEntity PartyKind = 2
	// PartyClient is an external client. It may signal and call, and takes no locks.
	PartyClient PartyKind = 3
)

// Valid reports whether k is one of the three kinds.
func (k PartyKind) Valid() bool { return k >= PartyExecution && k <= PartyClient }

// String returns the name of k.
func (k PartyKind) String() string {
	switch k {
	case PartyExecution:
		return "execution"
	case PartyEntity:
		return "entity"
	case PartyClient:
		return "client"
	}
	return "invalid"
}

// Party identifies a sender or receiver of messages: the origin whose order the queues keep, or the target of
// an answer.
type Party struct {
	Kind PartyKind
	// ID is the execution's id, the entity's, or the caller's name for the client.
	ID string
	// Incarnation identifies one use of the id. For an execution it is at least 1, so a message for a former
	// incarnation does not reach a later one. For an entity, which has no beginning and no end, it is 0. A
	// client chooses its own.
	Incarnation uint64
}

// String shows p for people: execution "order-42"/7.
func (p Party) String() string {
	text := p.Kind.String() + " " + strconv.Quote(p.ID)
	if p.Incarnation != 0 {
		text += "/" + strconv.FormatUint(p.Incarnation, 10)
	}
	return text
}

// fault returns the rule that p breaks and how, or "".
func (p Party) fault() (rule, detail string) {
	switch {
	case !p.Kind.Valid():
		return RuleParty, "unknown kind of party"
	case p.ID == "":
		return RuleID, "a party has no id"
	case p.Kind == PartyExecution && p.Incarnation == 0:
		return RuleParty, "an execution without incarnation"
	case p.Kind == PartyEntity && p.Incarnation != 0:
		return RuleParty, "an entity has no incarnation to its sender"
	}
	return "", ""
}

// Section identifies one critical section of one execution: the source's j. The holder is part of it, so
// two executions may number their sections alike.
type Section struct {
	Holder Party
	// ID is never used by the holder for a second section, for example the id of the operation that
	// enters.
	ID string
}

// fault returns the rule that s breaks and how, or "".
func (s Section) fault() (rule, detail string) {
	if rule, detail := s.Holder.fault(); rule != "" {
		return rule, detail
	}
	switch {
	case s.Holder.Kind != PartyExecution:
		return RuleHolder, "the holder is " + s.Holder.String()
	case s.ID == "":
		return RuleID, "the section has no id"
	}
	return "", ""
}
