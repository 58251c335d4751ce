package durable

import (
	"encoding/binary"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
)

// Random is a random number, recorded, and the same at every replay. The error is ErrCancelled.
func Random(ctx Context) (uint64, error) {
	t, err := enter(ctx, "Random")
	if err != nil {
		return 0, err
	}
	value, err := t.randomBytes(8)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}

// UUID is a random UUID (version 4), recorded, and the same at every replay. The error is ErrCancelled.
func UUID(ctx Context) (string, error) {
	t, err := enter(ctx, "UUID")
	if err != nil {
		return "", err
	}
	value, err := t.randomBytes(16)
	if err != nil {
		return "", err
	}
	u := [16]byte(value)
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
}

// randomBytes records size random bytes, or returns the recorded ones.
func (t *activation) randomBytes(size int) ([]byte, error) {
	n, rec, err := t.take(opRandom, "")
	if err != nil {
		return nil, err
	}
	if rec != nil {
		value := rec.outcome.GetValue()
		t.journal.forget(n)
		if len(value) != size {
			t.failTask(fmt.Errorf("durable: %s is a random number of %d bytes, not %d", t.child(n), len(value), size))
		}
		return value, nil
	}
	value := t.w.random(size)
	return value, t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_RandomGenerated{RandomGenerated: &perdurev1.RandomGenerated{
		PromiseId: t.child(n), Value: value}}})
}
