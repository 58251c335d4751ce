package engine

import (
	"time"

	"perdure/internal/mutation"
)

// dispatchBugs break how tasks reach workers: each once, within the capacity, and back when no worker was
// notified.
var dispatchBugs = []mutation.Bug{
	{
		File: "internal/credit/held.go", Rule: "dispatch: a task is delivered once",
		From: `return ok && v == t.version()`, To: `return ok && v == t.version() && v.version == 0`, Tests: "TestDeliveredOnce", Pkg: "partition/workers",
	},
	{
		File: "partition/workers/assign.go", Rule: "dispatch: the credit of an entry that did not happen comes back",
		From: "b.s.share.Release(int(b.grant.Credit))\n\t\tb.s.freed()\n\t\td.schedule(b.s)", To: "b.s.freed()\n\t\td.schedule(b.s)", Tests: "TestCapacityIsConserved",
	},
	{
		File: "partition/workers/assign.go", Rule: "dispatch: an entry takes all credit only where no other partition wants some",
		From: "waitedFor && s.inRow > alone {", To: "waitedFor {", Tests: "TestCreditThatTasksWaitFor",
	},
	{
		File: "partition/workers/assign.go", Rule: "dispatch: a partition alone reserves all credit",
		From: "waitedFor && s.inRow > alone {", To: "waitedFor && s.inRow < 0 {", Tests: "TestCreditThatTasksWaitFor",
	},
	{
		File: "partition/workers/assign.go", Rule: "dispatch: a task uses credit",
		From: "b.s.share.Use()", To: "_ = b", Tests: "TestCapacityIsConserved",
	},
	{
		File: "internal/credit/held.go", Rule: "dispatch: the next version of a task is delivered",
		From: "return ok && v == t.version()", To: "return ok && v.incarnation == t.Incarnation", Tests: "TestDeliveredOnce", Pkg: "partition/workers",
	},
	{
		File: "partition/workers/worker.go", Rule: "dispatch: the credit of a task that ends before its delivery comes back",
		From: "w.step(credit.Undelivered{Task: creditTask(q.Token)})", To: "", Tests: "TestCapacityOfWhatIsOver",
	},
	{
		File: "internal/credit/share.go", Rule: "dispatch: an entry grants no credit that another one does",
		From: `return s.granted - s.reserved`, To: `return s.granted`, Tests: "TestCapacityIsConserved", Pkg: "partition/workers",
	},
	{
		File: "partition/workers/release.go", Rule: "dispatch: a task that was delivered before is not returned",
		From: `return q.Cancelling || q.again || !d.canReturn(q)`, To: `return q.Cancelling || d.led[q.replica.ID()] == nil`, Tests: "TestUnsentIsReturned",
	},
	{
		File: "partition/workers/release.go", Rule: "dispatch: an undelivered task is returned",
		From: `if len(queue) == 0 {`, To: `if len(queue) < 1<<20 {`, Tests: "TestUnsentIsReturned", Hangs: 10 * time.Second,
	},
	{
		File: "partition/workers/assign.go", Rule: "dispatch: a worker is notified that its task is cancelled",
		From: `for _, a := range fx.Cancelling {`, To: `for _, a := range fx.Cancelling[:0] {`, Tests: "TestCancelIsDelivered",
	},
	{
		File: "partition/workers/dispatcher.go", Rule: "dispatch: a worker learns what it holds from a new leader",
		From: `for _, a := range held {`, To: `for _, a := range held[:0] {`, Tests: "TestDeliveredOnce",
	},
	{
		File: "partition/workers/session.go", Rule: "dispatch: a worker learns what it holds when it comes back",
		From: `if len(leaderships) > 0 {`, To: `if len(leaderships) > 1<<20 {`, Tests: "TestUnsentIsReturned", Hangs: 10 * time.Second,
	},
	{
		File: "partition/workers/assign.go", Rule: "signal: a worker that reads no signals gets none",
		From: `!s.Signals || `, To: ``, Tests: "TestSignalIsDelivered",
	},
	{
		File: "partition/workers/assign.go", Rule: "signal: those that wait for a stream are bounded",
		From: ` || len(s.local.queue) >= maxSignalQueue {`, To: ` {`, Tests: "TestSignalIsDelivered",
	},
}
