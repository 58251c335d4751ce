// Package fsm puts a partition's state machine on Pebble and under Raft.
//
// It owns one partition's state store: keys, batches, applied and covered index, checksum, and the content of
// snapshots. A batch holds the writes of whole entries, some thousand keys of them, and the index of the last, so any crash
// leaves a prefix of the log applied whole; until then they are pending, and read from memory. Open refuses a store that it cannot trust (damaged, foreign, missing, newer) with a typed error. A
// crash may lose unflushed entries, back to an earlier index; Raft replays them from its log, and the store
// skips the entries that it still has.
//
// The store runs without Pebble's own write-ahead log. Only Flush makes it durable. Only Cover promises
// durability to Raft: it records the covered index and flushes. After that Raft may write a snapshot marker
// and cut its log up to it.
//
// Behind an entry that enters a cut (package cut) the store keeps a checkpoint of exactly that state, next to itself: see
// CutsDir. The last two stay. A checkpoint that fails is missing and nothing else; a crash leaves whole ones or none.
package fsm
