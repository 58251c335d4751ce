package machine

// arena gives out space for keys and values that are written once and then only read. Its chunks are never used
// again, so what it gave out stays valid; a chunk lives as long as anything in it is referenced. What is kept for
// long is copied out.
type arena struct{ free []byte }

const (
	arenaChunk = 8 << 10
	// arenaLeast is the space that open offers at least.
	arenaLeast = 256
)

// open returns space to append to, empty. Of what is appended only the result of close is valid. Nothing else may be
// opened before.
func (a *arena) open() []byte {
	if cap(a.free) < arenaLeast {
		a.free = make([]byte, 0, arenaChunk)
	}
	return a.free
}

// close takes what was appended to the result of open. What did not fit is in memory of its own.
func (a *arena) close(b []byte) []byte {
	if n := len(b); n <= cap(a.free) {
		a.free = a.free[n:n]
	}
	return b[:len(b):len(b)]
}
