// Package partition runs the partitions of a node: one Raft group each, behind one peer port.
//
// It owns the list of what a node starts and stops, the stores that the groups share, the routing of requests to
// partitions, and the service to the other nodes and to operators. It promises:
//
//   - Start refuses stores that are missing, foreign, damaged or newer than this program, and changes nothing in them.
//   - A request ends with an answer, a refusal, or "outcome unknown", on whichever node it began.
//   - Close returns in time, and loses nothing acknowledged; neither does a crash.
//
// The package does not know what a command means: it sees commands, replies and effects.
//
// # The path of a command
//
// Router.Propose finds the partition and hands the command to its group.Replica, or to the node that leads it. The
// group takes the queued commands (up to 64 commands or 64 KiB), adds the grants of the workers' credit, stamps the
// clock and gives one entry to Raft. When the entry is applied, each caller gets its reply, and the leadership performs
// the effects in the order of the log.
//
// # Where things are
//
//   - node.go starts everything, as a list; close.go stops it.
//   - Package group is one partition's group: group commit, a leader's duties, reads.
//   - router.go maps ids to partitions and looks for leaders; watch.go waits for changes.
//   - service.go answers other nodes, operator.go operators; members.go asks the other members, report.go reports this
//     node.
//   - cluster_env.go, elections.go, repair_env.go and dispatch.go are what packages cluster, election, repair and
//     workers need of the node. Those decide who is a member, who leads, what is rebuilt, and who gets a task.
//   - Package identity: which stores belong to this node. Other sub-packages: auditor, disk, raftlog, stable,
//     snapshot, transport.
package partition
