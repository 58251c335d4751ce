package id

import "strconv"

// Error says that a text is not an identifier, and which rule it breaks, so that a caller can answer with
// the rule's name rather than with prose.
type Error struct {
	// Rule is the broken rule, one of the Rule constants.
	Rule string
	// ID is the refused text, whole; Error shows its beginning only.
	ID string
	// Detail says where the text breaks the rule.
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

// Error names the rule, the text and what is wrong with it.
func (e *Error) Error() string {
	shown := e.ID
	suffix := ""
	if len(shown) > shownBytes {
		shown, suffix = shown[:shownBytes], "…"
	}
	return "id: " + e.Rule + ": " + strconv.Quote(shown) + suffix + ": " + e.Detail
}
