package recovery

import "testing"

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{staleVersion("acquire", "order-42", 3, 2), `cannot acquire "order-42": task has version 3, request names 2`},
		{staleIncarnation("settle", "a", 9, 8), `cannot settle "a": stored incarnation is 9, request names 8`},
		{notFound("halt", "a", RuleTask), `cannot halt "a": not found`},
		{invalid("create", "", RuleID, ""), `cannot create "": invalid`},
		{precondition("suspend", "x", RuleAwaited, ""), `cannot suspend "x": precondition`},
		{&Error{Code: 99, Op: "o", ID: "a", Rule: "r"}, `cannot o "a": unknown`},
		{&CorruptError{Package: "recovery", What: "task", Offset: 3, Detail: "unknown state"}, "recovery: corrupt task at byte 3: unknown state"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestPromiseTag(t *testing.T) {
	p := Promise{Tags: []Tag{{"a", "1"}, {"c", "3"}}}
	for key, want := range map[string]string{"a": "1", "c": "3", "b": "", "": "", "d": ""} {
		if got, ok := p.Tag(key); got != want || ok != (want != "") {
			t.Errorf("tag %q is %q, %v", key, got, ok)
		}
	}
}
