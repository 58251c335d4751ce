package entity

import "testing"

// An error names the rule first, and then all that is concerned.
func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&Error{Code: Forbidden, Op: "call", Entity: "@account@1", Party: order, Section: "order:4", Request: "order:5", Rule: RuleCallLocked, Detail: "why"},
			`entity: call_locked_only: call "@account@1" by execution "order"/3 in section "order:4" as request "order:5": forbidden: why`},
		{&Error{Code: Conflict, Op: "commit", Entity: "a", Rule: RuleVersion, Detail: "why"}, `entity: version: commit "a": conflict: why`},
		{&Error{Code: Invalid, Op: "enter", Party: user, Rule: RuleID, Detail: "why"}, `entity: id_not_empty: enter by client "user": invalid: why`},
		{&Error{Op: "x", Rule: "y", Detail: "z"}, "entity: y: x: unknown: z"},
		{&CorruptError{Package: "entity", What: "state", Offset: 4, Detail: "why"}, "entity: corrupt state at byte 4: why"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	if got := (Violation{StateForm, ID("a").party(), "why"}).String(); got != `state_form: entity "a": why` {
		t.Error(got)
	}
}
