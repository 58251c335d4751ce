package jepsen

import (
	"slices"
	"strings"
	"testing"
)

// The audit of accounts notices each thing that can be wrong.
func TestCheckLedgers(t *testing.T) {
	sound := func() map[string]ledger {
		return map[string]ledger{
			"a": {true, 70, []entry{{"t1", "b", -30}}},
			"b": {true, 125, []entry{{"t1", "a", 30}, {"t2", "elsewhere", -5}}},
		}
	}
	if wrong := checkLedgers(sound()); len(wrong) > 0 {
		t.Fatalf("sound ledgers: %q", wrong)
	}
	for what, change := range map[string]func(m map[string]ledger){
		"its balance is":     func(m map[string]ledger) { m["a"] = ledger{true, 71, m["a"].Lines} },
		"booked twice":       func(m map[string]ledger) { m["a"] = ledger{true, 40, slices.Repeat(m["a"].Lines, 2)} },
		"and 0 at b":         func(m map[string]ledger) { m["b"] = ledger{true, 95, m["b"].Lines[1:]} },
		"and 31 at b":        func(m map[string]ledger) { m["b"] = ledger{true, 131, []entry{{"t1", "a", 31}}} },
		"overdrawn to -1 by": func(m map[string]ledger) { m["a"] = ledger{true, 0, []entry{{"t9", "x", -101}, {"t8", "x", 101}}} },
	} {
		m := sound()
		change(m)
		if wrong := checkLedgers(m); !strings.Contains(strings.Join(wrong, "\n"), what) {
			t.Errorf("%s: found %q", what, wrong)
		}
	}
}
