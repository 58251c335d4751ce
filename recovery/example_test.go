package recovery_test

import (
	"fmt"

	"perdure/recovery"
)

// A worker asks for something, waits for it, and is woken when it is there.
func Example() {
	const retry, ttl = 30_000, 60_000
	s := recovery.NewMemStore()
	now := int64(1_700_000_000_000)

	order, _ := recovery.CreateAcquired(s, now, recovery.CreateRequest{
		ID: "order-42", Incarnation: 1, Target: "shop", TimeoutAt: now + 86_400_000,
	}, "worker-1", ttl)
	_, _, _ = recovery.Create(s, now, recovery.CreateRequest{
		ID: "order-42:0", Incarnation: 2, External: true, TimeoutAt: now + 3_600_000,
	}, retry)

	mine := recovery.TaskRef{ID: "order-42", Version: order.Task.Version}
	asleep, _ := recovery.Suspend(s, now, mine, []recovery.Ref{{ID: "order-42:0"}}, false)
	fmt.Println(asleep.Task.State)

	_, fx, _ := recovery.Chain(s, now+5, recovery.Ref{ID: "order-42:0"}, recovery.PromiseResolved, []byte("yes"), retry)
	for _, e := range fx.Executes {
		fmt.Println("execute", e.ID, "at version", e.Version, "on", e.Target)
		h, _ := recovery.Acquire(s, now+6, recovery.TaskRef{ID: e.ID, Version: e.Version}, "worker-2", ttl)
		fmt.Println(h.Task.State, "at version", h.Task.Version)
	}

	// The one who held it before holds nothing now.
	_, err := recovery.Fulfill(s, now+7, mine, recovery.PromiseResolved, nil)
	fmt.Println(err)

	// Output:
	// suspended
	// execute order-42 at version 1 on shop
	// acquired at version 2
	// cannot fulfill "order-42": task has version 2, request names 1
}
