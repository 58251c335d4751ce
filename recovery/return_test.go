package recovery

import (
	"fmt"
	"testing"
)

// long is the retry interval of tests of the back-off.
const long = 1000

// again acquires a pending task and gives it back, and demands the delay of its next Execute.
func (w *world) again(now int64, delay int64) (executable int64) {
	w.Helper()
	h, err := Acquire(w.s, now, w.task("a").ref(), "p", 10*long)
	w.ok(now, err)
	return w.back(now, h.Task.ref(), delay)
}

// back gives a task back, and demands the delay of its next Execute.
func (w *world) back(now int64, ref TaskRef, delay int64) (executable int64) {
	w.Helper()
	task, fx, err := Return(w.s, now, ref, long)
	w.ok(now, err)
	if delay == 0 {
		w.effects(fx, fmt.Sprintf("execute a#7 v%d to w", ref.Version))
		w.is(showTask(task), fmt.Sprintf("task a#7 pending v%d target=w retry=%d", ref.Version, now+long))
		return now
	}
	w.effects(fx)
	w.is(showTask(task), fmt.Sprintf("task a#7 pending v%d target=w retry=%d", ref.Version, now+delay))
	if done, _ := ExpireRetry(w.s, now+delay-1, Ref{ID: "a"}, long); done {
		w.Errorf("at %d: sent before the delay is over", now)
	}
	done, fx := ExpireRetry(w.s, now+delay, Ref{ID: "a"}, long)
	if !done {
		w.Errorf("at %d: not sent when the delay is over", now)
	}
	w.effects(fx, fmt.Sprintf("execute a#7 v%d to w", ref.Version))
	return now + delay
}

// A task that is released again and again is executed after a delay that doubles, up to the retry interval.
func TestReturnBacksOff(t *testing.T) {
	w := newWorld(t)
	now := w.back(5, w.hold("a", 1_000_000), 0)
	for _, delay := range []int64{100, 200, 400, 800, long, long} {
		now = w.again(now+1, delay)
	}
	// A task that was held for less than the interval has made no progress.
	now = w.again(now+long-1, long)
	now = w.again(now+long, 0)
	w.again(now+1, 100)
}

// A task that has waited for a promise has made progress.
func TestReturnAfterSuspend(t *testing.T) {
	w := newWorld(t)
	w.make("b", false, 1_000_000)
	now := w.back(5, w.hold("a", 1_000_000), 0)
	now = w.again(now+1, 100)
	h, err := Acquire(w.s, now, w.task("a").ref(), "p", long)
	w.ok(now, err)
	_, err = Suspend(w.s, now, h.Task.ref(), []Ref{{ID: "b"}}, false)
	w.ok(now, err)
	_, _, err = Chain(w.s, now, Ref{ID: "b"}, PromiseResolved, nil, long)
	w.ok(now, err)
	w.again(now, 0)
}

func TestReturnRefuses(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	w.make("waits", true, 1000)
	for _, tc := range []struct {
		now  int64
		ref  TaskRef
		code Code
		rule string
	}{
		{5, TaskRef{ID: "m"}, NotFound, RuleTask},
		{5, TaskRef{"a", 7, 2}, Conflict, RuleVersion},
		{5, TaskRef{"a", 8, 1}, Conflict, RuleIncarnation},
		{5, TaskRef{"waits", 7, 0}, Conflict, RuleState},
		{ttl, ref, Conflict, RuleState},
		{1000, ref, Conflict, RuleState},
	} {
		w.refused(tc.code, tc.rule, func() error {
			_, _, err := Return(w.s, tc.now, tc.ref, long)
			return err
		})
	}
}
