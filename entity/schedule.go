package entity

import (
	"cmp"
	"slices"
)

// compareQueued and compareDelayed are the orders of the two lists of a state.

func compareQueued(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) }

func compareDelayed(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.dueAt(), b.dueAt()), cmp.Compare(a.Seq, b.Seq))
}

// SortDelayed brings the delayed signals into their order, after they were read from a store in another one.
func (s *State) SortDelayed() { slices.SortFunc(s.Delayed, compareDelayed) }

// NextDue returns the time of the first scheduled signal (Unix milliseconds), at which to call [State.Tick],
// and whether there is one.
func (s *State) NextDue() (at int64, ok bool) {
	if len(s.Delayed) == 0 {
		return 0, false
	}
	return s.Delayed[0].dueAt(), true
}

// Tick moves the signals that are scheduled at now or earlier to the end of the queue, in the order of their
// times. It reports whether there were any. Calling it early, late or twice is harmless.
func (s *State) Tick(now int64) bool {
	n := 0
	for n < len(s.Delayed) && s.Delayed[n].dueAt() <= now {
		s.enqueue(s.Delayed[n].Message)
		n++
	}
	s.Delayed = append([]Entry(nil), s.Delayed[n:]...)
	return n > 0
}
