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
		reserved := d.Reserve(0)
		if len(reserved) != maxEntryGrants {
			t.Errorf("an entry has %d grants", len(reserved))
		}
		for _, b := range reserved {
			seen[b.grant.Worker] = true
		}
	}
	if len(seen) != many {
		t.Errorf("three entries have grants of %d workers of %d", len(seen), many)
	}
	for _, k := range []int{0, 77, 149} {
		clear(led.pending)
		led.pending[state.Queue{Namespace: ns, Function: fmt.Sprint("f", k)}] = true
		if reserved := d.Reserve(0); reserved[0].grant.Worker != fmt.Sprint("w", k) {
			t.Errorf("something waits for w%d, the first grant is of %s", k, reserved[0].grant.Worker)
		}
	}
	long := strings.Repeat("f", 200)
	d, _ = crowd(t, many, func(k int) []string { return []string{fmt.Sprint(long, k), fmt.Sprint(long, "-", k)} })
	size := 0
	reserved := d.Reserve(0)
	for _, f := range reserved {
		size += len(f.grant.Functions[0]) + len(f.grant.Functions[1])
	}
	if size > maxEntryGrantBytes+500 || len(reserved) < 10 {
		t.Errorf("%d grants name functions of %d bytes", len(reserved), size)
	}
}
