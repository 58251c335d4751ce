// Package machine is one partition's state machine: it composes the rules of the journal and of
// recovery over a get/put view of the state, and knows neither disk, network, clock nor Raft.
//
// It owns what a command means. It promises that the same entries in the same order give the same
// state, replies and checksum on every replica; that a command applies whole or leaves nothing; that
// effects are returned, never performed. It holds only caches of the state below it: a crash loses
// nothing, because whoever owns the view commits an entry's writes in one batch with its index.
//
// One Raft entry is one call of Machine.Apply. For each command the machine first carries out what is
// already due on the object (a promise's timeout, a lease's end), then runs the command in a
// transaction of its own, and drops that transaction when a rule refuses. At the end of the entry the
// workers' offers take pending tasks. The writes are collected until the owner takes them with Writes.
//
// # Where things are
//
// One file per command (start.go, commit.go, signal.go, …). execution.go is an execution as the machine holds it,
// chain.go the settlement chain, tick.go the deadlines, store.go the recovery rules' view of one namespace, outbox.go
// the messages to other partitions. What is stored and how is fsm/state; fsm/query reads it, fsm/audit checks it, and
// neither can reach this package.
//
// # Graph runs
//
// An execution whose program is a graph has a journal and a promise, and no task: the machine is its
// coordinator. graph_run.go is a run in memory (the graph, the rows of its nodes, the reduction over them),
// graph_advance.go what a result leads to, graph_node.go how a node starts, waits and is taken back,
// (what is stored of one is state.NodeRow). An attempt is an execution of its own, a child of its node's promise;
// when it ends, its node is told in the same apply, and what may run next starts.
package machine
