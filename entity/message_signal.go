package entity

import (
	"encoding/binary"
	"slices"

	"perdure/internal/canonical"
)

// Signal asks an entity to run an operation and wants no answer (durable functions semantics, section
// 4.4: a request of three components).
type Signal struct {
	// Origin is who sent it; any party may.
	Origin Party
	Entity ID
	// Request identifies the signal among all requests of its origin.
	Request string
	// Operation is the name of what is to be run.
	Operation string
	Input     []byte
	// DueAt, if not 0, schedules the signal: it waits outside the queue until that time (Unix
	// milliseconds), and the order of its origin does not bind it (section 3.3.4).
	DueAt int64
}

// Kind returns KindSignal.
func (m Signal) Kind() Kind { return KindSignal }

// From returns the origin.
func (m Signal) From() Party { return m.Origin }

// To returns the entity.
func (m Signal) To() Party { return m.Entity.party() }

func (m Signal) request() string { return m.Request }

func (m Signal) subject() Error {
	return Error{Entity: m.Entity, Party: m.Origin, Request: m.Request}
}

func (m Signal) fault() (rule, detail string) {
	if rule, detail := m.Origin.fault(); rule != "" {
		return rule, detail
	}
	switch {
	case m.Entity == "", m.Request == "", m.Operation == "":
		return RuleID, "a signal names an entity, a request and an operation"
	case m.DueAt < 0:
		return RuleTime, "it is scheduled before the epoch"
	}
	return "", ""
}

func (m Signal) refusal(s *State) (Code, string, string) { return s.refuseTwin(m) }

func (m Signal) arrive(s *State, now int64) []Message {
	if m.DueAt == 0 {
		s.enqueue(m)
		return nil
	}
	e := Entry{Seq: s.NextSeq, Message: m}
	s.NextSeq++
	// Its number is the greatest, so it goes behind all signals that are scheduled no later.
	i, _ := slices.BinarySearchFunc(s.Delayed, e, compareDelayed)
	if i == len(s.Delayed) {
		s.Delayed = append(s.Delayed, e)
	} else {
		s.Delayed = slices.Concat(s.Delayed[:i], []Entry{e}, s.Delayed[i:])
	}
	s.joined(m)
	s.Tick(now)
	return nil
}

func (m Signal) work() Operation {
	return Operation{Origin: m.Origin, Request: m.Request, Name: m.Operation, Input: m.Input}
}

func (m Signal) encode(b []byte) []byte {
	b = appendParty(b, m.Origin)
	b = canonical.AppendBytes(b, m.Entity)
	b = canonical.AppendBytes(b, m.Request)
	b = canonical.AppendBytes(b, m.Operation)
	b = canonical.AppendBytes(b, m.Input)
	return binary.AppendVarint(b, m.DueAt)
}

func decodeSignal(r *reader) Message {
	return Signal{Origin: r.party(), Entity: ID(r.Text()), Request: r.Text(), Operation: r.Text(), Input: r.Bytes(), DueAt: r.Varint()}
}
