// Package machine is one partition's state machine: it composes the rules of packages journal and recovery
// over a get/put view of the state. It uses no disk, network, clock or Raft.
//
// It defines the effect of each command. The same entries in the same order give the same state, replies and
// checksum on every replica. A command applies whole or changes nothing. Effects are returned, never
// performed. The machine holds only caches of the state below it, so a crash loses nothing: the view's owner
// commits an entry's writes in one batch with its index.
//
// One Raft entry is one call of Machine.Apply. For each command the machine first runs the object's
// expirations (a promise's timeout, a lease's end). It then runs the command in its own transaction, and
// drops that transaction when a rule refuses. At the end of the entry it assigns pending tasks to the entry's
// grants. It collects the writes until the owner takes them with Writes.
//
// # Where things are
//
// One file per command (start.go, commit.go, signal.go, …). execution.go has the execution in memory,
// chain.go the settlement chain, tick.go the expirations, store.go the recovery rules' view of one namespace,
// outbox.go the messages to other partitions. reads.go keeps what was read and written last in memory, and presence.go
// which sets of keys are empty, so that an execution in progress reads nothing below; ahead.go reads what many expirations need in one
// pass, and places.go keeps the first places of queues. fsm/state defines the stored form, fsm/query reads it,
// fsm/audit checks it; neither may import this package.
//
// # Graph runs
//
// A graph run has a journal and a promise, and no task: the machine is its coordinator. graph_run.go has a
// run in memory (the graph, the rows of its nodes, the reduction over them). graph_advance.go has the
// consequences of a result, graph_node.go a node's start, wait and withdrawal; state.NodeRow is a node's
// stored row. An attempt is an execution of its own, a child of its node's promise. Its end updates its node
// and starts the next nodes in the same apply.
package machine
