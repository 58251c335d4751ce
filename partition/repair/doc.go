// Package repair owns what is done about a replica that is damaged, lost or different: the check that a partition's
// stores fit together, the comparison of replicas' checksums, the rebuild of a replica from the leader's state, the
// quarantined states of former replicas, and the copies of states on their way between nodes.
//
// It promises that stores which have lost something acknowledged are refused by name; that a replica halts for a
// difference only when a majority of the members agrees on another state at the same index; that a rebuild leaves term,
// vote and log as they are, so that the group keeps what this member has promised it; and that a former state is
// quarantined, never deleted but by an operator.
//
// A crash during a rebuild leaves a replica without its state, which halts at the next start and can be rebuilt again.
// Copies on their way are left behind by a crash, and removed by Contents.Sweep at the next start.
package repair
