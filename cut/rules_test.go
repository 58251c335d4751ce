package cut_test

import (
	"testing"

	"perdure/cut"
)

// A partition enters each cut once, never an earlier one, and applies what was sent in its own cut or before.
func TestEnter(t *testing.T) {
	for _, c := range []struct {
		have, asked, now cut.Number
		entered          bool
	}{
		{0, 1, 1, true},
		{1, 3, 3, true},
		{3, 3, 3, false},
		{3, 2, 3, false},
		{0, 0, 0, false},
	} {
		now, entered := cut.Enter(c.have, c.asked)
		if now != c.now || entered != c.entered {
			t.Errorf("in cut %d, asked to enter %d: in cut %d, entered: %t", c.have, c.asked, now, entered)
		}
		if admits := cut.Admits(c.have, c.asked); admits == entered {
			t.Errorf("in cut %d, what was sent in cut %d is admitted: %t", c.have, c.asked, admits)
		}
	}
}

// Required returns the latest cut that anything was sent in. Next returns a cut that no partition is in.
func TestRequired(t *testing.T) {
	if n := cut.Required(2, 1, 5, 3); n != 5 {
		t.Errorf("cut %d is required", n)
	}
	if n := cut.Required(4, 1, 3); n != 4 {
		t.Errorf("cut %d is required of a partition in cut 4", n)
	}
	if n := cut.Next([]cut.Number{2, 4, 0}); n != 5 {
		t.Errorf("the new cut is %d", n)
	}
}
