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
	n, rec, err := t.take(opRandom, "")
	if err != nil {
		return 0, err
	}
	if rec != nil {
		if len(rec.random) != 8 {
			t.giveUp(fmt.Errorf("durable: %s is a random number of %d bytes, not 8", t.child(n), len(rec.random)))
		}
		return binary.BigEndian.Uint64(rec.random), nil
	}
	value := t.w.random(8)
	err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_RandomGenerated{RandomGenerated: &perdurev1.RandomGenerated{
		PromiseId: t.child(n), Value: value}}})
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}
