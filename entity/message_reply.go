package entity

import "perdure/internal/canonical"

// Reply is the answer to a [Call] (durable functions semantics, section 4.4.6: Ent-EndCall). Each call
// that was delivered gets exactly one.
type Reply struct {
	// Entity is who answers.
	Entity ID
	// Caller is the sender of the call.
	Caller Party
	// Request is the call's.
	Request string
	// Failed reports that the operation failed; Output then describes the failure.
	Failed bool
	Output []byte
}

// Kind returns KindReply.
func (m Reply) Kind() Kind { return KindReply }

// From returns the entity.
func (m Reply) From() Party { return m.Entity.party() }

// To returns the caller.
func (m Reply) To() Party { return m.Caller }

func (m Reply) subject() Error {
	return Error{Entity: m.Entity, Party: m.Caller, Request: m.Request}
}

func (m Reply) fault() (rule, detail string) {
	if rule, detail := m.Caller.fault(); rule != "" {
		return rule, detail
	}
	if m.Entity == "" || m.Request == "" {
		return RuleID, "a reply names an entity and a request"
	}
	return "", ""
}

func (m Reply) encode(b []byte) []byte {
	b = canonical.AppendBytes(b, m.Entity)
	b = appendParty(b, m.Caller)
	b = canonical.AppendBytes(b, m.Request)
	b = canonical.AppendBool(b, m.Failed)
	return canonical.AppendBytes(b, m.Output)
}

func decodeReply(r *reader) Message {
	return Reply{Entity: ID(r.Text()), Caller: r.party(), Request: r.Text(), Failed: r.Bool(), Output: r.Bytes()}
}
