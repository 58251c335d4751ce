package journal

import (
	"strconv"

	"perdure/id"
)

// Violation is the refusal of one event: which rule it breaks, in which execution, at which entry. It is
// the error of State.Append and State.Check and the finding of Check.
type Violation struct {
	// Rule is one of the Rule constants.
	Rule string
	// Execution is the execution whose journal was checked.
	Execution id.PromiseID
	// Seq is the sequence number of the refused event. When the sequence number itself is wrong, it is
	// the one that the appender named.
	Seq uint64
	// Kind is the refused event's kind; 0 for no event at all.
	Kind Kind
	// Promise is the promise concerned, or "" if the rule is not about one.
	Promise id.PromiseID
	// Detail says what is wrong, naming the ids concerned.
	Detail string
}

// Error reads "execution <id>, event <n>: <detail> (<rule>)".
func (v *Violation) Error() string {
	return "execution " + strconv.Quote(string(v.Execution)) + ", event " + strconv.FormatUint(v.Seq, 10) + ": " + v.Detail + " (" + v.Rule + ")"
}

// broken builds the part of a Violation that a guard knows; State.check adds the position.
func broken(rule string, promise id.PromiseID, detail string) *Violation {
	return &Violation{Rule: rule, Promise: promise, Detail: detail}
}

func num[T ~uint32 | ~uint64 | ~int](n T) string { return strconv.FormatUint(uint64(n), 10) }

// quoted shows a user's text in a Detail, cut so that it cannot flood a log.
func quoted(s string) string {
	if len(s) > 80 {
		return strconv.Quote(s[:80]) + "…"
	}
	return strconv.Quote(s)
}
