package partition

import (
	"sync"
	"testing"

	"perdure/partition/workers"
)

// OnStarved reports queues of the server's own functions, when it is set and later. A worker of the server
// gets tasks within its capacity, and can take back capacity that no task uses.
func TestOwnFunctions(t *testing.T) {
	n := newMemNode(t, 1)
	d := n.Dispatcher()
	var mu sync.Mutex
	reported := 0
	listen := func(namespace, function string) {
		mu.Lock()
		defer mu.Unlock()
		if namespace != ns || function != "$http" {
			t.Errorf("reported %s in %s", function, namespace)
		}
		reported++
	}
	takeReported := func() int {
		mu.Lock()
		defer mu.Unlock()
		n := reported
		reported = 0
		return n
	}
	must(t, n.Router(), startCmd("start x", "x", "f", ""))
	must(t, n.Router(), callCmd("r", "a", "b"))
	d.OnStarved(listen)
	if takeReported() == 0 {
		t.Fatal("a queue that waits already is not reported")
	}

	w := d.AttachOwn(workers.Spec{ID: "own", Namespace: ns, Functions: []string{"$http"}, LeaseMS: 600_000, Capacity: 1})
	first := deliver(t, w)
	waitFor(t, "a queue that still waits to be reported", func() bool { return takeReported() > 0 }, func() string { return "nothing" })
	if n := d.Workers(); n != 0 {
		t.Errorf("a worker of the node itself is counted among %d streams", n)
	}
	w.AddCapacity(5)
	second := deliver(t, w)
	if first.Id == second.Id {
		t.Errorf("%s came twice", first.Id)
	}
	nothing(t, n, w)
	if got := w.TakeCapacity(1); got != 1 {
		t.Errorf("took %d units", got)
	}
	if got := w.TakeCapacity(10); got != 3 {
		t.Errorf("took %d units, want the 3 that are left", got)
	}
	takeReported()
	must(t, n.Router(), callCmd("r2", "a"))
	waitFor(t, "a call that no worker has capacity for to be reported", func() bool { return takeReported() > 0 }, func() string { return "nothing" })
	nothing(t, n, w)

	d.OnStarved(nil)
	takeReported()
	must(t, n.Router(), callCmd("r3", "a"))
	nothing(t, n, w)
	if takeReported() != 0 {
		t.Error("called although OnStarved was ended")
	}
	w.Detach()
}
