package auditor

import (
	"errors"
	"testing"
	"testing/synctest"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/internal/testkit"
)

// TestProgress: a verification says how far it is every verifyEvery, also while it checks one object; once an
// event cannot be sent, it says nothing more and the audit learns of the error.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []*perdurev1.VerifyProgress
		gone := errors.New("the caller is gone")
		refused := false
		v := &progress{clock: clock.System{}, send: func(ev *perdurev1.VerifyEvent) error {
			if refused {
				return gone
			}
			events = append(events, ev.GetProgress())
			return nil
		}}
		stop := v.start()
		set := func(refuse bool) {
			v.mu.Lock()
			defer v.mu.Unlock()
			refused, events = refuse, nil
		}
		says := func(partition uint32, keys uint64) {
			t.Helper()
			set(false)
			testkit.Advance(verifyEvery)
			v.mu.Lock()
			defer v.mu.Unlock()
			if len(events) != 1 || events[0].Partition != partition || events[0].Keys != keys {
				t.Errorf("it says %v, not %d keys of partition %d", events, keys, partition)
			}
		}
		for range 3 {
			v.checked(2)
		}
		says(2, 3)
		says(2, 3) // nothing more was checked in between
		v.checked(3)
		says(3, 1)
		set(true)
		testkit.Advance(verifyEvery)
		if err := v.failed(); !errors.Is(err, gone) {
			t.Errorf("the audit learns %v", err)
		}
		set(false)
		if err := v.say(&perdurev1.VerifyEvent{}); !errors.Is(err, gone) || len(events) != 0 {
			t.Errorf("what comes after the error: %v, %d events", err, len(events))
		}
		stop()
	})
}
