// Package fsm puts a partition's state machine on Pebble and under Raft.
//
// It owns one partition's state store: keys, batches, applied and covered index, checksum, and the
// content of snapshots. It promises that the effects of an entry and its index are in one batch, so that
// any crash leaves a prefix of the log applied whole, and that a store which cannot be trusted (damaged,
// foreign, missing, newer) is refused by name. A crash may lose what was not flushed, back to an earlier
// index; the Raft log holds it and replay skips what is still there.
//
// The store runs without Pebble's own write-ahead log. Only Flush makes it durable, and Cover is the one
// place that promises durability to Raft: it notes the covered index, flushes, and only then may a
// snapshot marker be written and the log behind it be cut.
package fsm
