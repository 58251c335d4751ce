package rpc_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/internal/freeport"
)

// freeAddr is an address without a listener, by either protocol: gossip uses both.
func freeAddr(t *testing.T) string { return freeport.RPC.Addr(t) }

// threeNodes is a cluster of three in this process, each as a client sees it.
func threeNodes(t *testing.T) []*world {
	t.Helper()
	var addrs []string
	for range 6 { // those of the gossip, then those of the peer ports
		addrs = append(addrs, freeAddr(t))
	}
	nodes, errs := make([]*embed.Node, 3), make([]error, 3)
	var all sync.WaitGroup
	for i := range 3 {
		cfg := nodeConfig(t.TempDir())
		cfg.NodeID, cfg.Partitions, cfg.BootstrapExpect = fmt.Sprint("n", i+1), 4, 3
		cfg.GossipAddr, cfg.Join, cfg.PeerAddr = addrs[i], addrs[:3], addrs[3+i]
		// Nothing here waits for a silent leader, and a node that is not given a core for a while is none.
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = 5*time.Second, 5*time.Second, 5*time.Second
		cfg.CommitTimeout = 50 * time.Millisecond // the followers learn soon what was committed
		all.Go(func() { nodes[i], errs[i] = begin(cfg) })
	}
	all.Wait()
	var worlds []*world
	for i, n := range nodes {
		if errs[i] != nil {
			t.Fatalf("node %d did not start: %v", i+1, errs[i])
		}
		t.Cleanup(func() {
			if err := finish(n); err != nil {
				t.Errorf("the node did not stop in order: %v", err)
			}
		})
		worlds = append(worlds, connect(t, n))
	}
	for _, w := range worlds {
		until(t, "the cluster to be ready", w.node.NotReady)
	}
	return worlds
}

// TestWorkAtAnyNode attaches a worker to one node: it gets the tasks of executions started at the others, for
// any leader of their partition. A caller that waits at the third node gets the result. A node that stops
// interrupts none of it.
func TestWorkAtAnyNode(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	at, starts, waits := nodes[0], nodes[1], nodes[2]
	s := at.hello(&perdurev1.Hello{WorkerId: "w", Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	const many = 24 // of four partitions
	serve := func(prefix string, n int) map[string]*perdurev1.Task {
		t.Helper()
		tasks := map[string]*perdurev1.Task{}
		for range n {
			task := s.task()
			tasks[task.Token.Id] = task
			m := s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed(prefix)}, Credit: 1})
			if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED {
				t.Fatalf("%s: %v", task.Token.Id, m)
			}
		}
		if len(tasks) != n {
			t.Errorf("%d tasks for %d executions", n, len(tasks))
		}
		return tasks
	}
	results := make(chan string, many)
	for i := range many {
		id := fmt.Sprint("x", i)
		// Known everywhere: the worker has registered its function with every partition.
		if _, err := starts.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: starts.ns, Id: id, Function: "f", Request: rid()}); err != nil {
			t.Fatalf("start %s: %v", id, err)
		}
		go func() {
			r, err := waits.executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: waits.ns, Id: id, WaitMs: testTimeout.Milliseconds()})
			results <- fmt.Sprint(r.GetDone(), string(r.GetOutcome().GetValue()), err)
		}()
	}
	serve("first", many)
	for range many {
		if got := receive(t, "result", results); got != "truefirst<nil>" {
			t.Errorf("a result came as %s", got)
		}
	}
	for i, w := range nodes {
		if n := w.listed(); n != many {
			t.Errorf("node %d lists %d executions of %d", i+1, n, many)
		}
	}
	// The third node goes, with what it leads.
	if err := finish(waits.node); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		id := fmt.Sprint("y", i)
		if _, err := starts.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: starts.ns, Id: id, Function: "f", Request: rid()}); err != nil {
			t.Fatalf("start %s: %v", id, err)
		}
	}
	serve("second", many)
	s.noTask()
	// The worker reconnects at the other node, which reports the claims that are lost.
	for i := range 4 {
		starts.start(fmt.Sprint("z", i), "g")
	}
	g := at.hello(&perdurev1.Hello{WorkerId: "g", Functions: []string{"g"}, Capacity: 4, LeaseMs: 600_000})
	held := map[string]*perdurev1.Task{}
	for range 4 {
		task := g.task()
		held[task.Token.Id] = task
	}
	stale := &perdurev1.TaskToken{Namespace: at.ns, Id: "y0", Incarnation: 1, Version: 1}
	back := starts.hello(&perdurev1.Hello{WorkerId: "g", Functions: []string{"g"}, Capacity: 2, LeaseMs: 600_000,
		Held: []*perdurev1.TaskToken{held["z0"].Token, held["z1"].Token, stale}})
	receive(t, "end of the former stream", g.ended)
	if len(back.welcome.Lost) != 1 || back.welcome.Lost[0].Id != "y0" {
		t.Errorf("lost are %v", back.welcome.Lost)
	}
	for range 2 {
		if task := back.task(); task.Token.Id != "z2" && task.Token.Id != "z3" {
			t.Errorf("a task %v", task.Token)
		}
	}
	for id, task := range held {
		if m := back.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed(id)}}); m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED {
			t.Errorf("%s: %v", id, m)
		}
	}
	back.noTask()
}
