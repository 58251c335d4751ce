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
	f, err := t.timer(func() time.Duration { return d })
	if err != nil {
		return err
	}
	err = t.await(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, f.n)
	t.journal.forget(f.n)
	return err
}

// After starts a timer, with the next commit, and does not wait for it: its future has its result after d,
// rounded up to milliseconds and at least one.
func After(ctx Context, d time.Duration) (*Future[struct{}], error) {
	t, err := enter(ctx, "After")
	if err != nil {
		return nil, err
	}
	return t.timer(func() time.Duration { return d })
}

// At is After for a point in time, by the clock of the worker that starts the timer. A point in the past has come.
func At(ctx Context, when time.Time) (*Future[struct{}], error) {
	t, err := enter(ctx, "At")
	if err != nil {
		return nil, err
	}
	return t.timer(func() time.Duration { return when.Sub(t.w.clock.Now()) })
}

// timer replays or starts a timer. It asks for the duration only when it starts one.
func (t *activation) timer(duration func() time.Duration) (*Future[struct{}], error) {
	n, rec, err := t.take(opTimer, "")
	if err != nil {
		return nil, err
	}
	f := &Future[struct{}]{t: t, n: n, cleaning: t.cleaning(), name: "timer", codec: t.codec, timer: true}
	if rec != nil {
		return f, nil
	}
	return f, t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{
		PromiseId: t.child(n), DurationMs: max(1, client.Millis(duration()))}}})
}
