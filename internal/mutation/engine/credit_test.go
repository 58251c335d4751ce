package engine

import (
	"time"

	"perdure/internal/mutation"
)

// creditBugs break the ledger of a worker's capacity.
var creditBugs = []mutation.Bug{
	{
		File: "internal/credit/event.go", Rule: "credit: a task uses the credit of its link",
		From: "k.granted--\n\tl.taken(1)", To: "l.taken(1)", Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a task that comes twice uses credit once",
		From: "if l.Holds(e.Task) {\n\t\tDropped", To: "if false {\n\t\tDropped", Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a lost link's credit comes back",
		From: `l.idle += k.granted`, To: `l.announced -= k.granted`, Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: what the worker has granted itself is not granted once more",
		From: "l.announced += max(e.N, 0)\n\tk.granted += max(e.N, 0)", To: "l.announced += max(e.N, 0)\n\tl.idle += max(e.N, 0)", Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a link returns at most its grant",
		From: "n := max(min(e.N, k.granted), 0)\n\tk.granted -= n\n\tl.idle += n", To: "n := e.N\n\tk.granted -= n\n\tl.idle += n", Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a task that is not sent gives back the credit that it has used",
		From: `if by == covered {`, To: `if by == covered && e.Task.Version == 0 {`, Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a task that is not sent gives back no credit that it has not used",
		From: `if by == covered {`, To: `if by <= covered {`, Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a task that is not sent is covered by nothing",
		From: `if t == e.Task {`, To: `if t == e.Task && t.Version == 0 {`, Tests: "TestWalk",
	},
	{
		File: "internal/credit/event.go", Rule: "credit: a redelivered task takes capacity",
		From: `l.overcommitted = append(l.overcommitted, e.Task)`, To: ``, Tests: "TestLedger",
	},
	{
		File: "internal/credit/ledger.go", Rule: "credit: no more is overcommitted than is granted",
		From: `l.overcommitted = l.overcommitted[:min(len(l.overcommitted), l.announced)]`, To: ``, Tests: "TestWalk",
	},
	{
		File: "internal/credit/ledger.go", Rule: "credit: what covers a task is not granted",
		From: "l.idle--\n\t\tl.taken(1)", To: "l.taken(0)", Tests: "TestWalk", Hangs: 20 * time.Second,
	},
	{
		File: "internal/credit/ledger.go", Rule: "credit: a task that was covered later gives its credit back as well",
		From: `l.queued[first] = covered`, To: `l.queued[first] = uncovered`, Tests: "TestWalk",
	},
	{
		File: "internal/credit/ledger.go", Rule: "credit: a worker that hangs gets no grants until it is heard from",
		From: `if !l.silent(now) {`, To: `if now >= 0 {`, Tests: "TestWalk",
	},
	{
		File: "internal/credit/ledger.go", Rule: "credit: credit is asked for where tasks wait for it",
		From: `if open += needy; len(l.overcommitted) > 0 {`, To: `if open += 0; len(l.overcommitted) > 0 {`, Tests: "TestLedger",
	},
	{
		File: "internal/credit/share.go", Rule: "credit: what an entry has reserved is not given back",
		From: "n = max(min(n, s.Free()), 0)\n\ts.granted -= n", To: "n = max(min(n, s.granted), 0)\n\ts.granted -= n", Tests: "TestWalk",
	},
	{
		File: "durable/roundtrip.go", Rule: "credit: a worker does not grant once more what a commit of it has granted",
		From: `w.stepLocked(credit.Extended{Link: s.link, N: sent})`, To: `_ = s.link`, Tests: "TestCommitGrantsOnce",
	},
	{
		File: "durable/capacity.go", Rule: "credit: a worker's tasks take its capacity",
		From: `w.opts.Concurrency + w.ending - w.busy - w.promised - (`, To: `w.opts.Concurrency + w.ending - w.promised - (`, Tests: "TestBusyTasksTakeCapacity",
	},
	{
		File: "durable/capacity.go", Rule: "credit: a task that is ending gives its credit out once",
		From: `if t.ending || w.leaving.Load() ||`, To: `if w.leaving.Load() ||`, Tests: "TestEndingTaskGrantsOnce",
	},
	{
		File: "durable/capacity.go", Rule: "credit: no more tasks are ending than a worker takes",
		From: ` || w.ending >= w.opts.Concurrency {`, To: ` {`, Tests: "TestEndingTaskGrantsOnce",
	},
	{
		File: "durable/capacity.go", Rule: "credit: what a task gives out as it ends reaches the node",
		From: "	s.returned++\n", To: "", Tests: "TestEndingTaskGrantsOnce",
	},
	{
		File: "durable/worker.go", Rule: "credit: a task that has ended is not ending",
		From: "			w.ending--\n", To: "", Tests: "TestEndingTaskGrantsOnce",
	},
	{
		File: "durable/activation.go", Rule: "credit: a function that has returned makes way for the next one",
		From: "	t.leaveSlot()\n	t.w.functionReturned(t.hold)\n", To: "	t.w.functionReturned(t.hold)\n", Tests: "TestEndUnderWay", Hangs: hang,
	},
	{
		File: "partition/workers/worker.go", Rule: "credit: a node does not lend on what a worker splits itself",
		From: "if !spec.Splits {\n\t\tw.follow()", To: "if spec.LeaseMS > 0 {\n\t\tw.follow()", Tests: "TestSplitWorkerIsNotLentOn",
	},
}
