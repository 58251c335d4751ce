// Package entity owns the rules of entities: a named value with a queue of operations that run one at a time,
// and the lock that a critical section holds on it. It promises that what it admits behaves like the
// high-level model of the durable functions semantics (section 4), although messages travel and workers fail,
// and that no two sections ever wait for each other. The package sends and stores nothing. It returns
// messages as values, so a crash loses nothing that the caller's store holds.
//
// # The two sides
//
// [State] is one entity: its value, its queue, its lock. [Holder] is what an execution (the source's
// orchestration) must observe towards entities. State and Holder do not know each other; they exchange
// [Message] values, which the caller stores with the state that produced them and carries. An operation of
// either side first checks everything and then changes its receiver, so a refused one ([*Error]) has changed
// nothing.
//
// # What the caller guarantees
//
// The caller delivers every message between one sender and one receiver (see [Message]) once, in the order of
// sending. Between different pairs any order will do (durable functions semantics, section 4.4.5: FIFO per
// origin). Sections, and requests of one origin, have ids that are never used twice (section 4.2: fresh
// identifiers). The caller sends the messages that an operation returned if and only if it stores the changed
// state (section 5.1.3: S-Commit). Time is an argument, in milliseconds since the Unix epoch, and does not
// run backwards. As a second line of defence, an entity refuses an operation that is repeated while the first
// one waits. A reply or a locking message may be repeated at any time: an entity that was locked by mistake
// is unlocked when its holder is notified. (Of a lock request and its withdrawal only one may be repeated.)
//
// # Operations
//
// A [Signal] gets no answer, a [Call] exactly one [Reply]. Both wait in the queue in the order of their
// arrival. A signal may be scheduled: it enters a bounded lane when its time comes, and is outside the order
// of its origin (section 3.3.4). The lane's batches alternate with those of the queue. So a signal of the
// lane does not wait behind the backlog, and an entity that signals itself again and again starves no other.
// Entities signal but never call one another: two entities that called each other would wait for ever
// (section 3.3.3).
//
// # A batch is one commit
//
// A worker gets the value and the operations at the front ([State.Batch]); its [Commit] brings back the new
// value, one result for each operation that has run, and the signals that the operations sent. The entity
// admits a commit only on the value and the operations that it was computed from (section 5.1.3: S-Commit).
// Messages that arrived meanwhile do not matter. A commit applies whole. So an operation whose batch was lost
// runs again on the value it ran on before, and one whose reply was sent never runs again: for all but its
// worker it ran once (section 5.3, theorem 5.3).
//
// # Critical sections
//
// An execution names every entity of the section before it enters ([Holder.Enter]). The [LockRequest] visits
// them one at a time, in ascending order of their ids, the same for all: it waits in each queue behind the
// earlier messages and takes the lock when it reaches the front; the entity then passes it to the next one.
// The last entity sends [LockGranted] to the holder. All sections lock in one order, so they cannot wait for
// each other in a cycle. Requests queue like operations, so none is overtaken for ever.
//
// Inside the section, the holder may call the entities that it has locked (one call per entity at a time) and
// signal the others. It enters no other section and starts no child (section 4.6 and figure 9). A locked
// entity serves only its holder. [Holder.Exit] unlocks; it waits for the section's calls, because the source
// lets a section end only when all its entities are idle (CS-Exit). [Holder.End] releases all locks, held or
// requested, in any phase. A held section sends an [Unlock] to each of its entities. A section that is still
// acquiring sends a [Withdraw], which follows the path of the request. It always finds the request, since
// messages between two entities keep their order.
//
// One operation may run under a lock that the section did not call. The holder sent it to that entity before
// it entered, and it was slower than the request that came through the other entities. It runs before the
// section's calls, as the order of one origin demands. No observer can distinguish this from a run before the
// section was entered.
//
// # Creation and collection
//
// Entities are neither created nor deleted (section 4.4.1). The caller makes a [State] when the first
// message for an unknown id arrives ([New]) and may drop it when nothing distinguishes it from a new one
// ([State.Collectable]). The incarnation keeps a worker of the dropped record from committing to the new.
package entity
