// Package workers brings pending tasks to workers. It owns the sessions of worker processes, the split of
// their capacity over the nodes of a cluster, and the tasks that wait to be sent.
//
// A worker announces how many tasks it can take. Log entries of the partitions that a node leads carry credit
// for so many, so that a task which becomes pending is acquired in the same apply. A worker has one stream,
// to any node (Worker), and a session at every node. The ledger of internal/credit splits the worker's
// capacity over its sessions: the one at its own node, and remote ones over links. Each node's dispatcher
// spends the share of its session.
//
// A partition's replica drives the dispatcher so:
//
//	d.Established(leadership, queues, held) // the leader has read its state
//	d.Serving()
//	reserved := d.Reserve(partition)        // each entry carries Grants(reserved)
//	d.Applied(replica, leadership, effects, reserved)
//	d.Unreserve(reserved)                   // instead: the entry did not happen
//	d.Revoked(leadership)
//
// The owner of a worker's stream drives a Worker so:
//
//	w := d.Attach(spec)
//	defer w.Detach()
//	for {
//		next, ok := w.Next(ctx) // a task that the worker holds now, or one to be cancelled
//		...
//	}
//
// The dispatcher never sends a worker more tasks than it has announced, except tasks that the worker holds by
// the state. It sends a task once to each stream. When a stream ends, a task that was not sent returns to its
// queue at once.
//
// All of it is memory: a crash loses the sessions. The state says which tasks a worker holds, and the next
// leader and the next session send them to the worker again. partition/DESIGN.md has the leases of tasks.
package workers
