// Package slab allocates values together that would be allocated one by one. Its values are ordinary memory: none is
// used twice, and those that were allocated together live as long as any of them is referenced. A Slab is not safe for
// concurrent use. A crash loses nothing here.
//
//	var tokens slab.Of[Token]
//	t := tokens.Next() // one of size zero values
package slab

// size is how many values are allocated together.
const size = 32

// Of gives out zero values. Its zero value is ready for use.
type Of[T any] struct{ free []T }

// Next is an unused value.
func (s *Of[T]) Next() *T { return &s.List(1)[0] }

// List is n unused values in a row, without space for more.
func (s *Of[T]) List(n int) []T {
	if n > len(s.free) {
		if n > size {
			return make([]T, n)
		}
		s.free = make([]T, size)
	}
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}
