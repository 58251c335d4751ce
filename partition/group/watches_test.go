package group

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/watch"
)

// TestWatchOfAnotherNodeIsRefused: a node that has all the watches it may have refuses another node's, by
// name and with a hint when to ask again.
func TestWatchOfAnotherNodeIsRefused(t *testing.T) {
	n := newMemNode(t, 1)
	long := strings.Repeat("x", 1<<20) // so that few watches reach the bound
	for i := 0; ; i++ {
		w := n.shared.Watches.Add(watch.Settled, ns, fmt.Sprint(long, i))
		defer w.Stop()
		if !w.Registered() {
			break
		}
	}
	full := n.shared.Watches.Waiting()
	err := n.router.all[0].AwaitChange(bg(t), &commandv1.WatchRequest{Namespace: ns, Id: long, WaitMs: 60_000})
	if reasonOf(err) != perdurev1.Reason_REASON_OVERLOADED || !strings.Contains(err.Error(), "watches") {
		t.Errorf("%v", err)
	}
	if got := n.shared.Watches.Waiting(); got != full {
		t.Errorf("%d watches are counted, %d are registered", got, full)
	}
}
