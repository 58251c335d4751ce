package durable

import (
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// Now is the time, to the millisecond, by the clock of the worker that asked first: recorded, and the same at
// every replay. Workers' clocks may differ, so it can go backwards between two calls. The error is
// ErrCancelled.
func Now(ctx Context) (time.Time, error) {
	t, err := enter(ctx, "Now")
	if err != nil {
		return time.Time{}, err
	}
	n, rec, err := t.take(opTime, "")
	if err != nil {
		return time.Time{}, err
	}
	if rec != nil {
		t.journal.forget(n)
		return time.UnixMilli(rec.timeMs).UTC(), nil
	}
	ms := t.w.clock.Now().UnixMilli()
	err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_TimeRecorded{TimeRecorded: &perdurev1.TimeRecorded{
		PromiseId: t.child(n), TimeMs: ms}}})
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(ms).UTC(), nil
}
