package reduction

import "math/bits"

// bitset is a set of node numbers that is listed in ascending order.
type bitset struct {
	words []uint64
	len   int
}

func newBitset(n int) bitset { return bitset{words: make([]uint64, (n+63)/64)} }

// put makes n a member or not.
func (b *bitset) put(n int32, in bool) {
	word, bit := &b.words[n/64], uint64(1)<<(n%64)
	switch {
	case in && *word&bit == 0:
		*word |= bit
		b.len++
	case !in && *word&bit != 0:
		*word &^= bit
		b.len--
	}
}

// list returns the members in ascending order.
func (b *bitset) list() []int32 {
	out := make([]int32, 0, b.len)
	for i, word := range b.words {
		for ; word != 0; word &= word - 1 {
			out = append(out, int32(64*i+bits.TrailingZeros64(word)))
		}
	}
	return out
}
