package source

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDurationsAgainstGo: what is read means what Go means by it, and what Go refuses is refused.
func TestDurationsAgainstGo(t *testing.T) {
	read, refused := 0, 0
	texts := rapid.OneOf(
		rapid.StringMatching(`\+?([0-9]{1,4}(\.[0-9]{0,4})?(h|m|s|ms|us|µs|ns)){1,3}`),
		rapid.StringMatching(`[0-9hmsun.+µ-]{0,8}`),
	)
	one := func(t *rapid.T) {
		s := texts.Draw(t, "text")
		got, why := parseDuration(s)
		want, err := time.ParseDuration(s)
		switch {
		case why == "" && err != nil:
			t.Fatalf("%q is read as %d, Go says %v", s, got, err)
		case why == "" && time.Duration(got)*time.Millisecond != want:
			t.Fatalf("%q is read as %d ms, Go says %v", s, got, want)
		case why == "is too long" && want >= 1<<62: // 146 years are long enough
			refused++
		case why != "" && err == nil && want >= 0 && want%time.Millisecond == 0 && s[0] != '-' && exact(s):
			t.Fatalf("%q %s, Go says %v", s, why, want)
		case why == "":
			read++
		default:
			refused++
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 50 { // few texts mean anything
			one(t)
		}
	})
	if read == 0 || refused == 0 {
		t.Fatalf("%d read, %d refused", read, refused)
	}
}

// exact says that a duration has no part that Go rounds: Go cuts what is below a nanosecond.
func exact(s string) bool {
	for i := range len(s) - 1 {
		if s[i] == 'u' || s[i] == 'n' || s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func TestDurationsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, 400_000_000_000).Draw(t, "ms")
		if got, why := parseDuration(formatDuration(ms)); got != ms || why != "" {
			t.Fatalf("%d is written %s and read as %d %s", ms, formatDuration(ms), got, why)
		}
	})
}
