package memlimit

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go's collector lets the heap double before it runs. A small heap fills again within a second under load, and collecting
// it so often takes a tenth of a node's CPU. Of a large one the larger part are caches, memtables and payloads: they hold
// no pointers, so collecting them costs little, and doubling them costs the machine's memory. So the heap may grow by
// leastHeadroom, to five times its size at most while it is small, and by a quarter when it is large.
const (
	leastHeadroom = 128 << 20
	leastPercent  = 25
	mostPercent   = 400
	// usualPercent is Go's own.
	usualPercent = 100
	// sampleEvery is the interval at which FollowHeap reads the live heap.
	sampleEvery = 200 * time.Millisecond
)

// Percent is the growth, in percent of the live heap, at which the collector is to run: GOGC.
func Percent(live uint64) int {
	if live == 0 {
		return mostPercent
	}
	return int(min(max(leastHeadroom*100/live, leastPercent), mostPercent))
}

// FollowHeap sets the collector's percentage by the live heap, until ctx ends. It blocks. The operator's GOGC
// takes precedence: do not call FollowHeap if it is set.
func FollowHeap(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for now := usualPercent; ; {
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			if next := Percent(sample[0].Value.Uint64()); next != now {
				debug.SetGCPercent(next)
				now = next
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
