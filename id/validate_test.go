package id

import (
	"errors"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	exact := strings.Repeat("é", MaxIDBytes/2)
	for _, c := range []struct {
		text           string
		any, root      string
		anyOK, rootsOK bool
	}{
		{text: "order-42", anyOK: true, rootsOK: true},
		{text: exact, anyOK: true, rootsOK: true},
		{text: "a:b", anyOK: true, root: RuleColon},
		{text: "@e@k:1", anyOK: true, root: RuleColon},
		{text: "", any: RuleEmpty, root: RuleEmpty},
		{text: exact + "x", any: RuleTooLong, root: RuleTooLong},
		{text: "a\x00b", any: RuleNUL, root: RuleNUL},
	} {
		check := func(name string, err error, ok bool, rule string) {
			var refused *Error
			if ok != (err == nil) || !ok && (!errors.As(err, &refused) || refused.Rule != rule) {
				t.Errorf("%s(%.20q) = %v, want rule %q", name, c.text, err, rule)
			}
		}
		check("Validate", Validate(c.text), c.anyOK, c.any)
		check("ValidateRoot", ValidateRoot(c.text), c.rootsOK, c.root)
	}
}

func TestErrorQuotesTheBeginning(t *testing.T) {
	if got, want := Validate("a\x00b").Error(), `id "a\x00b" contains NUL at byte 1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := ValidateRoot("a:b").Error(), `id "a:b" contains ':' at byte 1, which separates a root from its path`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	long := Validate(strings.Repeat("x", 1<<20)).Error()
	if len(long) > 200 || !strings.Contains(long, "1048576 bytes") {
		t.Errorf("a long id makes the error %d bytes long: %.200s", len(long), long)
	}
}

// The limits are a contract with users.
func TestLimits(t *testing.T) {
	if MaxIDBytes != 1024 || MaxPayloadBytes != 4194304 || MaxTags != 64 || JournalWarnEvents != 50000 || Slots != 16384 {
		t.Error("a published limit has changed")
	}
}
