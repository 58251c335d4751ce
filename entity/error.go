package entity

import (
	"fmt"
	"strings"
)

// Code says what kind of refusal an Error is.
type Code uint8

// The kinds of refusals.
const (
	// Invalid: malformed or sent to the wrong place; it could not succeed on any state.
	Invalid Code = 1
	// Conflict: the state is another than the request was made for.
	Conflict Code = 2
	// Forbidden: the programming model does not allow it; the program is at fault.
	Forbidden Code = 3
)

// String returns the name of c.
func (c Code) String() string {
	switch c {
	case Invalid:
		return "invalid"
	case Conflict:
		return "conflict"
	case Forbidden:
		return "forbidden"
	}
	return "unknown"
}

// The rules an [Error] may name. They are stable names: callers may compare them.
const (
	RuleID          = "id_not_empty"          // every id, request and operation name is non-empty
	RuleParty       = "party_form"            // a party has a known kind, and an incarnation if it is an execution
	RuleHolder      = "holder_is_execution"   // only an execution takes locks
	RuleTime        = "time_not_negative"     // a scheduled time is not before the epoch
	RuleAddress     = "addressed_here"        // a message reaches the one it names
	RuleLockSet     = "lock_set_sorted"       // a lock set is non-empty, ascending, each entity once
	RulePosition    = "lock_position_in_set"  // a forwarded request's position lies in its set
	RuleRequestOnce = "request_once"          // no two waiting operations have the same origin and request
	RuleNoCallsHere = "no_entity_calls"       // entities do not call (section 3.3.3)
	RuleUnderLock   = "section_call_has_lock" // a section's call meets an entity that the section has locked (CS-Call-Ent)

	RuleIncarnation = "incarnation"           // a commit means the present record (S-Commit)
	RuleVersion     = "version"               // a commit was computed on the present value (S-Commit)
	RuleBatch       = "commit_matches_batch"  // a commit's results are those of the first operations (S-Commit)
	RuleLane        = "lane_waits_for_lock"   // a scheduled signal does not run under a lock, nor if its batch is older
	RuleResults     = "commit_has_results"    // a commit has run at least one operation
	RuleAbsent      = "absent_value_is_empty" // a value that does not exist has no bytes

	RuleEnded      = "holder_ended"               // an execution that has ended does nothing more
	RuleNesting    = "no_nested_section"          // no section inside a section (section 3.4.1)
	RuleAwaitLock  = "await_lock"                 // nothing happens between asking for the locks and having them
	RuleCallLocked = "call_locked_only"           // inside, only locked entities are called (figure 9)
	RuleOneCall    = "one_call_per_locked_entity" // inside, a called entity is idle (CS-Call-Ent)
	RuleSignalFree = "signal_unlocked_only"       // inside, only entities outside the lock set are signalled (CS-Signal-Ent)
	RuleNoChild    = "no_child_in_section"        // no sub-orchestration inside a section (section 3.4.1)
	RuleNoRestart  = "no_restart_in_section"      // no continue-as-new inside a section (figure 9)
	RuleInside     = "inside_section"             // only a section that was entered is left
	RuleExitIdle   = "exit_awaits_calls"          // a section is left when its entities are idle (CS-Exit)
)

// Error is a refusal. The operation that returned it has changed nothing. Fields that do not concern it
// are empty.
type Error struct {
	Code Code
	// Op is what was refused, in lower case: "deliver", "commit", "enter".
	Op string
	// Entity is the entity concerned.
	Entity ID
	// Party is the caller: the origin of an operation, the holder of a section.
	Party Party
	// Section is the id of the critical section concerned.
	Section string
	// Request is the id of the operation concerned.
	Request string
	// Rule is one of the Rule constants.
	Rule string
	// Detail says in words what was found.
	Detail string
}

// Error returns the refusal in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "entity: %s: %s", e.Rule, e.Op)
	if e.Entity != "" {
		fmt.Fprintf(&b, " %q", string(e.Entity))
	}
	if e.Party != (Party{}) {
		fmt.Fprintf(&b, " by %v", e.Party)
	}
	if e.Section != "" {
		fmt.Fprintf(&b, " in section %q", e.Section)
	}
	if e.Request != "" {
		fmt.Fprintf(&b, " as request %q", e.Request)
	}
	fmt.Fprintf(&b, ": %s: %s", e.Code, e.Detail)
	return b.String()
}
