// Package partition runs the partitions of a node: one Raft group each, behind one peer port, with the
// leader's duties around it.
//
// It owns the Raft groups and their stores, group commit, routing, the dispatch of tasks to workers'
// streams, the deadline timer, the shipping of messages between partitions, and reads. It promises that
// an answer is given only for what is applied and durable, that every wait ends (with an answer, a
// refusal, or "outcome unknown"), and that leader duties are done by the leader alone. A crash loses
// nothing acknowledged; what the leader keeps in memory is rebuilt from the state by the next one.
//
// It does not know what a command means: it sees commands, replies and effects.
//
// # The path of a command
//
// Router.Propose finds the partition and hands the command to its Replica. The proposer takes what
// waits (up to 64 commands or 64 KiB), adds the room of the workers, stamps the clock and gives one
// entry to Raft; at most two entries of a group are under way. When the entry is applied, each caller
// gets its reply and the leadership carries out the effects, in the order of the log.
//
// # A leader's life
//
// leader.go: barrier → establish (read the state: held tasks, queues, outbox, deadlines) → serve →
// revoke. Nothing is served before establish has finished; lost-and-regained is a new life.
//
// # Where things are
//
// node.go starts and stops everything, as a list. Package identity: which stores belong to this node.
// Package cluster: the membership. Package repair: rebuilds, comparison, quarantine. replica.go: one group. propose.go, leader.go, read.go, timer.go, ship.go, watch.go: its
// parts. dispatch.go: what package workers needs of the node. router.go: ids to partitions. elections.go, transfer.go: package election,
// which decides who leads. Sub-packages: raftlog, stable, snapshot, transport.
package partition
