package engine

import (
	"time"

	"perdure/internal/mutation"
)

// stickyBugs break what keeps a function that waits in memory from acting for the wrong task.
var stickyBugs = []mutation.Bug{
	{
		File: "durable/sticky.go", Rule: "sticky: no worker had the task meanwhile",
		From: `key.version == t.wait.key.version+1 &&`, To: `key.version > t.wait.key.version &&`, Tests: "TestStickyOtherHistory",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the journal has the results that the function knows",
		From: `!sameOutcome(is.outcome, was.outcome)) {`, To: `len(is.name) > len(is.name)) {`, Tests: "TestStickyOtherHistory TestJournalContinues",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the journal has the times that the function knows",
		From: `is.timeMs != was.timeMs ||`, To: ``, Tests: "TestStickyOtherHistory TestJournalContinues",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the journal has results where the function knows them",
		From: `is.doneSeq != was.doneSeq && was.doneSeq != unknownSeq ||`, To: ``, Tests: "TestJournalContinues",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the journal has no operation that the function has not made",
		From: `len(r.ops) != int(n) || len(expected.ops) != int(n) ||`, To: `len(r.ops) < len(expected.ops) ||`, Tests: "TestJournalContinues",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the journal has the results that the function knew and forgot",
		From: `return forgotten == expected.forgotten`, To: `return forgotten != 1`, Tests: "TestJournalContinues",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a journal that is another one is replayed",
		From: `if !t.journal.continues(&expected, t.next) {`, To: `if t.journal.ended {`, Tests: "TestStickyOtherHistory",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: what was lost before the reply is not kept",
		From: `w.held[t.key.exec()] != t ||`, To: ``, Tests: "TestStickyKeepsNothing",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a worker that stops keeps nothing",
		From: `!= t || w.isStopping() {`, To: `!= t {`, Tests: "TestStickyKeepsNothing",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: only a function that waits is kept",
		From: `m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED ||`, To: ``, Tests: "TestStickyKeepsNothing",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a task overtakes an answer of its own stream only",
		From: `c.via == s && !c.answered`, To: `!c.answered`, Tests: "TestStickyOvertakenHeld",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: only the next task overtakes an answer",
		From: `next.version != t.key.version+1 ||`, To: ``, Tests: "TestStickyOvertakenHeld",
	},
	{
		File: "durable/worker.go", Rule: "sticky: a function continues under a task that overtook the answer to its commit",
		From: "w.overtakesLocked(s, older, t.key):", To: "false:", Tests: "TestStickyOvertaken",
	},
	{
		File: "durable/roundtrip.go", Rule: "sticky: a task that overtook a refusal has ended the one before",
		From: `lost = c.t.overtaken && m.GetCommit()`, To: `lost = lost && m.GetCommit()`, Tests: "TestStickyOvertakenHeld",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a hold that has ended does not reach the function",
		From: "\tt.attach(nil)\n", To: "", Tests: "TestStickyFormerHold",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a function that waits in memory has no hold",
		From: "\tt.hold.lose() // what still refers to it sends nothing\n", To: "", Tests: "TestStickyFormerHold", Hangs: 20 * time.Second,
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a function that waits in memory is none that runs",
		From: "\tt.leaveSlot()\n\tt.idle = true\n", To: "\tt.idle = true\n", Tests: "TestStickyDropsWhileTasksArrive", Hangs: 20 * time.Second,
	},
	{
		File: "durable/sticky.go", Rule: "sticky: a function continues under a lease that surely holds",
		From: `asked := t.secureLease()`, To: `asked := t.isLost()`, Tests: "TestStickyAsksForTheLease",
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the number of functions in memory is bounded",
		From: `c.order.Len() > c.functions || c.size > c.bytes {`, To: `c.size > c.bytes {`, Tests: "TestStickyBounds", Hangs: 20 * time.Second,
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the bytes of functions in memory are bounded",
		From: `c.order.Len() > c.functions || c.size > c.bytes {`, To: `c.order.Len() > c.functions {`, Tests: "TestStickyBounds", Hangs: 20 * time.Second,
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the function that has waited longest makes place",
		From: `oldest := c.order.Front().Value`, To: `oldest := c.order.Back().Value`, Tests: "TestStickyBounds",
	},
	{
		File: "durable/worker.go", Rule: "sticky: a worker that stops unwinds every function",
		From: "\tw.dropSticky()\n", To: "", Tests: "TestStickyStop",
	},
	{
		File: "durable/worker.go", Rule: "sticky: a hold outlives the function that it was given to",
		From: "\tif next != nil {\n\t\tw.replace(next, task)\n\t}\n", To: "\t_, _ = next, task\n", Tests: "TestStickyHoldOutlivesTheFunction", Hangs: 20 * time.Second,
	},
	{
		File: "durable/sticky.go", Rule: "sticky: the entries that a task brings are those of the function's last commit",
		From: ` && wrote(task.GetEntries(), sent) {`, To: ` {`, Tests: "TestStickyOtherHistory",
	},
	{
		File: "durable/activation.go", Rule: "sticky: a function that is not in memory gets the entries that its task leaves out",
		From: `if firstSeq(task) <= t.journal.next {`, To: `if len(task.GetEntries()) > 0 {`, Tests: "TestStickyBounds", Hangs: 20 * time.Second,
	},
	{
		File: "partition/workers/kept.go", Rule: "sticky: only the next task leaves entries out",
		From: "\tnext.Version++\n", To: "", Tests: "TestKept",
	},
	{
		File: "partition/workers/kept.go", Rule: "sticky: a task that comes twice is whole the second time",
		From: "\tdelete(w.kept.entries, task)\n", To: "", Tests: "TestKept",
	},
	{
		File: "partition/workers/kept.go", Rule: "sticky: what waits the longest is forgotten",
		From: "delete(k.entries, k.order[0])", To: "clear(k.entries)", Tests: "TestKeptAsWorkersDo",
	},
	{
		File: "partition/workers/kept.go", Rule: "sticky: the order of what is gone is forgotten",
		From: "\t\tgone := !there || seen[t]\n", To: "\t\tgone := there && seen[t]\n", Tests: "TestKeptAsWorkersDo",
	},
	{
		File: "rpc/work.go", Rule: "sticky: a worker keeps as many functions as it says",
		From: ", MaxKept: int(min(hello.Keeps, math.MaxInt32))", To: "", Tests: "TestKeptFunctions",
	},
	{
		File: "durable/stream.go", Rule: "sticky: a worker says how many functions it keeps",
		From: "uint32(min(max(w.sticky.functions, 0), math.MaxUint32))", To: "uint32(math.MaxUint16)", Tests: "TestStickyBounds",
	},
	{
		File: "fsm/query/journal.go", Rule: "sticky: a worker cannot have more than the journal",
		From: "if from >= h.Events {", To: "if from > h.Events && from == 0 {", Tests: "TestKeptEntries", Pkg: "rpc",
	},
}

// fullEntityBugs break what a worker does for an entity that takes no more signals.
var fullEntityBugs = []mutation.Bug{
	{
		File: "durable/entity.go", Rule: "full entities: an operation that waits for its own entity fails at once",
		From: "full != self && ", To: "", Tests: "TestFullEntities",
	},
	{
		File: "durable/entity.go", Rule: "full entities: one that took signals is waited for again",
		From: "delete(f.refusals, s.Id)", To: "_ = s", Tests: "TestFullEntities",
	},
	{
		File: "durable/entity.go", Rule: "full entities: only operations that signal a full one fail",
		From: "return full[s.Id] }); err == nil && i >= 0", To: "return len(full) > 0 }); err == nil && i >= 0", Tests: "TestBatchForFullEntity",
	},
}
