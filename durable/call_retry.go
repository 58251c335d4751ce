package durable

import (
	"math"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// CallRetry makes the cluster run a failed child again, as its policy says, from its beginning and with the
// same input, whether or not the parent has a worker. Steps of a failed attempt run again; children of it are
// gone. The signals that an attempt has got are delivered to the next one. A failure marked by Permanent is
// final, and a CallTimeout is for all attempts together. It needs feature level 6.
func CallRetry(p RetryPolicy) CallOption {
	return func(o *callOptions) { o.retry = &p }
}

// policy is the child's retry policy as the journal has it, and as its start has it; nil without retries.
func (o *callOptions) retryPolicy() (string, *perdurev1.ChildRetry) {
	if o.retry == nil {
		return "attempts=1", nil
	}
	p := o.retry.withDefaults()
	return p.String(), &perdurev1.ChildRetry{InitialMs: max(1, client.Millis(p.Initial)), MaxMs: max(1, client.Millis(p.Max)),
		FactorPercent: uint32(math.Round(min(p.Factor, 1000) * 100)), JitterPercent: uint32(math.Round(p.Jitter * 100))}
}
