package durable

import perdurev1 "perdure/api/perdure/v1"

// A worker's memory does not grow with the journal of a function that runs one step, wait or call after the other: the
// history forgets an operation once the function has its result and has no future of it. What has a future stays.

// forget drops the record of the n-th operation if its result is known.
func (r *history) forget(n uint32) {
	if r.resolved(n) {
		r.spent.done = true
		r.ops[n] = &r.spent
	}
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
