package credit

import "fmt"

// Share is the credit of one link at the node that may use it:
//
//	0 <= reserved <= granted
//
// granted is the granted, unused credit; reserved is the part of it that log entries in flight may use.
type Share struct{ granted, reserved int }

// Granted is the credit that no task has used.
func (s *Share) Granted() int { return s.granted }

// Free is the credit that no entry has reserved.
func (s *Share) Free() int { return s.granted - s.reserved }

// Grant adds n units, or none if n is negative.
func (s *Share) Grant(n int) {
	s.granted += max(n, 0)
	s.assert()
}

// Reserve sets up to n free units aside for an entry and answers how many.
func (s *Share) Reserve(n int) int {
	n = max(min(n, s.Free()), 0)
	s.reserved += n
	s.assert()
	return n
}

// Release ends the reservation of n units: the entry used them, or did not. Use follows for each that it used.
func (s *Share) Release(n int) {
	s.reserved -= n
	s.assert()
}

// Use takes the unit that a task has used.
func (s *Share) Use() {
	s.granted--
	s.assert()
}

// Withdraw takes up to n free units away and answers how many.
func (s *Share) Withdraw(n int) int {
	n = max(min(n, s.Free()), 0)
	s.granted -= n
	s.assert()
	return n
}

// Check reports a broken inequality.
func (s *Share) Check() error {
	if s.reserved < 0 || s.granted < s.reserved {
		return fmt.Errorf("a share of %d granted units has %d reserved", s.granted, s.reserved)
	}
	return nil
}

func (s *Share) assert() {
	if Assert {
		if err := s.Check(); err != nil {
			panic("credit: " + err.Error())
		}
	}
}
