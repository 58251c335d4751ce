package id

import "strconv"

// Error is a text that is not an identifier. Rule names the broken rule for programs, Error() is the sentence for
// people.
type Error struct {
	// Rule is the broken rule, one of the Rule constants.
	Rule string
	// ID is the refused text, whole; Error quotes only its beginning.
	ID string
	// Detail is the predicate of the sentence: what the text has, and the bound.
	Detail string
}

// The rules of identifiers. They are stable names: clients may compare them.
const (
	RuleEmpty   = "id_not_empty"
	RuleTooLong = "id_at_most_1024_bytes"
	RuleNUL     = "id_without_nul"
	RuleColon   = "root_without_colon"
	RulePath    = "path_is_canonical"
)

// shownBytes bounds what Error quotes of a refused text, so that a hostile id cannot flood a log.
const shownBytes = 80

// Error quotes the text and says what is wrong with it.
func (e *Error) Error() string {
	shown := e.ID
	suffix := ""
	if len(shown) > shownBytes {
		shown, suffix = shown[:shownBytes], "…"
	}
	return "id " + strconv.Quote(shown) + suffix + " " + e.Detail
}
