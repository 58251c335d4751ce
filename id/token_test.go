package id

import "testing"

// A token is split into what it was made of; an id, and any text that no execution gives away, stays as it is.
func TestToken(t *testing.T) {
	for _, p := range []PromiseID{"e:0", "a~b:3.4294967295", "e~7:0"} {
		for _, n := range []uint64{1, 1<<64 - 1} {
			if got, incarnation := CutToken(p.Token(n)); got != string(p) || incarnation != n {
				t.Errorf("%q is %q of %d", p.Token(n), got, incarnation)
			}
		}
	}
	for _, text := range []string{"", "e", "e:0", "e~7", "~", "e:0~", "e:0~0", "e:0~07", "e:0~+7", "e:0~-1", "e:0~18446744073709551616", "e:x~7", ":0~7", "e:0~7~8", "e:0~7:1"} {
		if got, incarnation := CutToken(text); got != text || incarnation != 0 {
			t.Errorf("%q is taken for a token of %q and %d", text, got, incarnation)
		}
	}
}
