package journal

import "testing"

func TestTimerFired(t *testing.T) {
	b := started(t, timer(0), scheduled(1), timer(2), awaiting(AwaitSingle, 0))
	b.refuse(RuleFiredRequiresScheduled, TimerFired{Promise: kid(1)})
	b.refuse(RuleFiredRequiresScheduled, TimerFired{Promise: kid(3)})
	b.refuse(RuleFiredRequiresScheduled, TimerFired{})
	b.accept(TimerFired{Promise: kid(0)})
	b.refuse(RuleTimerFiresOnce, TimerFired{Promise: kid(0)})
	if fired, ok := b.state.Timer(kid(0)); !fired || !ok {
		t.Errorf("a fired timer: fired %v, known %v", fired, ok)
	}
	b.accept(ExecutionResumed{}, CancelRequested{}, TimerFired{Promise: kid(2)})
	unlessOpen(t, TimerFired{Promise: kid(0)})
}
