package memlimit

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// A small heap may grow to five times its size, a large one by a quarter; between them the growth is the same number of
// bytes.
func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1: 400, 32 << 20: 400, 64 << 20: 200, 128 << 20: 100, 256 << 20: 50, 512 << 20: 25, 4 << 30: 25} {
		if got := Percent(live); got != want {
			t.Errorf("%d live bytes: %d percent, want %d", live, got, want)
		}
	}
}

// The collector's percentage follows the live heap, down and up again.
func TestFollowHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		FollowHeap(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	until := func(what string, ok func(percent int) bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(20 * time.Second); ; <-tick.C {
			percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
			metrics.Read(percent)
			now := int(percent[0].Value.Uint64())
			if ok(now) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the percentage stays at %d", what, now)
			}
		}
	}
	held := make([]byte, 640<<20)
	debug.FreeOSMemory() // a collection, so that the live heap is known
	until("640 MiB are held", func(p int) bool { return p == 25 })
	runtime.KeepAlive(held)
	debug.FreeOSMemory()
	until("nothing is held", func(p int) bool { return p > usualPercent })
}
