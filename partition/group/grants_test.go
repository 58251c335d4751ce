package group

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Tasks that an entry brings to an ended stream do not count against the next stream's capacity: others get
// them.
func TestReattachWhileAnEntryIsUnderWay(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	first := d.Attach(spec("w", 4, "f"))
	// Two entries with the first stream's credit are in flight, and bring it tasks.
	disk.Hold()
	for k := range 2 {
		go func() { _, _ = r.Propose(bg(t), startCmd(fmt.Sprint("s", k), fmt.Sprint("x", k), "f", "")) }()
		waitFor(t, "an entry to be under way", func() bool { return len(n.router.Replicas()[0].slots) == k+1 }, func() string { return "" })
	}
	second := d.Attach(spec("w", 1, "f"))
	if _, ok := first.Next(bg(t)); ok {
		t.Error("the first stream continues")
	}
	disk.Release()
	deliver(t, second)
	nothing(t, n, second) // its capacity is used up
	waitFor(t, "the other task to be free", func() bool { return len(held(t, n.router.Replicas()[0], "w")) == 1 },
		func() string { return fmt.Sprint(held(t, n.router.Replicas()[0], "w")) })
	other := d.Attach(spec("other", 5, "f"))
	defer other.Detach()
	deliver(t, other)
	nothing(t, n, other)
	second.Detach()
}

func held(t testing.TB, r *Replica, worker string) []*perdurev1.TaskToken {
	t.Helper()
	reply, _, err := r.Query(bg(t), Linearizable, &commandv1.Query{Kind: &commandv1.Query_Held{Held: &commandv1.HeldQuery{Worker: worker}}})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetHeld().Tasks
}
