package partition

import (
	"fmt"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// apart waits until partition 0 has a leader, and answers that member and another one.
func apart(t testing.TB, all []*member) (leader, other *member) {
	t.Helper()
	waitFor(t, "a leader", func() bool {
		leader, other = nil, nil
		for _, m := range all {
			if m.router.Replicas()[0].serving() != nil {
				leader = m
			} else {
				other = m
			}
		}
		return leader != nil && other != nil
	}, func() string { return "" })
	return leader, other
}

// TestTasksOfOtherNodesAreBoundedInBytes: what a worker that does not read holds at its node of other nodes' tasks is
// bounded, however many it has asked for and however large they are, and it gets all of them once it reads. Another
// worker gets its tasks meanwhile.
func TestTasksOfOtherNodesAreBoundedInBytes(t *testing.T) {
	all := newCluster(t, 1)
	leader, at := apart(t, all)
	const tasks, size = 40, 256 << 10
	w := at.Dispatcher().Attach(spec("slow", tasks, "f"))
	defer w.Detach()
	other := at.Dispatcher().Attach(spec("other", 1, "g"))
	defer other.Detach()
	must(t, at.router, startCmd("first", "first", "f", ""))
	waitFor(t, "the worker's capacity to be at the leader", func() bool {
		w.d.mu.Lock()
		defer w.d.mu.Unlock()
		return len(w.queue) == 1
	}, func() string { return "" })
	input := strings.Repeat("x", size)
	for i := range tasks - 1 {
		must(t, leader.router, startCmd(fmt.Sprint("s", i), fmt.Sprint("e", i), "f", input))
	}
	held := func() (bytes int64, queued int) {
		at.Dispatcher().mu.Lock()
		defer at.Dispatcher().mu.Unlock()
		for _, q := range w.queue {
			bytes += int64(len(q.Task.String()))
		}
		return bytes, len(w.queue)
	}
	waitFor(t, "the worker's queue to be full", func() bool {
		bytes, _ := held()
		return bytes >= workerTaskBytes
	}, func() string { return fmt.Sprint(held()) })
	for i := range 30 {
		id := fmt.Sprint("g", i)
		must(t, leader.router, startCmd("s"+id, id, "g", "small"))
		if token := deliver(t, other); token.Id != id {
			t.Errorf("the other worker got %v", token)
		}
		other.AddRoom(1)
		if bytes, queued := held(); bytes > workerTaskBytes+2*size {
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
	if bytes, queued := held(); queued != 0 || at.Dispatcher().taskBytes() != 0 {
		t.Errorf("%d tasks of %d bytes are left, %d are counted", queued, bytes, at.Dispatcher().taskBytes())
	}
}

// TestTaskBytes: one task of other nodes is always taken; more, while neither the worker's nor the node's bytes are used
// up. What ends gives them back.
func TestTaskBytes(t *testing.T) {
	d := newDispatcher()
	w, x := d.newWorker(spec("w", 1, "f"), false), d.newWorker(spec("x", 1, "f"), false)
	arrive := func(w *Worker, id string, size int64) {
		w.arrive(Delivery{Token: &perdurev1.TaskToken{Namespace: ns, Id: id, Incarnation: 1, Version: 1}, Task: &perdurev1.Task{}, size: size})
	}
	for _, step := range []struct {
		what string
		do   func()
		w, x bool
	}{
		{"nothing", func() {}, true, true},
		{"a small task", func() { arrive(w, "a", 1) }, true, true},
		{"a large one", func() { arrive(w, "b", workerTaskBytes) }, false, true},
		{"the node is full", func() { arrive(w, "c", nodeTaskBytes) }, false, true},
		{"the other has one", func() { arrive(x, "d", 1) }, false, false},
		{"the other takes it", func() { _, _ = x.Next(bg(t)) }, false, true},
		{"the worker ends", func() { arrive(x, "e", 1); w.end(true) }, true, true},
	} {
		step.do()
		if gotW, gotX := w.mayTake(), x.mayTake(); gotW != step.w || gotX != step.x {
			t.Errorf("%s: %v and %v, must be %v and %v", step.what, gotW, gotX, step.w, step.x)
		}
	}
	_, _ = x.Next(bg(t))
	if n := d.taskBytes(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
}
