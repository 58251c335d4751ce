package partition

import (
	"fmt"
	"strings"
	"testing"

	"perdure/partition/workers"
)

// apart waits until partition 0 has a leader, and answers that member and another one.
func apart(t testing.TB, all []*member) (leader, other *member) {
	t.Helper()
	waitFor(t, "a leader", func() bool {
		leader, other = nil, nil
		for _, m := range all {
			if m.router.Replicas()[0].Serving() {
				leader = m
			} else {
				other = m
			}
		}
		return leader != nil && other != nil
	}, func() string { return "" })
	return leader, other
}

// TestTasksOfOtherNodesAreBoundedInBytes: a worker that does not read holds a bounded number of bytes of
// other nodes' tasks at its node, however many and however large they are. It gets all of them once it reads.
// Another worker gets its tasks meanwhile.
func TestTasksOfOtherNodesAreBoundedInBytes(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 1)
	leader, at := apart(t, all)
	const tasks, size = 40, 256 << 10
	w := at.Dispatcher().Attach(spec("slow", tasks, "f"))
	defer w.Detach()
	other := at.Dispatcher().Attach(spec("other", 1, "g"))
	defer other.Detach()
	must(t, at.router, startCmd("first", "first", "f", ""))
	waitFor(t, "the worker's capacity to be at the leader", func() bool {
		return w.Queued() == 1
	}, func() string { return "" })
	input := strings.Repeat("x", size)
	for i := range tasks - 1 {
		must(t, leader.router, startCmd(fmt.Sprint("s", i), fmt.Sprint("e", i), "f", input))
	}
	held := func() (bytes int64, queued int) { return at.Dispatcher().TaskBytes(), w.Queued() }
	waitFor(t, "the worker's queue to be full", func() bool {
		bytes, _ := held()
		return bytes >= workers.WorkerTaskBytes
	}, func() string { return fmt.Sprint(held()) })
	for i := range 30 {
		id := fmt.Sprint("g", i)
		must(t, leader.router, startCmd("s"+id, id, "g", "small"))
		if token := deliver(t, other); token.Id != id {
			t.Errorf("the other worker got %v", token)
		}
		other.AddCapacity(1)
		if bytes, queued := held(); bytes > workers.WorkerTaskBytes+2*size {
			t.Fatalf("%d tasks of %d bytes wait for a worker that does not read", queued, bytes)
		}
	}
	got := map[string]bool{}
	for range tasks {
		token := deliver(t, w)
		got[token.Id] = true
	}
	if len(got) != tasks {
		t.Errorf("%d of %d tasks came", len(got), tasks)
	}
	if bytes, queued := held(); queued != 0 || bytes != 0 {
		t.Errorf("%d tasks of %d bytes are left", queued, bytes)
	}
}
