package days

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 720 * time.Hour, "0d": 0, "36h": 36 * time.Hour, "1h30m": 90 * time.Minute} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if again, err := Parse(Format(got)); err != nil || again != got {
			t.Errorf("%q is written %q, which is read as %v, %v", text, Format(got), again, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "70000d", "1.5d", "-1h", "week"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
