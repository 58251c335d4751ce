package recovery_test

import (
	"fmt"
	"testing"

	"perdure/recovery"
)

// BenchmarkWait is an execution that waits for one promise: created and acquired, suspended, resumed by the promise's
// settlement, acquired again, fulfilled.
func BenchmarkWait(b *testing.B) {
	const now, retry, ttl = 1_700_000_000_000, 30_000, 60_000
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		s := recovery.NewMemStore()
		id := fmt.Sprintf("order-%d", n)
		child := recovery.Ref{ID: id + ":0"}
		made, err := recovery.CreateAcquired(s, now, recovery.CreateRequest{ID: id, Incarnation: 1, Target: "shop", TimeoutAt: now + 86_400_000}, "worker", ttl)
		must(err)
		_, _, err = recovery.Create(s, now, recovery.CreateRequest{ID: child.ID, Incarnation: 2, External: true, TimeoutAt: now + 3_600_000}, retry)
		must(err)
		_, err = recovery.Suspend(s, now, recovery.TaskRef{ID: id, Version: made.Task.Version}, []recovery.Ref{child}, false)
		must(err)
		_, fx, err := recovery.Chain(s, now, child, recovery.PromiseResolved, []byte("yes"), retry)
		must(err)
		h, err := recovery.Acquire(s, now, recovery.TaskRef{ID: id, Version: fx.Executes[0].Version}, "worker", ttl)
		must(err)
		_, err = recovery.Fulfill(s, now, recovery.TaskRef{ID: id, Version: h.Task.Version}, recovery.PromiseResolved, []byte("done"))
		must(err)
	}
}
