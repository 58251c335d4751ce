package state

import (
	"testing"

	"perdure/recovery"
)

func TestRetryBound(t *testing.T) {
	for policy, want := range map[string]int{
		"": 3, "attempts=": 3, "attempts=0": 3, "attempts=-1": 3, "attempts=x": 3, "tries=9": 3, " attempts=9": 3,
		"attempts=99999999999999999999": 3,
		"attempts=1":                    0, "attempts=7": 6,
		"attempts=7 initial=100ms max=10s factor=2": 6,
		"attempts=12, initial=1s":                   11,
		"attempts=2;x":                              1,
	} {
		if got := RetryBound(policy); got != want {
			t.Errorf("RetryBound(%q) = %d, want %d", policy, got, want)
		}
	}
}

// A settled promise gives its awaiters an outcome that can be read, whatever state it is in.
func TestOutcomeOf(t *testing.T) {
	for _, c := range []struct {
		promise recovery.Promise
		failure string
		data    string
	}{
		{recovery.Promise{State: recovery.PromiseResolved}, "", "null"},
		{recovery.Promise{State: recovery.PromiseResolved, Value: recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("1")})}, "", "1"},
		{recovery.Promise{State: recovery.PromiseRejectedTimedout, Value: []byte("ignored")}, FailureTimeout, "null"},
		{recovery.Promise{State: recovery.PromiseRejectedCanceled}, FailureCancelled, "null"},
		{recovery.Promise{State: recovery.PromiseRejectedCanceled, Value: EncodeFailure("own", "")}, "own", "null"},
		{recovery.Promise{State: recovery.PromiseRejected, Value: EncodeFailure("own", "")}, "own", "null"},
	} {
		b := OutcomeOf(c.promise)
		o, err := recovery.DecodeOutcome(b)
		if err != nil || (o.Failure == nil) != (c.failure == "") || o.Failure != nil && o.Failure.Type != c.failure || string(DataOf(b)) != c.data {
			t.Errorf("%+v: %+v, %v, data %s", c.promise, o, err, DataOf(b))
		}
	}
}
