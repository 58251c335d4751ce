package backup

import (
	"context"
	"sync"
	"time"
)

// limiter bounds the bytes per second of all that share it.
type limiter struct {
	rate int64
	now  func() time.Time
	// sleep waits, or returns ctx's error.
	sleep func(ctx context.Context, d time.Duration) error

	mu sync.Mutex
	// free is when all bytes that were taken so far are paid for.
	free time.Time
}

// take waits until n more bytes are within the rate. A rate of 0 is none.
func (l *limiter) take(ctx context.Context, n int64) error {
	if l.rate <= 0 || n <= 0 {
		return ctx.Err()
	}
	l.mu.Lock()
	now := l.now()
	if l.free.Before(now) {
		l.free = now
	}
	wait := l.free.Sub(now)
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	l.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	return l.sleep(ctx, wait)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
