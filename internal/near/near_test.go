package near

import "testing"

func TestWord(t *testing.T) {
	names := []string{"function", "inputs", "timeout", "maxParallel", "after"}
	for word, want := range map[string]string{
		"functon": "function", "max_parallel": "maxParallel", "Timeout": "timeout", "aftre": "after", "input": "inputs",
		"": "", "xyz": "", "a": "", "something-long-that-is-not-like-anything-here-at-all-really-not-at-all": "",
	} {
		if got := Word(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := Hint("after", names) + Hint("aftr", names); got != `; did you mean "after"?` {
		t.Error(got)
	}
}
