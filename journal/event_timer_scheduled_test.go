package journal

import "testing"

func TestTimerScheduled(t *testing.T) {
	b := started(t).accept(timer(0), TimerScheduled{Promise: kid(1), Duration: -1, FireAt: -1})
	b.refuse(RuleNextChild, timer(1))
	b.refuse(RuleNextChild, timer(3))
	if fired, ok := b.state.Timer(kid(1)); fired || !ok {
		t.Errorf("a new timer: fired %v, known %v", fired, ok)
	}
	unlessRunning(t, timer(1))
}
