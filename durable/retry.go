package durable

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// RetryPolicy says how often and how fast a failing step is retried. A zero field takes its default.
type RetryPolicy struct {
	// MaxAttempts counts all attempts, the first included; default 4. 1 means no retry.
	MaxAttempts int
	// Initial is the pause before the second attempt (default 100 ms); each later one is Factor (default
	// 2) times as long, up to Max (default 10 s).
	Initial, Max time.Duration
	Factor       float64
	// Jitter, from 0 to 1, is the part of each pause that is random: a pause of d becomes one from (1-Jitter)*d to d.
	// An operation with another jitter fails with the type bad_request.
	Jitter float64
}

// maxAttempts keeps the number of attempts within the wire's uint32, and sane.
const maxAttempts = 1 << 30

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts <= 0 {
		p.MaxAttempts = 4
	}
	p.MaxAttempts = min(p.MaxAttempts, maxAttempts)
	if p.Initial <= 0 {
		p.Initial = 100 * time.Millisecond
	}
	if p.Max <= 0 {
		p.Max = 10 * time.Second
	}
	if p.Factor < 1 {
		p.Factor = 2
	}
	return p
}

// check refuses a jitter that is no part of a pause.
func (p RetryPolicy) check() error {
	if p.Jitter >= 0 && p.Jitter <= 1 {
		return nil
	}
	return &Error{Type: TypeBadRequest, Message: fmt.Sprintf("a jitter of %v is not from 0 to 1", p.Jitter), NonRetryable: true}
}

// String is the policy as it is recorded. It begins with attempts=N, which is the bound the cluster keeps.
func (p RetryPolicy) String() string {
	p = p.withDefaults()
	if p == (RetryPolicy{MaxAttempts: 4, Initial: 100 * time.Millisecond, Max: 10 * time.Second, Factor: 2}) {
		return "attempts=4 initial=100ms max=10s factor=2"
	}
	text := fmt.Sprintf("attempts=%d initial=%v max=%v factor=%v", p.MaxAttempts, p.Initial, p.Max, p.Factor)
	if p.Jitter > 0 {
		text += fmt.Sprintf(" jitter=%v", p.Jitter)
	}
	return text
}

// pause is how long to wait after the n-th attempt (from 1) failed.
func (p RetryPolicy) pause(n uint32) time.Duration {
	d := float64(p.Initial)
	for range min(n, 1000) - 1 {
		if d *= p.Factor; d >= float64(p.Max) {
			break
		}
	}
	d = min(d, float64(p.Max))
	return time.Duration(d - d*p.Jitter*rand.Float64())
}

// attemptsOf reads the number of attempts out of a recorded policy; def when it has none.
func attemptsOf(policy string, def int) int {
	first, _, _ := strings.Cut(policy, " ")
	text, ok := strings.CutPrefix(first, "attempts=")
	if n, err := strconv.Atoi(text); ok && err == nil && n > 0 {
		return n
	}
	return def
}
