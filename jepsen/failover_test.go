package jepsen

import (
	"slices"
	"testing"
	"time"
)

// TestRatesAfterFault reads the figures of a planted load: a write each 10 ms, none for 300 ms from the fault
// on, and one that took two seconds.
func TestRatesAfterFault(t *testing.T) {
	const at, end = 2 * time.Second, 4 * time.Second
	var writes []Write
	for ms := 10; ms < 4000; ms += 10 {
		if answered := time.Duration(ms) * time.Millisecond; answered < at || answered >= at+300*time.Millisecond {
			writes = append(writes, Write{Fate: Acked, Called: answered - time.Millisecond, Answered: answered})
		}
	}
	writes = append(writes, Write{Fate: Acked, Called: at - 50*time.Millisecond, Answered: at + 1950*time.Millisecond},
		Write{Fate: Open, Called: at, Answered: end})
	var r FailoverRound
	r.measure(writes, at, 3*time.Second, end)
	if r.Gap != 310*time.Millisecond || r.Slowest != 2*time.Second || r.SlowestAt != -50*time.Millisecond || r.Over != 1 {
		t.Errorf("%+v", r)
	}
	want := []int{0, 0, 0}
	for range 16 {
		want = append(want, 10)
	}
	if want = append(want, 11); !slices.Equal(r.After, want) {
		t.Errorf("in each 100 ms after the fault %v, expected %v", r.After, want)
	}
	if got := rates([]FailoverRound{{After: []int{0, 10}}, {After: []int{2}}}); got != "10 100" {
		t.Errorf("rates %q", got)
	}
}
