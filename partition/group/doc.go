// Package group is this node's member of one partition's Raft group: group commit, a leader's duties, reads.
// It owns the group's state, its markers, its share of the log, and the node's bounds of commands and watches.
// It promises: a caller gets an answer only for what is applied and durable; every wait ends with an answer, a
// refusal or "outcome unknown"; only the leader performs a leader's duties, and one term performs no other's.
// A crash loses nothing acknowledged. A leader's memory is lost with its term: the next reads it from the state.
package group
