package durable

import (
	"hash/maphash"

	perdurev1 "perdure/api/perdure/v1"
)

// A worker's memory does not grow with the journal of a function that runs one step, wait or call after the other: the
// history forgets an operation once the function has its result and has no future of it. What has a future stays.

// forget drops the record of the n-th operation if its result is known.
func (r *history) forget(n uint32) {
	if r.resolved(n) && !r.ops[n].spent() {
		r.forgotten += r.ops[n].fingerprint()
		r.spent.done = true
		r.ops[n] = &r.spent
	}
}

// spent reports whether the operation was forgotten.
func (rec *record) spent() bool { return rec.kind == 0 }

// fingerprints is the seed of fingerprints, which are compared in one process only.
var fingerprints = maphash.MakeSeed()

// fingerprint is a hash of what a function got from an operation.
func (rec *record) fingerprint() uint64 {
	var h maphash.Hash
	h.SetSeed(fingerprints)
	maphash.WriteComparable(&h, struct {
		n      uint32
		kind   opKind
		done   bool
		at     uint64
		name   string
		timeMs int64
	}{rec.n, rec.kind, rec.done, rec.doneSeq, rec.name, rec.timeMs})
	if f := rec.outcome.GetFailure(); f != nil {
		h.WriteString(f.GetType())
		h.WriteByte(0)
		h.WriteString(f.GetMessage())
	}
	h.Write(rec.outcome.GetValue())
	return h.Sum64()
}

// forgetValue drops the record of a value that the function got before this worker recorded it.
func (r *history) forgetValue(own *perdurev1.Event) {
	switch own.GetKind().(type) {
	case *perdurev1.Event_RandomGenerated, *perdurev1.Event_TimeRecorded:
		r.forget(uint32(len(r.ops) - 1))
	}
}

// consume is outcome for an operation of which the function has no future.
func (t *activation) consume(n uint32, codec Codec) ([]byte, error) {
	data, err := t.outcome(n, codec)
	t.journal.forget(n)
	return data, err
}
