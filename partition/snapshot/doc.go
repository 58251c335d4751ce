// Package snapshot is Raft's snapshot store, where a snapshot is a marker and not a copy.
//
// It owns one small directory per group. It lists a marker only when it is on disk and the state that it
// covers was durable before, and it refuses a damaged marker by name. A crash at any step leaves the old
// markers or the old and the new one, never garbage; at worst a received content without a marker, which the
// caller sweeps.
//
// # Local and received
//
// The state machine of a group is durable by itself and knows its applied index. So a snapshot of the local
// state needs no copy: its marker records the index (term, configuration) up to which the state covers the
// log, and Raft may then delete the log. Content exists only on demand:
//
//   - local: Raft calls Create, the machine's Persist writes nothing, and Close asks the caller to make
//     the state cover the index (Options.Cover: note the index, flush) before it writes the marker.
//   - sent: a follower lags behind the log. Raft opens the newest marker, and Open asks the caller for the
//     content (Options.Content: stream a checkpoint). The content may be newer than the marker; the
//     entries between are skipped when they are replayed.
//   - received: Raft copies the incoming content into the sink. The sink asks the caller for a directory
//     (Options.Receive). Close commits the directory and then writes a marker that says "received". Raft then
//     opens it and calls the machine's Restore, which installs it. After a crash before that, the caller
//     finds the marker at the next start and installs the content that it names.
//
// Raft's calls distinguish the two, not the content: a sink that Raft copied into is received, even if
// nothing came (which is refused); any other sink is local.
//
// # At start
//
// The caller compares the newest marker with the state: a local marker that the state does not cover
// means that state was lost, and the group must not serve. A received one that it does not cover is
// installed first. A log whose first entry lies above newest index + 1 means that markers were lost.
package snapshot
