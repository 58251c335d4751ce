// Package recovery implements the rules of promises, tasks, callbacks and listeners: who may settle a
// promise, which worker may advance a task, and which listeners must be notified. Every operation is a pure
// function of (store, time, request): it checks everything, then writes, then returns its effects as values.
// A refused operation has written nothing. The package keeps no state and does no I/O, so a crash loses
// nothing that the caller's store holds. A timer repeats a lost Execute, but not a lost Unblock.
//
// # The objects
//
// A [Promise] is a value written once, with a deadline. If it names a target it has a [Task] of the same id:
// the right of one worker, for one lease, at one version, to produce that value. A callback (awaited,
// awaiter) says that a task waits for a promise; a listener (promise, address) says that an address outside
// waits for it. A [Store] holds all of them, one per namespace and partition.
//
// # The version
//
// A task's version rises by one when it enters [TaskAcquired] and at no other time. It starts at 0, or at 1
// for a task born acquired ([CreateAcquired]). Every operation of a lease holder presents the version that
// its acquire returned; a former holder presents an old one and is refused ([Conflict]).
//
// # Time
//
// Time is an argument: milliseconds since the Unix epoch, the same for everything one command does, and never
// running backwards from one command to the next. Every guard and every answer projects an object to that
// time, whether or not its expirations have run: a promise whose deadline has passed is settled (also when
// now equals the deadline), its task is fulfilled, and a task whose lease has expired is pending
// ([Promise.At], [Task.At]). Only [TimeoutPromise], [ExpireLease] and [ExpireRetry] run expirations. They check
// their condition again, so calling them late, early or twice is harmless.
//
// # The settlement chain
//
// Settlement is linear, never recursive (recovery protocol, settlement chain): settle, resume, execute. It
// comes in two halves. [Settle], [Fulfill] and [TimeoutPromise] do the first: they settle the promise, fulfil
// its own task and remove that from every callback set. They consume the promise's callbacks and listeners
// and return them in a [Settlement]. [Resume] does the second for one awaiter. Awaiters may have conditions
// of their own (an execution that waits for several results). Their caller works between the halves and
// resumes only those whose condition holds; the others stay suspended, with their other callbacks.
// [Propagate] resumes them all, and [Chain] is both halves at once.
//
// # Effects
//
// An [Execute] notifies a worker of a pending task, an [Unblock] notifies a listener of a settled promise.
// Both may be sent twice and may arrive late: an Execute whose version is no longer the task's is refused at
// acquire. The retry timer repeats an Execute until a worker acquires the task. A caller that must not lose
// an Unblock keeps it until its delivery. The operations that may make a task pending take the timer's
// interval as their last argument, retry, in milliseconds; a value below 1 counts as 1.
package recovery
