// Package disk keeps a node from filling its data directory's disk, and keeps it running when others fill
// that disk.
//
// A Guard watches the free space of one directory. Its marks are multiples of the reserve R:
//
//	free < 3 R    scarce    checkpoints of cuts are removed, the oldest first, and none is made
//	free < 2 R    Low       commands that grow the state are refused
//	free <   R    Critical  nothing is proposed and nothing compacted
//	free < R/2    Full      no new log entry is appended and no memtable flushed
//
// Below that mark, entries may use the reserve if a leader cannot begin without them: those that a majority
// lacks, and those of the election itself. Few other writes remain: an admitted record of the write-ahead
// log, a MANIFEST, a seal, a term. They must not fail, because Pebble and Raft end the process when one does.
// So the file system that the Guard wraps never returns ENOSPC for such a write: it gives up the reserve file
// and waits until there is space. Writes of tables do return it: Pebble drops a table that it cannot finish
// and begins again, and the wrapper delays the new one until there is space.
//
// The reserve is a file of R bytes, ReserveFile, that is preallocated in the directory. An operator who needs space to
// purge executions deletes it; the Guard makes it again when enough space is free.
//
// Flushes and compactions write tables in the background: before each block of a table its writer yields to other goroutines.
// Compactions write one table for two cores at once, and wait for that a second for each table at most.
//
// A Guard owns the reserve file and nothing else. It reads the free space from the file system once a second,
// at each admission, and after each MiB written to a table, so a burst between two checks cannot pass a mark
// unnoticed.
package disk
