// Package partition runs the partitions of a node: one Raft group each, behind one peer port, with the duties
// of their leaders.
//
// It owns the Raft groups and their stores, group commit, routing, reads, the dispatch of tasks to workers,
// the deadline timer, and the shipping of messages between partitions. It promises:
//
//   - A caller gets an answer only for what is applied and durable.
//   - Every wait ends with an answer, a refusal, or "outcome unknown".
//   - Only the leader performs a leader's duties.
//
// A crash loses nothing acknowledged. The leader keeps its memory only to be fast: the next leader rebuilds
// it from the state. The package does not know what a command means: it sees commands, replies and effects.
//
// # The path of a command
//
// Router.Propose finds the partition and hands the command to its Replica. The proposer takes the queued
// commands (up to 64 commands or 64 KiB), adds the grants of the workers' credit, stamps the clock and gives
// one entry to Raft. At most two entries of a group are in flight. When an entry is applied, each caller gets
// its reply, and the leadership performs the effects in the order of the log.
//
// # A leader's term
//
// leader.go: barrier → establish (read the state: held tasks, queues, outbox, deadlines) → serve → revoke. A
// leader serves nothing before establish has finished. A leadership that is lost and regained is a new term.
//
// # Where things are
//
//   - node.go starts and stops everything, as a list.
//   - replica.go is one group. Its parts are propose.go, leader.go, read.go, timer.go, ship.go and watch.go.
//   - router.go maps ids to partitions. dispatch.go implements what package workers needs of the node.
//   - elections.go and transfer.go use package election, which decides which member leads.
//   - Package identity: which stores belong to this node. Package cluster: the membership. Package repair:
//     rebuilds, comparison, quarantine.
//   - Other sub-packages: auditor, disk, raftlog, stable, snapshot, transport, workers.
package partition
