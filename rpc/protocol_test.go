package rpc_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// The code of api/PROTOCOL.md, so that it compiles; TestProtocolPage sends its messages to a node.

// commitAppends runs a batch of an entity whose value is text and whose only operation appends its input.
func commitAppends(request *perdurev1.RequestID, task *perdurev1.TaskToken, b *perdurev1.EntityBatch) *perdurev1.CommitEntity {
	c := &perdurev1.CommitEntity{Request: request, Task: task, Version: b.Version, Lane: b.Lane, Exists: true, Value: b.Value, Credit: 1}
	for _, op := range b.Operations {
		c.Value = append(c.Value, op.Input...)
		c.Results = append(c.Results, &perdurev1.EntityResult{Request: op.Request,
			Outcome: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: c.Value}}})
	}
	return c
}

// lock takes child number n of an execution for the locks of entities and waits for them.
func lock(execution string, n uint32, entities ...string) ([]*perdurev1.Event, *perdurev1.Send) {
	promise := fmt.Sprintf("%s:%d", execution, n)
	return []*perdurev1.Event{
			{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: promise,
				Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "lock", RetryPolicy: "attempts=1"}}},
			{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
				Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE, WaitingOn: []string{promise}}}},
		}, &perdurev1.Send{PromiseId: promise,
			What: &perdurev1.Send_EntityLocks{EntityLocks: &perdurev1.EntityLocks{Ids: entities}}}
}

// selectFirst waits for the first of a person's decision, at child number n, and another promise.
func selectFirst(execution string, n uint32, other string) ([]*perdurev1.Event, []*perdurev1.Send) {
	decision, value := fmt.Sprintf("%s:%d", execution, n), fmt.Sprintf("%s:%d", execution, n+1)
	begin := func(promise, name string) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: promise,
			Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: name, RetryPolicy: "attempts=1"}}}
	}
	return []*perdurev1.Event{begin(decision, "promise"), begin(value, "await promise"),
			{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
				Kind: perdurev1.AwaitKind_AWAIT_KIND_ANY, WaitingOn: []string{decision, value}}}}},
		[]*perdurev1.Send{
			{PromiseId: decision, What: &perdurev1.Send_NewPromise{NewPromise: &perdurev1.NewPromise{TimeoutMs: 60_000}}},
			{PromiseId: value, What: &perdurev1.Send_AwaitedPromise{AwaitedPromise: &perdurev1.AwaitedPromise{Id: other}}}}
}

// progress extends the lease of a task and reports how far its step at child number n has come.
func progress(task *perdurev1.TaskToken, n uint32, name string, attempt uint32, details []byte) *perdurev1.Heartbeat {
	return &perdurev1.Heartbeat{Tasks: []*perdurev1.TaskToken{task}, Steps: []*perdurev1.StepHeartbeat{{
		PromiseId: fmt.Sprintf("%s:%d", task.Id, n), Name: name, Attempt: attempt, Details: details}}}
}

// cancelOperation gives up the operation at child number target; it takes child number n itself.
func cancelOperation(execution string, n, target uint32) (*perdurev1.Event, *perdurev1.Send) {
	promise, operation := fmt.Sprintf("%s:%d", execution, n), fmt.Sprintf("%s:%d", execution, target)
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: promise,
			Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "cancel", Input: []byte(operation), RetryPolicy: "attempts=1"}}},
		&perdurev1.Send{PromiseId: promise,
			What: &perdurev1.Send_Cancel{Cancel: &perdurev1.CancelOperation{OperationId: operation}}}
}

// continueAsNew ends the incarnation of a task whose journal has taken nextChild child numbers.
func continueAsNew(request *perdurev1.RequestID, task *perdurev1.TaskToken, nextChild uint32, input []byte) *perdurev1.Commit {
	return &perdurev1.Commit{Request: request, Task: task, NextChild: nextChild,
		ContinueAsNew: &perdurev1.ContinueAsNew{Input: input}, Credit: 1}
}

// undoWithin registers a clean-up together with the first event that needs it.
func undoWithin(c *perdurev1.Commit, most time.Duration) *perdurev1.Commit {
	c.CleanupMs = most.Milliseconds()
	return c
}

// TestProtocolPage compares the code of api/PROTOCOL.md with this file.
func TestProtocolPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../api/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("protocol_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) != 7 {
		t.Fatalf("PROTOCOL.md has %d Go blocks, this test knows 7", len(blocks))
	}
	for _, b := range blocks {
		if block, _, _ := strings.Cut(b, "```"); !strings.Contains(string(code), block) {
			t.Errorf("protocol_test.go lacks this code of PROTOCOL.md:\n%s", block)
		}
	}
}

// protocolWorker is a worker that serves everything, and the execution that it advances.
func protocolWorker(t *testing.T) (*world, *stream, *perdurev1.Task) {
	t.Helper()
	w := newWorld(t)
	w.start("e", "f")
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Entities: []string{"text"}, Capacity: 10, LeaseMs: 600_000, Cleanups: true})
	return w, s, s.task()
}

// TestProtocolEntities runs the operations of an entity that a client signals, then locks it from an execution.
func TestProtocolEntities(t *testing.T) {
	t.Parallel()
	w, s, task := protocolWorker(t)
	entities := perdurev1.NewEntitiesClient(w.conn)
	if _, err := entities.Signal(soon(t), &perdurev1.SignalEntityRequest{Request: rid(), Namespace: w.ns, Id: "text@a", Operation: "append", Input: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	batch := s.task()
	if batch.Function != "@text" || batch.Token.Id != "text@a:@" || len(batch.Entity.GetOperations()) != 1 {
		t.Fatalf("the task of the entity is %v", batch)
	}
	tooManySignals := commitAppends(rid(), batch.Token, batch.Entity)
	tooManySignals.Signals = slices.Repeat([]*perdurev1.EntitySignal{{Id: batch.Entity.Id, Operation: "append"}}, id.MaxCommitItems+1)
	callRefused(t, "too many signals", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_CommitEntity{
		CommitEntity: tooManySignals}})), tooLarge)
	m := receive(t, "answer to a commit", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_CommitEntity{
		CommitEntity: commitAppends(rid(), batch.Token, batch.Entity)}}))
	if m.GetCommitEntity() == nil || m.GetCommitEntity().Next != nil {
		t.Fatalf("the commit of the entity was answered %v", m)
	}
	if e, err := entities.Get(soon(t), &perdurev1.GetEntityRequest{Namespace: w.ns, Id: "text@a"}); err != nil || string(e.GetEntity().GetValue()) != "x" {
		t.Fatalf("the entity is %v, %v", e, err)
	}
	events, send := lock("e", 0, "text@a", "text@b")
	m = s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: events, Sends: []*perdurev1.Send{send}})
	if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED {
		t.Fatalf("the lock was answered %v", m)
	}
	if task = s.task(); task.Token.Id != "e" {
		t.Fatalf("the locks resumed %v", task)
	}
	if e, err := entities.Get(soon(t), &perdurev1.GetEntityRequest{Namespace: w.ns, Id: "text@b"}); err != nil || e.GetEntity().GetLock().GetHolder() != "e" {
		t.Fatalf("the locked entity is %v, %v", e, err)
	}
}

// TestProtocolSelect waits for the first of two promises.
func TestProtocolSelect(t *testing.T) {
	t.Parallel()
	w, s, task := protocolWorker(t)
	if _, err := w.promises.Create(soon(t), &perdurev1.CreatePromiseRequest{Request: rid(), Namespace: w.ns, Id: "rate", TimeoutMs: 60_000}); err != nil {
		t.Fatal(err)
	}
	events, sends := selectFirst("e", 0, "rate")
	m := s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: events, Sends: sends})
	if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED {
		t.Fatalf("the wait was answered %v", m)
	}
	if _, err := w.promises.Settle(soon(t), &perdurev1.SettlePromiseRequest{Request: rid(), Namespace: w.ns, Id: "e:0",
		State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED, Value: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("yes")}}}); err != nil {
		t.Fatal(err)
	}
	entries := s.task().Entries
	var won string
	for _, e := range entries {
		if c := e.Event.GetInvokeCompleted(); c != nil && won == "" {
			won = c.PromiseId + " " + string(c.Result.GetValue())
		}
	}
	if won != "e:0 yes" {
		t.Errorf("%q won: %v", won, entries)
	}
}

// TestProtocolContinue continues as new and gets the next incarnation.
func TestProtocolContinue(t *testing.T) {
	t.Parallel()
	_, s, task := protocolWorker(t)
	if m := s.commit(continueAsNew(nil, task.Token, 0, []byte("again"))); m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_PENDING {
		t.Fatalf("continue-as-new was answered %v", m)
	}
	next := s.task()
	if next.Token.Id != "e" || next.Token.Incarnation <= task.Token.Incarnation || string(next.Entries[0].Event.GetExecutionStarted().GetInput()) != "again" {
		t.Errorf("the next incarnation is %v", next)
	}
}

// TestProtocolCleanup cancels an execution with a clean-up and gets the clean-up's task.
func TestProtocolCleanup(t *testing.T) {
	t.Parallel()
	w, s, task := protocolWorker(t)
	m := s.commit(undoWithin(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: stepEvents("e:0", "act", nil)}, time.Minute))
	if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		t.Fatalf("the step was answered %v", m)
	}
	if _, err := w.executions.Cancel(soon(t), &perdurev1.CancelRequest{Request: rid(), Namespace: w.ns, Id: "e", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	m = s.commit(&perdurev1.Commit{Task: task.Token, NextChild: 1, KnownSeq: m.GetCommit().NextSeq, Events: []*perdurev1.Event{
		{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: "enough"}}}}})
	if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED {
		t.Fatalf("the end was answered %v", m)
	}
	if got := s.task(); got.Token.Id != "e:4294967295" || got.Function != "$cleanup:f" || got.CleanupOf.GetId() != "e" || got.CleanupOf.GetFunction() != "f" {
		t.Errorf("the clean-up is %v", got)
	}
}

// TestProtocolProgress reports progress, and gets it back with the task.
func TestProtocolProgress(t *testing.T) {
	t.Parallel()
	_, s, task := protocolWorker(t)
	m := receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{
		Heartbeat: progress(task.Token, 0, "copy", 1, []byte("half"))}}))
	if m.GetHeartbeat() == nil || len(m.GetHeartbeat().Lost)+len(m.GetHeartbeat().Unknown) != 0 {
		t.Fatalf("the heartbeat was answered %v", m)
	}
	if m := receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{
		Release: &perdurev1.Release{Task: task.Token, Credit: 1}}})); m.GetRelease() == nil {
		t.Fatalf("the release was answered %v", m)
	}
	if steps := s.task().Steps; len(steps) != 1 || string(steps[0].Details) != "half" {
		t.Errorf("the task comes with %v", steps)
	}
}

// TestProtocolCancelOperation gives a timer and a wait for a signal up.
func TestProtocolCancelOperation(t *testing.T) {
	t.Parallel()
	w, s, task := protocolWorker(t)
	first, one := cancelOperation("e", 2, 0)
	second, two := cancelOperation("e", 3, 1)
	m := s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Sends: []*perdurev1.Send{one, two}, Events: []*perdurev1.Event{
		{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: "e:0", DurationMs: 60_000}}},
		{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: "e:1",
			Kind: perdurev1.InvokeKind_INVOKE_KIND_SIGNAL, FunctionName: "go", RetryPolicy: "attempts=1"}}},
		first, second}})
	if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		t.Fatalf("the commit was answered %v", m)
	}
	results := map[string]string{}
	for _, e := range w.journal("e") {
		if done := e.Event.GetInvokeCompleted(); done != nil {
			results[done.PromiseId] = string(done.Result.GetValue()) + done.Result.GetFailure().GetType()
		}
		if e.Event.GetTimerFired() != nil {
			t.Error("the timer has fired")
		}
	}
	if results["e:1"] != "cancelled" || results["e:2"] != "\x01" || results["e:3"] != "\x01" || len(results) != 3 {
		t.Errorf("the results are %q", results)
	}
	m = s.commit(&perdurev1.Commit{Task: task.Token, NextChild: 4, KnownSeq: m.GetCommit().NextSeq, Events: []*perdurev1.Event{
		{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
			Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE, WaitingOn: []string{"e:0"}}}}}})
	callRefused(t, "a wait for a cancelled timer", m, perdurev1.Reason_REASON_RULE_BROKEN)
}
