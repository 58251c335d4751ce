package recovery

import "testing"

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{staleVersion("acquire", "order-42", 3, 2), `recovery: version: acquire "order-42": conflict: task has version 3, request names 2`},
		{staleIncarnation("settle", "a", 9, 8), `recovery: incarnation: settle "a": conflict: stored incarnation is 9, request names 8`},
		{notFound("halt", "a", RuleTask), `recovery: task_exists: halt "a": not found`},
		{invalid("create", "", RuleID, ""), `recovery: id_not_empty: create "": invalid`},
		{precondition("suspend", "x", RuleAwaited, ""), `recovery: awaited_exists: suspend "x": precondition`},
		{&Error{Code: 99, Op: "o", ID: "a", Rule: "r"}, `recovery: r: o "a": unknown`},
		{&CorruptError{"task", 3, "unknown state"}, "recovery: corrupt task at byte 3: unknown state"},
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
