// Package entity owns the rules of entities: a named state with a queue of operations, and the lock that
// a critical section holds on it. It will promise that one operation runs at a time, that operations of
// one sender run in the order they were sent, and that under a lock nothing but the lock's owner is
// served. It keeps nothing, so a crash loses nothing that its caller has stored.
//
// It holds no code yet: this page fixes what belongs here, and nothing in the server depends on it.
//
// # A batch is one commit
//
// A task hands a worker the state and a batch of queued operations; the commit brings back the new state
// and the replies. It applies whole or not at all, so an operation whose batch was lost runs again on
// the state it ran on before, and one whose reply was sent never does.
//
// # Critical sections
//
// An execution names every entity of the section before it enters. The locks are taken one at a time, in
// one order for the whole cluster, by messages; a request for a lock waits in the entity's queue like
// any operation. Inside, the execution may call only what it has locked, and enters no second section.
// So no two sections can wait for each other (durable functions semantics, critical sections). A
// section that ends, in whatever way, releases what it holds.
package entity
