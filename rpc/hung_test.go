package rpc_test

import (
	"fmt"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestHungWorker: a worker hangs, its stream to one node of the cluster stays open. Its tasks wait for one lease and no
// second one, whichever node leads their partitions: the next worker gets all of them. The one that hung gets tasks
// again when it is heard from.
func TestHungWorker(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	at, elsewhere := nodes[0], nodes[1]
	const many, lease = 8, 1000 // of four partitions
	hung := at.hello(&perdurev1.Hello{WorkerId: "hung", Functions: []string{"f"}, Capacity: 4 * many, LeaseMs: lease})
	for i := range many {
		elsewhere.start(fmt.Sprint("x", i), "f")
	}
	// On a busy machine it may count as hung before all tasks have reached it.
	held := map[string]*perdurev1.TaskToken{}
	first := hung.task().Token
	held[first.Id] = first
	until(t, "every task to be the hung worker's no more", func() error {
		for i := range many {
			if task := elsewhere.describe(fmt.Sprint("x", i)).Task; task.GetWorker() != "" {
				return fmt.Errorf("x%d: %v", i, task)
			}
		}
		return nil
	})
	for len(hung.tasks) > 0 {
		token := hung.task().Token
		if before := held[token.Id]; before != nil {
			t.Errorf("the hung worker received %v after %v", token, before)
		}
		held[token.Id] = token
	}
	next := elsewhere.hello(&perdurev1.Hello{WorkerId: "next", Functions: []string{"f"}, Capacity: many, LeaseMs: 600_000})
	for range many {
		task := next.task()
		if before := held[task.Token.Id]; before != nil && task.Token.Version <= before.Version {
			t.Errorf("%v was sent to the next worker, and %v to the hung one", task.Token, before)
		}
		next.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed("next")}})
	}
	hung.noTask()

	// The next worker has no capacity left.
	elsewhere.start("again", "f")
	receive(t, "answer to a heartbeat", hung.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{}}}))
	if task := hung.task(); task.Token.Id != "again" {
		t.Errorf("the worker that sends heartbeats again received %v", task.Token)
	}
}
