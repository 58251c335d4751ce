// Package recovery owns the rules of promises, tasks, callbacks and listeners: who may settle a
// promise, which worker may advance a task, and who must be told. Every operation is a pure function
// of (store, time, request): it checks everything, then writes, then returns its effects as values.
// A refused operation has written nothing. The package keeps no state and does no I/O, so a crash
// loses nothing that the caller's store has kept. A lost Execute is repeated by a timer, an Unblock is not.
//
// # The objects
//
// A [Promise] is a value written once, with a deadline. If it names a target it has a [Task] of the
// same id: the right of one worker, for one lease, at one version, to produce that value. A callback
// (awaited, awaiter) says that a task waits for a promise; a listener (promise, address) says that
// somebody outside wants to be told. All of them are reached through a [Store], one per namespace and
// partition.
//
// # The version
//
// A task's version rises by one when it enters [TaskAcquired] and at no other time. It starts at 0, or
// at 1 for a task born acquired ([CreateAcquired]). Every operation of a lease holder presents the
// version it was given; whoever has lost the lease presents an old one and is refused ([Conflict]).
//
// # Time
//
// Time is an argument: milliseconds since the Unix epoch, the same for everything one command does,
// and never running backwards from one command to the next. What is due on an object at that time
// counts as done for every guard and every answer, whether or not it has been carried out: a promise
// whose deadline has come is settled (also when now equals the deadline), its task is fulfilled, and a
// task whose lease has run out is pending ([Promise.At], [Task.At]). The operations themselves never
// carry out what is due; [TimeoutPromise], [ExpireLease] and [RetryDue] do. They check their condition
// again, so calling them late, early or twice is harmless.
//
// # The settlement chain
//
// Settlement is linear, never recursive (recovery protocol, settlement chain): settle, resume,
// execute. It comes in two halves. [Settle], [Fulfill] and [TimeoutPromise] do the first: the promise
// is settled, its own task fulfilled and taken out of every callback set, its callbacks and listeners
// consumed and returned in a [Settlement]. [Resume] does the second for one awaiter. A caller whose
// awaiters have conditions of their own (an execution waiting for several results) works between the
// halves and resumes only those whose condition holds; an awaiter that is not resumed stays suspended,
// with its other callbacks. [Propagate] resumes them all, and [Chain] is both halves at once.
//
// # Effects
//
// An [Execute] tells a worker that a task is pending, an [Unblock] tells a listener that a promise is
// settled. Both may be sent twice and may come late: an Execute whose version is no longer the task's is
// refused at acquire. The retry timer repeats an Execute until somebody acquires the task; a caller
// that must not lose an Unblock keeps it until it is delivered. The operations that may make a task pending take that interval as their last argument, retry, in
// milliseconds; a value below 1 counts as 1.
package recovery
