// Package raftlog stores the Raft logs of all groups of a node in one directory.
//
// It owns one directory and promises that an entry is on disk, synced, when StoreLogs or AwaitSync returns; that a
// log has no holes; and that damage is named (CorruptError), never skipped. A crash may lose only what neither
// had yet returned for, always a suffix of a group's log.
//
// # Two backends, one set of rules
//
// Store is the concrete type; below it is a small driver, Pebble (the default) or raft-boltdb. All rules are
// implemented above the driver, so both obey the same ones; logtest.Run tests each.
//
//   - Pebble: one store for all groups. Concurrent StoreLogs of different groups meet in Pebble's commit
//     pipeline and share one fsync, which is why a node uses one store and not one per group. The end of its
//     write-ahead log is filled with zeros ahead of the records, so that a sync need not write the file's size.
//   - boltdb: one raft-boltdb/v2 file per group. Reasonable for one or two groups.
//
// # Rules
//
//   - A log is contiguous: first..last without holes. An append continues at last+1, or starts anywhere
//     in an empty log. Overwriting is refused (OrderError); Raft truncates first.
//   - An append that leaves a gap after last restarts the log: the same commit deletes the older entries.
//     Raft does this only after it installed a snapshot that covers them, when it crashed before it could
//     delete them. Log therefore reports IsMonotonic.
//   - A failed write or sync ends the process (Options.OnFatal). The failed write may or may not be on disk,
//     and a file system does not repeat a failed sync, so no later write can be trusted.
//   - An entry has a checksum over its key (group, index) and its content.
//   - The directory has a seal, a small file next to the store that records its required content (seal.go).
//     So Open notices a lost or shortened file and does not mistake it for an older state.
//
// # Use with Raft
//
// Log does no caching of entries that were just written. Put NewCache in front: the leader reads each entry back once
// per follower. It bounds by bytes what Raft holds in memory; raft.NewLogCache does not. Sequential reads (start,
// replay, a follower catching up) are served 512 entries or 1 MiB at a time.
//
// Close the store after every Raft instance that uses it has shut down.
package raftlog
