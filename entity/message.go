package entity

import "slices"

// Kind is the kind of a message. The numbers are part of the stored encoding and never change.
type Kind uint8

// The kinds of messages.
const (
	KindSignal      Kind = 1
	KindCall        Kind = 2
	KindReply       Kind = 3
	KindLockRequest Kind = 4
	KindLockGranted Kind = 5
	KindUnlock      Kind = 6
	KindWithdraw    Kind = 7
)

// kinds is the one table of messages: their names, and how their fields are read.
var kinds = [...]struct {
	name   string
	decode func(*reader) Message
}{
	KindSignal:      {"signal", decodeSignal},
	KindCall:        {"call", decodeCall},
	KindReply:       {"reply", decodeReply},
	KindLockRequest: {"lock request", decodeLockRequest},
	KindLockGranted: {"lock granted", decodeLockGranted},
	KindUnlock:      {"unlock", decodeUnlock},
	KindWithdraw:    {"withdraw", decodeWithdraw},
}

// Valid reports whether k is one of the seven kinds.
func (k Kind) Valid() bool { return k >= KindSignal && int(k) < len(kinds) }

// String returns the name of k.
func (k Kind) String() string {
	if !k.Valid() {
		return "invalid"
	}
	return kinds[k].name
}

// Message is what the parties send each other: [Signal], [Call], [Reply], [LockRequest], [LockGranted],
// [Unlock] or [Withdraw], all plain values. The caller delivers messages of one pair (From, To) once each
// and in the order in which they were returned; those of different pairs in any order. Messages to an
// entity go to [State.Deliver]; a LockGranted to [Holder.Granted]; a Reply to [Holder.Replied] if its
// caller is an execution.
type Message interface {
	Kind() Kind
	// From is the sender, in whose order the message is delivered.
	From() Party
	// To is who it is for.
	To() Party

	// fault returns the rule that the message breaks on any state, and how; or "".
	fault() (rule, detail string)
	// subject returns an error that names what the message is about.
	subject() Error
	// encode appends the fields.
	encode(b []byte) []byte
}

// arrival is a message for an entity.
type arrival interface {
	Message
	// refusal returns the rule that keeps s from taking the message, and how; or "". It changes nothing.
	refusal(s *State) (code Code, rule, detail string)
	// arrive takes the message, which refusal has let pass.
	arrive(s *State, now int64) []Message
}

// operation is an arrival that a worker runs.
type operation interface {
	arrival
	// request is the operation's id among those of its origin.
	request() string
	// work is the operation as the worker sees it.
	work() Operation
}

// place returns the i-th entity of a lock set as a party, the zero Party if there is none.
func place(set []ID, i int) Party {
	if i < 0 || i >= len(set) {
		return Party{}
	}
	return set[i].party()
}

// lockSetFault returns the rule that a lock set breaks, and how; or "".
func lockSetFault(set []ID) (rule, detail string) {
	if len(set) == 0 {
		return RuleLockSet, "it is empty"
	}
	if set[0] == "" {
		return RuleID, "the lock set names an entity without id"
	}
	for i := range set[1:] {
		if set[i] >= set[i+1] {
			return RuleLockSet, "it is not in ascending order, each entity once"
		}
	}
	return "", ""
}

// LockSet returns the entities in the one order in which all sections lock, each once. The argument stays
// as it is.
func LockSet(entities []ID) []ID {
	set := slices.Clone(entities)
	slices.Sort(set)
	return slices.Compact(set)
}
