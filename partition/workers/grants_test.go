package workers

import (
	"fmt"
	"strings"
	"testing"

	"perdure/fsm/state"
)

// crowd is a dispatcher of one partition with many workers.
func crowd(t *testing.T, many int, functions func(k int) []string) (*Dispatcher, *ledPartition) {
	d := newStage(t).Dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range many {
		d.attach(Spec{ID: fmt.Sprint("w", k), Namespace: ns, Functions: functions(k), LeaseMS: 1000, Capacity: 8}, 1, nil)
	}
	d.led[0].assigning = true
	return d, d.led[0]
}

// An entry carries a bounded number of grants, of all workers in turn; those that tasks wait for come first.
func TestGrantsAreBounded(t *testing.T) {
	const many = 150
	d, led := crowd(t, many, func(k int) []string { return []string{fmt.Sprint("f", k)} })
	seen := map[string]bool{}
	for range 3 {
		room := d.Reserve(0)
		if len(room) != maxEntryGrants {
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
		if room := d.Reserve(0); room[0].offer.Worker != fmt.Sprint("w", k) {
			t.Errorf("something waits for w%d, the first offer is of %s", k, room[0].offer.Worker)
		}
	}
	long := strings.Repeat("f", 200)
	d, _ = crowd(t, many, func(k int) []string { return []string{fmt.Sprint(long, k), fmt.Sprint(long, "-", k)} })
	size := 0
	room := d.Reserve(0)
	for _, f := range room {
		size += len(f.offer.Functions[0]) + len(f.offer.Functions[1])
	}
	if size > maxEntryGrantBytes+500 || len(room) < 10 {
		t.Errorf("%d offers name functions of %d bytes", len(room), size)
	}
}
