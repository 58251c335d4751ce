package partition

import (
	"errors"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestVerifyProgress: a verification says how far it is every verifyEvery, also while it judges one object; once an
// event cannot be sent, it says nothing more and the audit learns of the error.
func TestVerifyProgress(t *testing.T) {
	clock := newHandClock()
	events := make(chan *perdurev1.VerifyProgress, 8)
	gone := errors.New("the caller is gone")
	var refused bool // guarded by the progress's lock
	v := &verifyProgress{n: &Node{clock: clock}, send: func(ev *perdurev1.VerifyEvent) error {
		if refused {
			return gone
		}
		events <- ev.GetProgress()
		return nil
	}}
	stop := v.start()
	second := func() {
		t.Helper()
		waitFor(t, "the next event to be due", func() bool { return clock.armed(verifyEvery) }, func() string { return "" })
		clock.advance(verifyEvery)
	}
	for range 3 {
		v.judged(2)
	}
	for range 2 { // nothing more is judged in between
		second()
		if p := <-events; p.Partition != 2 || p.Keys != 3 {
			t.Errorf("it says %d keys of partition %d", p.Keys, p.Partition)
		}
	}
	v.judged(3)
	second()
	if p := <-events; p.Partition != 3 || p.Keys != 1 {
		t.Errorf("then %d keys of partition %d", p.Keys, p.Partition)
	}
	v.mu.Lock()
	refused = true
	v.mu.Unlock()
	second()
	waitFor(t, "the error to be known", func() bool { return v.failed() != nil }, func() string { return "" })
	if err := v.say(&perdurev1.VerifyEvent{}); !errors.Is(err, gone) {
		t.Errorf("what comes after the error: %v", err)
	}
	stop()
	if len(clock.timers()) != 0 || len(events) != 0 {
		t.Errorf("after the end %d timers wait, %d events were sent", len(clock.timers()), len(events))
	}
}
