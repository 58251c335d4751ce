package group

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// TestWatchesAreBounded: watches are bounded in pieces and in bytes. One beyond the bounds gets no value and
// costs nothing; a stopped one frees its share.
func TestWatchesAreBounded(t *testing.T) {
	for _, c := range []struct {
		what string
		id   string
		most int
	}{
		{"pieces", "", maxWatches},
		{"bytes", strings.Repeat("x", 2000), maxWatchBytes / (2000 + 8 + watchCost)},
	} {
		w := &Watches{}
		var all []*Watch
		ref := func(i int) string { return fmt.Sprintf("%s%08d", c.id, i) }
		for i := range c.most + 10 {
			x := w.Add(Settled, "", ref(i))
			all = append(all, x)
			if x.registered != (i < c.most) {
				t.Fatalf("%s: watch %d is registered: %v", c.what, i, x.registered)
			}
		}
		last := all[len(all)-1]
		w.wake(Settled, []state.Ref{{ID: ref(0)}, last.key.ref})
		if len(all[0].C) != 1 || len(last.C) != 0 {
			t.Errorf("%s: %d values for the first, %d for the last", c.what, len(all[0].C), len(last.C))
		}
		if n := w.bytes.Load(); n > maxWatchBytes || w.waiting.Load() != int64(c.most) {
			t.Errorf("%s: %d watches of %d bytes", c.what, w.waiting.Load(), n)
		}
		all[0].Stop()
		if x := w.Add(Settled, "", ref(0)); !x.registered {
			t.Errorf("%s: no place after one was stopped", c.what)
		} else {
			x.Stop()
		}
		for _, x := range all[1:] {
			x.Stop()
		}
		if w.bytes.Load() != 0 || w.waiting.Load() != 0 || len(w.byKey) != 0 {
			t.Errorf("%s: %d watches of %d bytes are left", c.what, w.waiting.Load(), w.bytes.Load())
		}
	}
}

// TestWatchOfAnotherNodeIsRefused: a node that has all the watches it may have refuses another node's, by name and with a
// hint when to ask again.
func TestWatchOfAnotherNodeIsRefused(t *testing.T) {
	n := newMemNode(t, 1)
	n.shared.Watches.waiting.Add(maxWatches)
	defer n.shared.Watches.waiting.Add(-maxWatches)
	err := n.router.all[0].Await(bg(t), &commandv1.WatchRequest{Namespace: ns, Id: "p", WaitMs: 60_000})
	if reasonOf(err) != perdurev1.Reason_REASON_OVERLOADED || !strings.Contains(err.Error(), "watches") {
		t.Errorf("%v", err)
	}
	if got := n.shared.Watches.Waiting(); got != maxWatches {
		t.Errorf("%d are counted", got)
	}
}
