package durable

import (
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// Sleep waits for d, rounded up to milliseconds and at least one. It uses no capacity of the worker and
// survives crashes of workers and nodes. It returns nil, or ErrCancelled.
func Sleep(ctx Context, d time.Duration) error {
	t, err := enter(ctx, "Sleep")
	if err != nil {
		return err
	}
	n, rec, err := t.take(opTimer, "")
	if err != nil {
		return err
	}
	if rec == nil {
		err := t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{
			PromiseId: t.child(n), DurationMs: max(1, client.Millis(d))}}})
		if err != nil {
			return err
		}
	}
	return t.await(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n)
}
