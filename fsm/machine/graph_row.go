package machine

import (
	"errors"
	"math/bits"

	"perdure/id"
	"perdure/recovery"
	"perdure/reduction"
)

// nodeRow is what is stored of one node of a graph run. A node without a row is pending.
type nodeRow struct {
	status reduction.StatusKind
	// signal is what the node waits for, or what its wait was for.
	signal string
	// child is the number of its promise in the run's journal, plus 1; 0 before it was started. life tells
	// the life of the run in which that was, attempt the present or last attempt, from 1.
	child, life, attempt uint32
	started, ended       int64
	// retryAt is when the next attempt is due; 0 unless the node pauses between two.
	retryAt int64
	// wave is the number of the wave in which the result was recorded, in a graph that runs in waves. The
	// result is observed when the header has come to that number.
	wave uint64
	// kept: the result is that of an earlier life of the run; the output stands in the row of that life, whose
	// incarnation from is. propagated: it failed because a node before it did.
	kept, propagated bool
	from             uint64
	// failure is why it failed, or its last attempt did, or why it was skipped (of the type FailureSkipped if it
	// said so itself): an outcome in its encoding.
	failure []byte
	output  []byte
}

const rowVersion = 1

const (
	flagKept       = 1
	flagPropagated = 2
)

func (r *nodeRow) encode() []byte {
	e := encoder{b: make([]byte, 0, 40+len(r.failure)+len(r.output))}
	e.u64(rowVersion)
	e.u64(uint64(r.status))
	e.str(r.signal)
	e.u64(uint64(r.child))
	e.u64(uint64(r.life))
	e.u64(uint64(r.attempt))
	e.i64(r.started)
	e.i64(r.ended)
	e.i64(r.retryAt)
	e.u64(r.wave)
	flags := uint64(0)
	if r.kept {
		flags |= flagKept
	}
	if r.propagated {
		flags |= flagPropagated
	}
	e.u64(flags)
	e.u64(r.from)
	e.bytes(r.failure)
	e.bytes(r.output)
	return e.b
}

// decodeRow is the inverse of encode. The row shares its bytes with b.
func decodeRow(b []byte) (nodeRow, error) {
	d := decoder{b: b}
	if v := d.u64(); d.err == nil && v != rowVersion {
		return nodeRow{}, errors.New("unknown version of a node")
	}
	var r nodeRow
	status := d.u64()
	r.status = reduction.StatusKind(status)
	r.signal = d.str()
	r.child, r.life, r.attempt = d.u32(), d.u32(), d.u32()
	r.started, r.ended, r.retryAt = d.i64(), d.i64(), d.i64()
	r.wave = d.u64()
	flags := d.u64()
	r.kept, r.propagated = flags&flagKept != 0, flags&flagPropagated != 0
	r.from = d.u64()
	r.failure, r.output = d.bytes(), d.bytes()
	if d.err == nil && (status > 255 || !r.status.Valid() || flags&^(flagKept|flagPropagated) != 0) {
		d.fail("a node of an unknown status")
	}
	return r, d.end()
}

func (d *decoder) u32() uint32 {
	n := d.u64()
	if d.err == nil && n > 1<<32-1 {
		d.fail("a number too large")
	}
	return uint32(n)
}

// observed reports whether a result counts, in a run that has come to the given wave.
func (r *nodeRow) observed(wave uint64) bool { return r.wave <= wave }

// promise is the id of the node's promise, "" before it was started and for one that was kept: that promise
// belonged to an earlier life of the run.
func (r *nodeRow) promise(run string) string {
	if r.child == 0 || r.kept {
		return ""
	}
	return string(id.PromiseID(run).Child(r.child - 1))
}

// An attempt's number among the children of the node's promise, so that no two lives share one.
const attemptsOfLife = 1024

// maxLife is the last life whose attempts have numbers.
const maxLife = 1<<32/attemptsOfLife - 1

// attemptID is the execution of the node's present or last attempt.
func (r *nodeRow) attemptID(run string) string {
	return string(id.PromiseID(run).Child(r.child - 1).Child(r.life*attemptsOfLife + r.attempt - 1))
}

// isAttempt reports whether an execution is an attempt of a graph's node: its own parent id is the promise
// that it settles.
func (h *Header) isAttempt() bool {
	if h.ParentPromise == "" {
		return false
	}
	parent, ok := parentOf(h.ID)
	return ok && parent == h.ParentPromise && h.ID != h.ParentPromise
}

// functionOfGraph is what the executions of graphs are listed as, functionOfHTTP who makes the requests of
// HTTP nodes.
const (
	functionOfGraph = "$graph"
	functionOfHTTP  = "$http"
)

// graphTag marks the promise of a graph run, which has no target.
const graphTag = "$graph"

func ofGraph(p recovery.Promise) bool {
	if p.Target != "" || len(p.Tags) == 0 {
		return false
	}
	_, ok := p.Tag(graphTag)
	return ok
}

func withGraphTag(tags []recovery.Tag) []recovery.Tag {
	out := make([]recovery.Tag, 0, len(tags)+1)
	for _, t := range tags {
		if t.Key != graphTag {
			out = append(out, t)
		}
	}
	return append(out, recovery.Tag{Key: graphTag})
}

// indexSet is a set of small numbers that knows its least.
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
