package recovery

import (
	"fmt"
)

// Code says why an operation was refused.
type Code uint8

// The reasons for a refusal.
const (
	// NotFound: the promise or task of the request does not exist.
	NotFound Code = 1
	// Conflict: it exists in another state, version or incarnation than the request needs.
	Conflict Code = 2
	// Invalid: the request could not succeed on any state.
	Invalid Code = 3
	// Precondition: an object that the request refers to, other than its own, is missing or unfit.
	Precondition Code = 4
)

// String returns the name of c.
func (c Code) String() string {
	switch c {
	case NotFound:
		return "not found"
	case Conflict:
		return "conflict"
	case Invalid:
		return "invalid"
	case Precondition:
		return "precondition"
	}
	return "unknown"
}

// The rules an [Error] may name.
const (
	RuleID          = "id_not_empty"             // every id of a request is non-empty
	RuleBorn        = "incarnation_from_one"     // a new object has an incarnation of at least 1
	RuleTimes       = "times_not_negative"       // deadlines and delays are not before the epoch
	RuleTags        = "tag_keys_unique"          // no two tags have the same key
	RuleDelay       = "delay_before_deadline"    // a delay needs a target and ends before the deadline
	RuleTarget      = "target_required"          // only a promise with a target has a task
	RuleLease       = "lease_has_holder_and_ttl" // a lease has a process and at least 1 ms
	RuleSettleTo    = "settle_state"             // a request settles to resolved, rejected or rejected_canceled
	RuleSelfAwait   = "no_self_await"            // no promise awaits itself
	RuleAwaitsSome  = "suspend_awaits_something" // a task suspends on at least one promise
	RuleAddress     = "listener_address"         // a listener has an address
	RulePromise     = "promise_exists"           // the promise of the request exists
	RuleTask        = "task_exists"              // the task of the request exists
	RuleIncarnation = "incarnation"              // the request names the present incarnation of the id
	RuleVersion     = "version"                  // the request presents the task's present version
	RuleState       = "task_state"               // the task is in the state the operation starts from
	RuleAwaited     = "awaited_exists"           // what is awaited exists
	RuleExternal    = "awaited_external"         // what is awaited has a target, is a timer, or is external
	RuleAwaiter     = "awaiter_has_target"       // what awaits exists and has a target
)

// Error is a refusal. The operation that returned it has changed nothing.
type Error struct {
	Code Code
	// Op is the operation, in lower case: "acquire".
	Op string
	// ID is the id the broken rule is about.
	ID string
	// Rule is one of the Rule constants.
	Rule string
	// Detail says in words what was found and what was needed.
	Detail string
	// Have and Want are the stored and the requested version (RuleVersion) or incarnation
	// (RuleIncarnation); both 0 for every other rule.
	Have, Want uint64
}

// Error reads "cannot <op> <id>: <detail>". Rule and code are fields, for programs.
func (e *Error) Error() string {
	detail := e.Detail
	if detail == "" {
		detail = e.Code.String()
	}
	return fmt.Sprintf("cannot %s %q: %s", e.Op, e.ID, detail)
}

func invalid(op, id, rule, detail string) error {
	return &Error{Code: Invalid, Op: op, ID: id, Rule: rule, Detail: detail}
}

func precondition(op, id, rule, detail string) error {
	return &Error{Code: Precondition, Op: op, ID: id, Rule: rule, Detail: detail}
}

func notFound(op, id, rule string) error {
	return &Error{Code: NotFound, Op: op, ID: id, Rule: rule}
}

func wrongState(op string, t Task, want TaskState) error {
	return &Error{Code: Conflict, Op: op, ID: t.ID, Rule: RuleState,
		Detail: fmt.Sprintf("task is %s, must be %s", t.State, want)}
}

func staleVersion(op, id string, have, want uint64) error {
	return &Error{Code: Conflict, Op: op, ID: id, Rule: RuleVersion, Have: have, Want: want,
		Detail: fmt.Sprintf("task has version %d, request names %d", have, want)}
}

func staleIncarnation(op, id string, have, want uint64) error {
	return &Error{Code: Conflict, Op: op, ID: id, Rule: RuleIncarnation, Have: have, Want: want,
		Detail: fmt.Sprintf("stored incarnation is %d, request names %d", have, want)}
}
