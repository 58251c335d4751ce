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

// NextScheduled returns the time of the first scheduled signal (Unix milliseconds), at which to call [State.Tick],
// and whether there is one. While the lane is full it returns false: the next commit
// takes signals off the lane and moves scheduled ones there.
func (s *State) NextScheduled() (at int64, ok bool) {
	if len(s.Delayed) == 0 || len(s.Lane) >= LaneLength {
		return 0, false
	}
	return s.Delayed[0].dueAt(), true
}

// Tick moves the signals that are scheduled at now or earlier to the lane, in the order of their times, until the
// lane is full. It reports whether it moved any. Calling it early, late or twice is harmless.
func (s *State) Tick(now int64) bool {
	n := 0
	for n < len(s.Delayed) && s.Delayed[n].dueAt() <= now && len(s.Lane) < LaneLength {
		s.Lane = append(s.Lane, Entry{Seq: s.NextSeq, Message: s.Delayed[n].Message})
		s.NextSeq++
		n++
	}
	s.Delayed = behind(s.Delayed, n)
	return n > 0
}

// behind returns a list without its first n entries.
func behind(list []Entry, n int) []Entry {
	if n == len(list) {
		return nil
	}
	return list[n:]
}
