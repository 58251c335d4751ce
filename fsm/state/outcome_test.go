package machine

import (
	"testing"

	"perdure/fsm/state"
)

// TestRetryBound reads the number of retries out of the texts that workers write.
func TestRetryBound(t *testing.T) {
	for policy, want := range map[string]int{
		"": 3, "attempts=": 3, "attempts=0": 3, "attempts=-1": 3, "attempts=x": 3, "tries=9": 3, " attempts=9": 3,
		"attempts=99999999999999999999": 3,
		"attempts=1":                    0, "attempts=7": 6,
		"attempts=7 initial=100ms max=10s factor=2": 6,
		"attempts=12, initial=1s":                   11,
		"attempts=2;x":                              1,
	} {
		if got := state.RetryBound(policy); got != want {
			t.Errorf("retryBound(%q) = %d, want %d", policy, got, want)
		}
	}
}
