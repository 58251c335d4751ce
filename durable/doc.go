// Package durable is the SDK for durable functions: ordinary Go functions that survive the crash of their
// process and continue in another one.
//
// It owns the worker (its streams to the nodes, the tasks it holds, their leases), the replay of journals,
// and a function's operations. An operation whose result was recorded is never run again: a function that
// starts over gets every recorded result from its journal. A crash loses the step that was running, or has returned just
// now, with every effect of it that the journal has not seen: steps run at least once, results count once. A step
// begins only while the lease holds: see lease.go for how a worker counts it, and the README's promises for
// the cases that remain.
//
// # Writing a function
//
//	var order = durable.NewFunction("order", func(ctx durable.Context, in Order) (Receipt, error) {
//		paid, err := durable.Run(ctx, "charge", func(ctx context.Context) (Payment, error) {
//			return bank.Charge(ctx, in.Card, in.Amount, durable.StepInfo(ctx).PromiseID)
//		})
//		if err != nil {
//			return Receipt{}, err
//		}
//		if err := durable.Sleep(ctx, 24*time.Hour); err != nil {
//			return Receipt{}, err
//		}
//		return durable.Call(ctx, ship, Parcel{Order: in.ID, Payment: paid.ID})
//	})
//
// A worker may run the function from its beginning at each wait, so the function must ask for the same
// operations in the same order every time. Anything that differs between two runs (the time, chance, the
// outside world) comes from an operation: Now, Random, Run. Every operation takes the next child number of
// the execution (order-42:0, order-42:1, ...); the journal keeps its kind, its name and its result under that
// number. When code and journal disagree, the worker releases the task with a problem that names both
// (MismatchError). The task is delivered again later, perhaps to a worker with the right code.
//
// # What the worker guarantees
//
//   - A worker that reaches every node that leads partitions has a stream to each of them, at the addresses that
//     the nodes announce or the client was given; tasks and commits then pass no other node. Otherwise, as
//     behind a load balancer, it has one stream. It never holds more tasks than Concurrency, beside as
//     many at most whose functions have returned and whose ends are being committed, unless nodes deliver tasks again that
//     it lost with a stream.
//   - One goroutine runs the function. Only this goroutine may call operations, and not inside a step;
//     anything else is a MisuseError, and the worker releases the task with it.
//   - Nothing a step could act upon is unrecorded when the step runs: results of earlier steps, recorded values
//     and started children that are still in the buffer are committed first. Otherwise they travel with the next
//     commit, so ten calls of Go and one AwaitAll are one round, and so are the last step and the end. See held.go
//     for how long a step's result may wait, and for Repeatable, the exception.
//   - A function that must wait gives its task back and stays in memory, bounded by StickyFunctions and StickyBytes. When
//     the wait is over, it continues if this worker gets the next task and no other one had a task meanwhile. Otherwise it is
//     replayed, on this worker or on another. A function that leaves the memory ends its goroutine by
//     runtime.Goexit, which runs deferred functions. Do not put effects into them; operations called in
//     them do nothing.
//   - A function that is a node of a graph answers with a result, an error, Skip or SuspendOn. See Graph for
//     how graphs are built here, and handed over.
//   - Results are returned as they are read back from their encoding, and errors as *Error, the first
//     time as at every replay.
package durable
