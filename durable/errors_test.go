package durable

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 10, ""}, {"plain", 5, "plain"}, {"plain!", 5, "pl…"},
		{"caf\xe9", 64, "caf\ufffd"}, {"\xff", 3, "\ufffd"},
		{"aéé", 5, "aéé"}, {"aééé", 5, "a…"}, // a cut falls into a character
	} {
		got := cut(c.in, c.n)
		if got != c.want || len(got) > c.n || !utf8.ValidString(got) {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// TestFailureFits has failures that are too large or not text fit into a message.
func TestFailureFits(t *testing.T) {
	f := failureOf(&Error{Type: strings.Repeat("é", 1000), Message: strings.Repeat("m\xff", 1<<20), Details: make([]byte, maxDetailsBytes+1)})
	if len(f.Type) > maxTypeBytes || !utf8.ValidString(f.Type) || !utf8.ValidString(f.Message) || f.Details != nil ||
		!strings.HasSuffix(f.Message, "are left out: more than 4127744)") {
		t.Errorf("type of %d bytes, message …%s, details of %d bytes", len(f.Type), f.Message[len(f.Message)-60:], len(f.Details))
	}
	f = failureOf(Permanent(&Error{Type: "mine", Message: "é", Details: make([]byte, maxDetailsBytes)}))
	if f.Type != "mine" || f.Message != "é" || len(f.Details) != maxDetailsBytes || !f.NonRetryable {
		t.Errorf("a failure that fits was changed: %s %s, %d bytes", f.Type, f.Message, len(f.Details))
	}
	if f = failureOf(errors.New("caf\xe9")); f.Type != TypeError || f.Message != "caf\ufffd" {
		t.Errorf("%v", f)
	}
}
