package query

import (
	"testing"

	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state/keys"
)

// A cursor is read back as it was, and no other bytes are a cursor.
func TestCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Make[ListPosition]().Draw(t, "position")
		b := p.Encode()
		if got, err := DecodeListPosition(b); err != nil || got != p {
			t.Fatalf("%v comes back as %v, %v", p, got, err)
		}
		for n := range b {
			if got, err := DecodeListPosition(b[:n]); err == nil {
				t.Fatalf("%d of %d bytes are read as %v", n, len(b), got)
			}
		}
		if got, err := DecodeListPosition(append(b, 0)); err == nil {
			t.Fatalf("a byte too many is read as %v", got)
		}
	})
}

// Pages are merged by CompareListed and read by key: both orders are the same.
func TestListingOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Custom(func(t *rapid.T) *perdurev1.ExecutionSummary {
			return &perdurev1.ExecutionSummary{CreatedMs: rapid.Int64Range(0, 1<<53).Draw(t, "created"), Id: rapid.String().Draw(t, "id")}
		})
		key := func(e *perdurev1.ExecutionSummary) string {
			return string(keys.VisibilityOf("ns", keys.Open, e.CreatedMs, e.Id))
		}
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if rapid.Bool().Draw(t, "same time") {
			b.CreatedMs = a.CreatedMs
		}
		if (CompareListed(a, b) < 0) != (key(a) < key(b)) || (CompareListed(a, b) == 0) != (key(a) == key(b)) {
			t.Fatalf("%v and %v compare as %d, their keys are %x and %x", a, b, CompareListed(a, b), key(a), key(b))
		}
	})
}
