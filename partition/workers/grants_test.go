package workers

import (
	"fmt"
	"slices"
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

// An entry reserves half of a worker's free credit, or all of it if tasks wait for the worker and the entries before it
// were of the same partition.
func TestCreditThatTasksWaitFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		here   string
		before []uint32 // partitions of the entries before
		want   uint32
	}{
		{"no task waits", "", []uint32{0, 0, 0, 0, 0}, 4},
		{"tasks wait", "f", []uint32{0, 0, 0, 0}, 8},
		{"tasks of another worker wait", "g", []uint32{0, 0, 0, 0, 0}, 4},
		{"too few entries before", "f", []uint32{0, 0, 0}, 4},
		{"an entry of another partition was the last", "f", []uint32{0, 0, 0, 0, 0, 1}, 4},
		{"one was among the last", "f", []uint32{0, 0, 0, 0, 1, 0, 0, 0}, 4},
		{"one was before them", "f", []uint32{1, 0, 0, 0, 0}, 8},
	} {
		d, led := crowd(t, 1, func(int) []string { return []string{"f"} })
		d.led[1] = &ledPartition{lead: led.lead, pending: map[state.Queue]bool{}, assigning: true}
		for _, partition := range c.before {
			d.Unreserve(d.Reserve(partition))
		}
		if c.here != "" {
			led.pending[queueOf(c.here)] = true
		}
		reserved := d.Reserve(0)
		if len(reserved) != 1 || reserved[0].grant.Credit != c.want {
			t.Errorf("%s: the grants are %v, want %d units", c.name, Grants(reserved), c.want)
		}
	}
}

// A session serves the queues of its digests, and those that are pinned to none; without digests all queues of its
// functions. Its grants carry the digests.
func TestDigestsServed(t *testing.T) {
	d, _ := crowd(t, 1, func(int) []string { return []string{"f"} })
	s := d.order[0]
	for _, c := range []struct {
		digests []string
		want    string
	}{{nil, ", v1, v2"}, {[]string{"v1"}, ", v1"}, {[]string{"v2", "v1"}, ", v1, v2"}, {[]string{"v3"}, ""}} {
		s.Digests = c.digests
		var served []string
		for _, digest := range []string{"", "v1", "v2"} {
			if s.serves(state.Queue{Namespace: ns, Function: "f", Digest: digest}) {
				served = append(served, digest)
			}
		}
		if got := strings.Join(served, ", "); got != c.want {
			t.Errorf("a worker of %q serves %q, must serve %q", c.digests, got, c.want)
		}
		reserved := d.Reserve(0)
		if len(reserved) != 1 || !slices.Equal(reserved[0].grant.Digests, c.digests) {
			t.Errorf("a worker of %q has the grants %v", c.digests, Grants(reserved))
		}
		d.Unreserve(reserved)
	}
	if s.serves(state.Queue{Namespace: ns, Function: "g"}) || s.serves(state.Queue{Namespace: "other", Function: "f"}) {
		t.Error("it serves another function, or another namespace")
	}
}
