package machine

import "math/bits"

// indexSet is a set of small numbers with a fast minimum.
type indexSet struct {
	low, high []uint64
}

func newIndexSet(n int) indexSet {
	words := (n + 63) / 64
	return indexSet{make([]uint64, words), make([]uint64, (words+63)/64)}
}

func (s *indexSet) has(i int32) bool { return s.low[i>>6]>>(i&63)&1 != 0 }

func (s *indexSet) put(i int32, in bool) {
	w := i >> 6
	if in {
		s.low[w] |= 1 << (i & 63)
		s.high[w>>6] |= 1 << (w & 63)
		return
	}
	if s.low[w] &^= 1 << (i & 63); s.low[w] == 0 {
		s.high[w>>6] &^= 1 << (w & 63)
	}
}

func (s *indexSet) min() (int32, bool) {
	for h, bitsOfWords := range s.high {
		if bitsOfWords != 0 {
			w := h<<6 + bits.TrailingZeros64(bitsOfWords)
			return int32(w<<6 + bits.TrailingZeros64(s.low[w])), true
		}
	}
	return 0, false
}
