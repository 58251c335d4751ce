package id

import (
	"bytes"
	"strings"
	"testing"
)

// A token is split into what it was made of; an id, and any text that no execution gives away, stays as it is.
func TestToken(t *testing.T) {
	for _, p := range []PromiseID{"e:0", "a~b:3.4294967295", "e~7:0"} {
		for _, n := range []uint64{1, 1<<64 - 1} {
			for _, s := range [][]byte{nil, bytes.Repeat([]byte{0xab}, PromiseSecretBytes), make([]byte, PromiseSecretBytes)} {
				if got, incarnation, secret := CutToken(p.Token(n, s)); got != string(p) || incarnation != n || !bytes.Equal(secret, s) {
					t.Errorf("%q is %q of %d with the secret %x", p.Token(n, s), got, incarnation, secret)
				}
			}
		}
	}
	digits := strings.Repeat("0a", PromiseSecretBytes)
	for _, text := range []string{"", "e", "e:0", "e~7", "~", "e:0~", "e:0~0", "e:0~07", "e:0~+7", "e:0~-1", "e:0~18446744073709551616", "e:x~7", ":0~7", "e:0~7~8", "e:0~7:1",
		"e:0~" + digits, "e:0~7~" + digits[1:], "e:0~7~" + digits + "0a", "e:0~7~" + strings.ToUpper(digits), "e:0~0~" + digits, "e~7~" + digits, "e:0~7~" + strings.Repeat("0g", PromiseSecretBytes)} {
		if got, incarnation, secret := CutToken(text); got != text || incarnation != 0 || secret != nil {
			t.Errorf("%q is taken for a token of %q, %d and %x", text, got, incarnation, secret)
		}
	}
}
