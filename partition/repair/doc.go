// Package repair handles a replica that is damaged, lost or different. It checks that a partition's stores
// fit together, compares the replicas' checksums, rebuilds a replica from the leader's state, quarantines the
// states of former replicas, and manages the copies of states on their way between nodes.
//
// It promises:
//
//   - Stores that have lost something acknowledged are refused by name.
//   - A replica halts for a difference only when a majority of the members agrees on another state at the
//     same index.
//   - A rebuild leaves term, vote and log as they are, so the member keeps its promises to the group.
//   - A former state is quarantined, and only an operator deletes it.
//
// A crash during a rebuild leaves a replica without its state, which halts at the next start and can be
// rebuilt again. A crash leaves copies behind; Contents.Sweep removes them at the next start.
package repair
