package bytesize_test

import (
	"testing"

	"pgregory.net/rapid"

	"perdure/internal/bytesize"
)

// Parse reads what Format writes, both kinds of units, and refuses a number that does not fit or is not whole.
func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Min(0).Draw(t, "size")
		if back, err := bytesize.Parse(bytesize.Format(size)); err != nil || back != size {
			t.Fatalf("%d is written %q and read back as %d, %v", size, bytesize.Format(size), back, err)
		}
	})
	for text, want := range map[string]int64{"64MiB": 64 << 20, "1 gib": 1 << 30, "2KB": 2000, "7B": 7, "0": 0, " 12 ": 12} {
		if got, err := bytesize.Parse(text); err != nil || got != want {
			t.Errorf("bytesize.Parse(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "9223372036854775807KiB", "ten"} {
		if got, err := bytesize.Parse(text); err == nil {
			t.Errorf("bytesize.Parse(%q) = %d, want an error", text, got)
		}
	}
}
