package machine

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// absences answers from memory, for nearly all ids that are free, that the state has no promise of an id, neither in a row nor inline in
// a header. Each start asks for that, and a read of an absent key looks into each table of L0 and into a block of the last level.
//
// It is a Bloom filter of all promises: of those that are written, and of those that were there, which Learn reads in pieces,
// so that neither a start of a node nor an entry waits for it. Until it has read them all it knows nothing. A filter forgets nothing,
// so once many promises have been removed, another one is made beside it in the same way. It is a cache of the state, of about two
// bytes a promise, and never reaches state or output.
type absences struct {
	// whole has all promises; nil until it does. next is being made, and has all that come before from; nil for none.
	whole, next *bloom
	from        []byte
	// removed counts promises since next began.
	removed int
	key     []byte // memory
}

const (
	// absentPiece is how many promises Learn reads: a millisecond's worth, since entries wait meanwhile.
	absentPiece = 256
	// absentRemoved is how many promises are removed before a filter of few is made again.
	absentRemoved = 1 << 15
)

func newAbsences() *absences { return &absences{next: &bloom{}} }

// none reports that neither the state nor an entry that is not stored yet has the promise of a key. False means that there may be one.
func (a *absences) none(key []byte) bool { return a.whole != nil && !a.whole.has(xxhash.Sum64(key)) }

// Learn reads the next piece of what Free needs to know, and reports whether there is more to read. Without it a machine that was
// opened on many promises, or has removed many, answers right but reads the state more often. It must not run beside Apply.
func (m *Machine) Learn() (more bool, err error) {
	defer state.Catch(&err)
	err = m.reads.absences.step(m.batch)
	return m.reads.absences.next != nil, err
}

// ready reports that it knows of most ids that are free.
func (a *absences) ready() bool { return a.whole != nil }

// Free reports that no promise has an id, and so no execution. False means that one may have it.
func (m *Machine) Free(namespace, id string) bool {
	return m.reads.absences.none(keys.Of(keys.Promise, namespace, id))
}

// write notes a write.
func (a *absences) write(w *write) {
	switch family := keys.Family(w.key[0]); {
	case family == keys.Header && !w.removed:
		a.add(a.promiseOf(w.key)) // which may be inline
	case family != keys.Promise:
	case w.removed:
		a.removed++
	default:
		a.add(w.hash)
	}
}

func (a *absences) add(hash uint64) {
	if a.whole != nil && !a.whole.has(hash) {
		a.whole.add(hash)
	}
	if a.next != nil && !a.next.has(hash) {
		a.next.add(hash)
	}
}

// promiseOf is the hash of the key of the promise of an execution, by the key of the header.
func (a *absences) promiseOf(header []byte) uint64 {
	a.key = append(a.key[:0], header...)
	a.key[0] = byte(keys.Promise)
	return xxhash.Sum64(a.key)
}

// moved notes that the removal of a promise's row, if there is one, moves the promise into a header.
func (a *absences) moved(removal *write) {
	if removal != nil && !removal.void {
		a.removed-- // write counts it
	}
}

// step reads the next piece, if there is one to read. r has all writes that were noted, stored or not: a filter that begins now has
// not noted them.
func (a *absences) step(r state.Reader) error {
	if a.next == nil {
		if a.removed < absentRemoved+a.whole.size/2 {
			return nil
		}
		a.next, a.from, a.removed = &bloom{}, nil, 0
	}
	left, ended := absentPiece, true
	// Promises first: one that becomes part of its header meanwhile is found in either place.
	for _, family := range [][]byte{{byte(keys.Promise)}, {byte(keys.Header)}} {
		lower := family
		if a.from != nil && bytes.Compare(a.from, lower) > 0 {
			lower = a.from
		}
		if upper := keys.After(family); ended && bytes.Compare(lower, upper) < 0 {
			if err := r.Scan(lower, upper, func(key, _ []byte) bool {
				if left--; left < 0 {
					a.from, ended = bytes.Clone(key), false
					return false
				}
				hash := xxhash.Sum64(key)
				if keys.Family(key[0]) == keys.Header {
					hash = a.promiseOf(key)
				}
				if !a.next.has(hash) {
					a.next.add(hash)
				}
				return true
			}); err != nil {
				return err
			}
		}
	}
	if ended {
		a.whole, a.next, a.from = a.next, nil, nil
	}
	return nil
}

// bloom is a Bloom filter that grows: a part that is full is followed by one of twice the size. A part says of about one in a
// hundred hashes that it has them although it has not.
type bloom struct {
	parts []bloomPart
	size  int
}

// bloomPart has its bits in blocks of a cache line; each hash sets bits in one.
type bloomPart struct {
	blocks [][8]uint64
	left   int
}

const (
	bloomFirst  = 1 << 14 // hashes of the first part
	bloomPerKey = 12      // bits
	bloomBits   = 6       // that a hash sets
)

// bit is the i-th bit of a hash in its block.
func bit(h uint64, i int) (word, mask uint64) {
	n := (h * 0x9e3779b97f4a7c15) >> (9 * i) & 511
	return n >> 6, 1 << (n & 63)
}

func (p *bloomPart) block(h uint64) *[8]uint64 {
	return &p.blocks[(h>>32)*uint64(len(p.blocks))>>32]
}

func (p *bloomPart) has(h uint64) bool {
	b := p.block(h)
	for i := range bloomBits {
		if word, mask := bit(h, i); b[word]&mask == 0 {
			return false
		}
	}
	return true
}

func (f *bloom) has(h uint64) bool {
	for i := range f.parts {
		if f.parts[i].has(h) {
			return true
		}
	}
	return false
}

func (f *bloom) add(h uint64) {
	if f.has(h) {
		return
	}
	n := len(f.parts)
	if n == 0 || f.parts[n-1].left == 0 {
		most := bloomFirst << n
		f.parts = append(f.parts, bloomPart{make([][8]uint64, most*bloomPerKey/512), most})
		n++
	}
	p := &f.parts[n-1]
	b := p.block(h)
	for i := range bloomBits {
		word, mask := bit(h, i)
		b[word] |= mask
	}
	p.left--
	f.size++
}
