// Package resonate serves the Resonate protocol, version 2026-04-01, on a node's HTTP port: `POST /` takes one JSON
// envelope and answers one. Unmodified Resonate SDKs use a cluster through it.
//
// The package owns the form of the protocol: envelopes, checks of requests, status codes and records. The rules of
// promises and tasks are those of the partitions: a [Store] performs each operation. A request is checked whole before its
// operation is proposed, so a refused one has changed nothing. The package stores nothing; a crash loses no answer that a
// caller had.
//
// # Failover
//
// Any node serves any request. The Store retries an operation with one request id for at most 8 s while its partition
// has no leader, so the answer of a repeated attempt is that of the attempt that was applied. After that the answer is
// 503, and the operation may have been applied.
//
// # Statuses
//
// The HTTP status is the envelope's head.status. Statuses 200 and 300 carry an object, every other one a sentence:
// 400 a malformed request, 401 and 403 a refused token, 404 a missing object, 409 another state or version, 413 a large
// request, 422 an unfit object, 429 a quota, 501 an operation that this server lacks, 503 no answer from the partition.
//
// # Debug mode
//
// Debug requests delete everything and set the clock. Neither is sound on partitions: their clock never runs backwards, all
// their leases and deadlines depend on it, and what they have acknowledged is kept. So a server over partitions answers
// debug requests by 403 and ignores the times of requests. In debug mode a [Sandbox] takes the partitions' place: one
// partition in memory, with the same machine. Between debug.start and debug.stop its clock stands still but for the times
// that requests name; messages are delivered all the while. The time 0 counts as 1, and a time before the latest as the
// latest. debug.reset begins again. debug.snap shows the executes of pending tasks as messages until they are acquired.
package resonate
