// Package entity owns the rules of entities: a named value with a queue of operations that run one at a
// time, and the lock that a critical section holds on it. It promises that what it admits behaves like
// the high-level model of the durable functions semantics (section 4), although messages travel and
// workers fail; and that no two sections ever wait for each other. It sends nothing and keeps nothing:
// messages are returned as values, and a crash loses nothing that the caller's store has kept.
//
// # The two sides
//
// [State] is one entity: its value, its queue, its lock. [Holder] is what an execution (the source's
// orchestration) must observe towards entities. Neither knows the other; they exchange [Message] values,
// which the caller stores with the state that produced them and carries. An operation of either side
// first checks everything and then changes its receiver, so a refused one ([*Error]) has changed nothing.
//
// # What the caller owes
//
// Between one sender and one receiver (see [Message]) every message arrives once and in the order in
// which it was sent; between different pairs any order will do (durable functions semantics, section 4.4.5:
// FIFO per origin). Sections, and requests of one origin, have ids that are never used twice (section
// 4.2: fresh identifiers). What an operation of this package returned is sent if and only if the state
// it changed is kept (section 5.1.3: S-Commit). Time is an argument, in milliseconds since the Unix
// epoch, and does not run backwards. As a second line, an operation that is repeated while it still waits is
// refused, and a reply or a message of locking may be repeated at any time: what is locked by mistake is
// given back when the holder is told of it. (Of a lock request and its withdrawal only one may be.)
//
// # Operations
//
// A [Signal] wants no answer, a [Call] gets exactly one [Reply]. Both wait in the queue in the order of
// their arrival. A signal may be scheduled: it enters the queue when it is due, at its end, and is outside
// the order of its origin (section 3.3.4). The source lets such a signal pass the backlog; here it does
// not, or an entity that keeps reminding itself could starve everybody else. Entities signal but never
// call one another: two that called each other would wait for ever (section 3.3.3).
//
// # A batch is one commit
//
// A worker gets the value and the operations at the front ([State.Batch]); its [Commit] brings back the
// new value, one result for each operation it has run, and the signals they sent. It is admitted only on
// the value and the operations it was computed from (section 5.1.3: S-Commit; what has arrived meanwhile
// does not matter), and applies whole. So an operation whose batch was lost runs again on the value it ran
// on before, and one whose reply was sent never runs again: to everybody but its worker it ran once
// (section 5.3, theorem 5.3).
//
// # Critical sections
//
// An execution names every entity of the section before it enters ([Holder.Enter]). The [LockRequest]
// visits them one at a time, in ascending order of their ids, the same for all: it waits in the queue of
// each behind what came before it, takes the lock when it reaches the front, and the entity passes it on to
// the next. The last one sends [LockGranted] to the holder. As all sections lock in one order none can
// wait for another in a circle; as requests queue like operations none is overtaken for ever.
//
// Inside, the holder may call what it has locked (one call per entity at a time) and signal what it has
// not; it enters no other section and starts no child (section 4.6 and figure 9). A locked entity serves
// nobody else. [Holder.Exit] unlocks; it waits for the section's calls, because the source lets a section
// end only when all its entities are idle (CS-Exit). [Holder.End] gives up whatever is held or asked for,
// in any phase: a section that ends, in whatever way, releases. An [Unlock] goes to each entity of a held
// section; for one that is still acquiring, a [Withdraw] follows the trail of the request and, since the
// messages of each leg keep their order, always finds it.
//
// One thing may run under a lock that the section did not call: what the holder itself sent to that
// entity before it entered, and which was slower than the request that came through the other entities.
// It runs before the section's calls, as the order of one origin demands, and nobody can tell it from
// having run before the section was entered.
//
// # Life
//
// Entities are neither created nor deleted (section 4.4.1). The caller makes a [State] when the first
// message for an unknown id arrives ([New]) and may drop it when nothing distinguishes it from a new one
// ([State.Collectable]). The incarnation keeps a worker of the dropped record from committing to the new.
package entity
