package slab

import "testing"

// TestNothingTwice takes lists and single values, and finds each zero and its own.
func TestNothingTwice(t *testing.T) {
	var s Of[int]
	seen := map[*int]bool{}
	for n := range 3 * size {
		list := s.List(n % (size + 5))
		if cap(list) != len(list) || len(list) != n%(size+5) {
			t.Fatalf("list of %d has %d values and space for %d", n%(size+5), len(list), cap(list))
		}
		own := []*int{s.Next()}
		for i := range list {
			own = append(own, &list[i])
		}
		for _, p := range own {
			if *p != 0 || seen[p] {
				t.Fatalf("value %d was given out before", *p)
			}
			*p, seen[p] = 1, true
		}
	}
}
