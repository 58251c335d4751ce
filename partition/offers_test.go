package partition

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm"
	"perdure/fsm/machine"
	"perdure/fsm/state"
)

// crowd is a dispatcher of one partition with many workers, and no node.
func crowd(many int, functions func(k int) []string) (*Dispatcher, *ledQueues) {
	d := newDispatcher()
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range many {
		d.sit(WorkerSpec{ID: fmt.Sprint("w", k), Namespace: ns, Functions: functions(k), LeaseMS: 1000, Room: 8}, 1, nil)
	}
	led := &ledQueues{pending: map[state.Queue]bool{}, assigning: true}
	d.led[0] = led
	return d, led
}

// An entry carries a bounded number of offers, of all workers in turn; those that something waits for come
// first.
func TestOffersAreBounded(t *testing.T) {
	const many = 150
	d, led := crowd(many, func(k int) []string { return []string{fmt.Sprint("f", k)} })
	seen := map[string]bool{}
	for range 3 {
		room := d.reserve(0)
		if len(room) != maxEntryOffers {
			t.Errorf("an entry has %d offers", len(room))
		}
		for _, b := range room {
			seen[b.offer.Worker] = true
		}
	}
	if len(seen) != many {
		t.Errorf("three entries have offers of %d workers of %d", len(seen), many)
	}
	for _, k := range []int{0, 77, 149} {
		clear(led.pending)
		led.pending[state.Queue{Namespace: ns, Function: fmt.Sprint("f", k)}] = true
		if room := d.reserve(0); room[0].offer.Worker != fmt.Sprint("w", k) {
			t.Errorf("something waits for w%d, the first offer is of %s", k, room[0].offer.Worker)
		}
	}
	long := strings.Repeat("f", 200)
	d, _ = crowd(many, func(k int) []string { return []string{fmt.Sprint(long, k), fmt.Sprint(long, "-", k)} })
	size := 0
	room := d.reserve(0)
	for _, f := range room {
		size += len(f.offer.Functions[0]) + len(f.offer.Functions[1])
	}
	if size > maxEntryOfferBytes+500 || len(room) < 10 {
		t.Errorf("%d offers name functions of %d bytes", len(room), size)
	}
}

// What is applied while a leadership begins, and after it has read the state, is not lost to it.
func TestEffectsWhileALeadershipBegins(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.router.Replicas()[0], n.Dispatcher()
	w := d.Attach(spec("w", 1, "f"))
	defer w.Detach()
	must(t, n.router, promiseCmd("due", 1<<45)) // so that there is a deadline to be read
	r.serving().revoke()
	d.mu.Lock()
	l := r.startLeadership()
	defer l.revoke()
	waitFor(t, "it to have read the state", func() bool { return l.timer.next.Load() != 0 }, func() string { return "" })
	b, err := fsm.EncodeEntry(&commandv1.Entry{TimeMs: r.clock.Now().UnixMilli(), Commands: []*commandv1.Command{startCmd("s", "x", "f", "")}})
	if err != nil {
		t.Fatal(err)
	}
	future := r.raft.Apply(b, patience)
	if err := future.Error(); err != nil {
		t.Fatal(err)
	}
	go r.effects(&future.Response().(*machine.Result).Effects, nil)
	waitFor(t, "the effects to find nobody", func() bool { return r.unclaimed.Load() > 0 }, func() string { return "" })
	d.mu.Unlock()
	if token := deliver(t, w); token.Id != "x" {
		t.Errorf("told of %v", token)
	}
}
