package entity

import "perdure/internal/canonical"

// Call asks an entity to run an operation and to answer with a [Reply] (durable functions semantics,
// section 4.4: a request of four components).
type Call struct {
	// Origin is who sent it and will be answered: an execution or a client, never an entity.
	Origin Party
	Entity ID
	// Request identifies the call among all requests of its origin; the reply carries it.
	Request string
	// Operation is the name of what is to be run.
	Operation string
	Input     []byte
	// Section is the critical section that the origin was in when it called, "" if in none. The entity
	// is locked by it.
	Section string
}

// Kind returns KindCall.
func (m Call) Kind() Kind { return KindCall }

// From returns the origin.
func (m Call) From() Party { return m.Origin }

// To returns the entity.
func (m Call) To() Party { return m.Entity.party() }

func (m Call) request() string { return m.Request }

func (m Call) subject() Error {
	return Error{Entity: m.Entity, Party: m.Origin, Section: m.Section, Request: m.Request}
}

func (m Call) fault() (rule, detail string) {
	if rule, detail := m.Origin.fault(); rule != "" {
		return rule, detail
	}
	switch {
	case m.Origin.Kind == PartyEntity:
		return RuleNoCallsHere, "an entity signals other entities, it does not call them"
	case m.Section != "" && m.Origin.Kind != PartyExecution:
		return RuleHolder, "a call inside a section comes from " + m.Origin.String()
	case m.Entity == "", m.Request == "", m.Operation == "":
		return RuleID, "a call names an entity, a request and an operation"
	}
	return "", ""
}

func (m Call) refusal(s *State) (Code, string, string) {
	if m.Section != "" && (s.Lock.Section != Section{m.Origin, m.Section} || s.Lock.Until != 0) {
		return Conflict, RuleUnderLock, "the entity is " + s.Lock.String()
	}
	return s.refuseTwin(m)
}

func (m Call) arrive(s *State, _ int64) []Message {
	s.enqueue(m)
	return nil
}

func (m Call) work() Operation {
	return Operation{Origin: m.Origin, Request: m.Request, Name: m.Operation, Input: m.Input, Call: true}
}

// reply is the answer to the call.
func (m Call) reply(r Result) Reply {
	return Reply{Entity: m.Entity, Caller: m.Origin, Request: m.Request, Failed: r.Failed, Output: r.Output}
}

func (m Call) encode(b []byte) []byte {
	b = appendParty(b, m.Origin)
	b = canonical.AppendBytes(b, m.Entity)
	b = canonical.AppendBytes(b, m.Request)
	b = canonical.AppendBytes(b, m.Operation)
	b = canonical.AppendBytes(b, m.Input)
	return canonical.AppendBytes(b, m.Section)
}

func decodeCall(r *reader) Message {
	return Call{Origin: r.party(), Entity: ID(r.Text()), Request: r.Text(), Operation: r.Text(), Input: r.Bytes(), Section: r.Text()}
}
