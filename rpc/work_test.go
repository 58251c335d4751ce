package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/id"
)

// TestHello sends every introduction that a node does not take.
func TestHello(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	many := make([]string, 1025)
	for i := range many {
		many[i] = fmt.Sprint("f", i)
	}
	good := func() *perdurev1.Hello {
		return &perdurev1.Hello{WorkerId: "hello", Namespace: w.ns, Functions: []string{"f"}, LeaseMs: 1000}
	}
	for what, change := range map[string]func(*perdurev1.Hello){
		"no worker id":        func(h *perdurev1.Hello) { h.WorkerId = "" },
		"long worker id":      func(h *perdurev1.Hello) { h.WorkerId = long(257) },
		"worker id with NUL":  func(h *perdurev1.Hello) { h.WorkerId = "w\x00" },
		"long namespace":      func(h *perdurev1.Hello) { h.Namespace = long(257) },
		"no functions":        func(h *perdurev1.Hello) { h.Functions = nil },
		"many functions":      func(h *perdurev1.Hello) { h.Functions = many },
		"a nameless function": func(h *perdurev1.Hello) { h.Functions = []string{"f", ""} },
		"the server's own":    func(h *perdurev1.Hello) { h.Functions = []string{"f", "$http"} },
		"a long function":     func(h *perdurev1.Hello) { h.Functions = []string{long(257)} },
		"much capacity":       func(h *perdurev1.Hello) { h.Capacity = 100_001 },
		"a short lease":       func(h *perdurev1.Hello) { h.LeaseMs = 999 },
		"a long lease":        func(h *perdurev1.Hello) { h.LeaseMs = 600_001 },
		"a negative lease":    func(h *perdurev1.Hello) { h.LeaseMs = -1 },
		"another's task":      func(h *perdurev1.Hello) { h.Held = []*perdurev1.TaskToken{{Namespace: w.ns + "-other", Id: "x"}} },
	} {
		h := good()
		change(h)
		s := w.open()
		s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Hello{Hello: h}})
		refused(t, what, receive(t, "refusal", s.ended), bad)
	}
	for what, m := range map[string]*perdurev1.WorkRequest{
		"credit first":    {Kind: &perdurev1.WorkRequest_Credit{Credit: &perdurev1.Credit{Tasks: 1}}},
		"heartbeat first": {Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{}}},
		"nothing first":   {},
	} {
		s := w.open()
		s.ask(m)
		refused(t, what, receive(t, "refusal", s.ended), bad)
	}
	// None of them has registered a function.
	_, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: "x", Function: "f"})
	refused(t, "a start after refused hellos", err, perdurev1.Reason_REASON_FUNCTION_UNKNOWN)

	s := w.hello(good())
	if s.welcome.NodeId != "n1" || s.welcome.LeaseMs != 1000 || len(s.welcome.Lost) != 0 {
		t.Errorf("the welcome is %v", s.welcome)
	}
	h := good()
	h.WorkerId, h.LeaseMs = "hello-2", 0
	if s := w.hello(h); s.welcome.LeaseMs != 10_000 {
		t.Errorf("without a lease of its own a worker gets %d ms", s.welcome.LeaseMs)
	}
	callRefused(t, "a second hello", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Hello{Hello: good()}})), bad)
	callRefused(t, "a message without a kind", receive(t, "answer", s.ask(&perdurev1.WorkRequest{})), bad)
	if _, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: "x", Function: "f"}); err != nil {
		t.Errorf("a start after a hello: %v", err)
	}
	s.noTask() // it has announced no capacity
}

// TestCommitRefused sends everything a commit may not be. The task stays where it is, and its journal what
// it is.
func TestCommitRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("e", "f")
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	task := s.task()
	before := w.journal("e")
	value := func(b []byte) *perdurev1.Outcome {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: b}}
	}
	failure := func(f *perdurev1.Failure) *perdurev1.Outcome {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: f}}
	}
	await := func(kind perdurev1.AwaitKind, signal string, on ...string) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{Kind: kind, SignalName: signal, WaitingOn: on}}}
	}
	const (
		step   = perdurev1.InvokeKind_INVOKE_KIND_STEP
		call   = perdurev1.InvokeKind_INVOKE_KIND_FUNCTION
		sendTo = perdurev1.InvokeKind_INVOKE_KIND_SEND
		single = perdurev1.AwaitKind_AWAIT_KIND_SINGLE
		signal = perdurev1.AwaitKind_AWAIT_KIND_SIGNAL
	)
	large := func() []*perdurev1.Event {
		var evs []*perdurev1.Event
		for i := range 5 {
			evs = append(evs, stepEvents(fmt.Sprintf("e:%d", i), "s", big(maxPayload))...)
		}
		return evs
	}
	completion := func(o *perdurev1.Outcome) []*perdurev1.Event {
		evs := stepEvents("e:0", "s", nil)
		evs[2].GetInvokeCompleted().Result = o
		return evs
	}
	policy := scheduled("e:0", step, "s")
	policy.GetInvokeScheduled().RetryPolicy = long(1025)
	for _, c := range []struct {
		what   string
		commit *perdurev1.Commit
		reason perdurev1.Reason
	}{
		{"a large result of a step", &perdurev1.Commit{Events: stepEvents("e:0", "s", big(maxPayload+1))}, tooLarge},
		{"a large result", &perdurev1.Commit{Events: []*perdurev1.Event{completed(long(maxPayload + 1))}}, tooLarge},
		{"a large failure of a step", &perdurev1.Commit{Events: completion(failure(&perdurev1.Failure{Type: "t", Details: big(maxPayload)}))}, tooLarge},
		{"a long type of failure", &perdurev1.Commit{Events: completion(failure(&perdurev1.Failure{Type: long(257)}))}, bad},
		{"a large failure", &perdurev1.Commit{Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{
			Error: &perdurev1.Failure{Type: "t", Message: long(maxPayload)}}}}}}, tooLarge},
		{"a large failed attempt", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", step, "s"), started("e:0"),
			{Kind: &perdurev1.Event_InvokeRetrying{InvokeRetrying: &perdurev1.InvokeRetrying{PromiseId: "e:0", FailedAttempt: 1,
				Error: &perdurev1.Failure{Type: "t", Message: long(maxPayload)}}}}}}, tooLarge},
		{"large results together", &perdurev1.Commit{Events: large()}, tooLarge},
		{"too many events", &perdurev1.Commit{Events: slices.Repeat([]*perdurev1.Event{scheduled("e:0", sendTo, "s")}, id.MaxCommitItems+1)}, tooLarge},
		{"too many sends", &perdurev1.Commit{Events: stepEvents("e:0", "s", nil), Sends: slices.Repeat([]*perdurev1.Send{{PromiseId: "e:0"}}, id.MaxCommitItems+1)}, tooLarge},
		{"too many options", &perdurev1.Commit{Events: stepEvents("e:0", "s", nil), Children: slices.Repeat([]*perdurev1.ChildOptions{{PromiseId: "e:0"}}, id.MaxCommitItems+1)}, tooLarge},
		{"a large signal", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", sendTo, "s")}, Sends: []*perdurev1.Send{{PromiseId: "e:0",
			What: &perdurev1.Send_Signal{Signal: &perdurev1.SignalSend{Id: "x", Name: "s", Payload: big(maxPayload + 1)}}}}}, tooLarge},
		{"a signal to nowhere", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", sendTo, "s")}, Sends: []*perdurev1.Send{{PromiseId: "e:0",
			What: &perdurev1.Send_Signal{Signal: &perdurev1.SignalSend{Id: "", Name: "s"}}}}}, badID},
		{"a start under a child id", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", sendTo, "s")}, Sends: []*perdurev1.Send{{PromiseId: "e:0",
			What: &perdurev1.Send_Start{Start: &perdurev1.StartSend{Id: "x:0", Function: "f"}}}}}, badID},
		{"a start with a negative timeout", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", sendTo, "s")}, Sends: []*perdurev1.Send{{PromiseId: "e:0",
			What: &perdurev1.Send_Start{Start: &perdurev1.StartSend{Id: "x", Function: "f", TimeoutMs: -1}}}}}, bad},
		{"a one-way operation without content", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", sendTo, "s")}}, bad},
		{"a nameless step", &perdurev1.Commit{Events: stepEvents("e:0", "", nil)}, bad},
		{"a nameless signal", &perdurev1.Commit{Events: []*perdurev1.Event{await(signal, "", "e:0")}}, bad},
		{"a long policy", &perdurev1.Commit{Events: []*perdurev1.Event{policy}}, bad},
		{"a promise without id", &perdurev1.Commit{Events: stepEvents("", "s", nil)}, badID},
		{"65 tags", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", call, "f")}, Children: []*perdurev1.ChildOptions{{PromiseId: "e:0", Tags: manyTags(65)}}}, tooMany},
		{"a negative timeout of a child", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", call, "f")}, Children: []*perdurev1.ChildOptions{{PromiseId: "e:0", TimeoutMs: -1}}}, bad},
		{"a negative wait", &perdurev1.Commit{Events: []*perdurev1.Event{await(signal, "s", "e:0")}, WaitTimeoutMs: -1}, bad},
		{"a long reason", &perdurev1.Commit{Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: long(4097)}}}}}, bad},
		{"an event without a kind", &perdurev1.Commit{Events: []*perdurev1.Event{{}}}, bad},
		{"a short request id", &perdurev1.Commit{Request: &perdurev1.RequestID{Id: big(3)}, Events: stepEvents("e:0", "s", nil)}, bad},
		{"no task", &perdurev1.Commit{Task: &perdurev1.TaskToken{}, Events: stepEvents("e:0", "s", nil)}, badID},
		{"another namespace", &perdurev1.Commit{Task: &perdurev1.TaskToken{Namespace: "other", Id: "e", Incarnation: task.Token.Incarnation, Version: task.Token.Version}}, bad},
		{"another version", &perdurev1.Commit{Task: &perdurev1.TaskToken{Id: "e", Incarnation: task.Token.Incarnation, Version: task.Token.Version + 1}}, stale},
		{"another incarnation", &perdurev1.Commit{Task: &perdurev1.TaskToken{Id: "e", Incarnation: task.Token.Incarnation + 1, Version: task.Token.Version}}, stale},
		{"another execution", &perdurev1.Commit{Task: &perdurev1.TaskToken{Id: "missing", Incarnation: 1, Version: 1}}, stale},

		{"another number of children", &perdurev1.Commit{NextChild: 1, Events: stepEvents("e:1", "s", nil)}, broken},
		{"another child", &perdurev1.Commit{Events: stepEvents("e:1", "s", nil)}, broken},
		{"another execution's child", &perdurev1.Commit{Events: stepEvents("x:0", "s", nil)}, broken},
		{"completed before it is scheduled", &perdurev1.Commit{Events: []*perdurev1.Event{done("e:0", nil)}}, broken},
		{"half of it right", &perdurev1.Commit{Events: append(stepEvents("e:0", "s", nil), done("e:0", nil))}, broken},
		{"an event after the end", &perdurev1.Commit{Events: append([]*perdurev1.Event{completed("x")}, stepEvents("e:0", "s", nil)...)}, broken},
		{"the server's events", &perdurev1.Commit{Events: []*perdurev1.Event{{Kind: &perdurev1.Event_SignalDelivered{SignalDelivered: &perdurev1.SignalDelivered{Name: "s", DeliveryId: 1, Payload: value(nil)}}}}}, broken},
		{"a child's result", &perdurev1.Commit{Events: []*perdurev1.Event{scheduled("e:0", call, "f"), done("e:0", nil)}}, broken},
		{"a wait for nothing", &perdurev1.Commit{Events: []*perdurev1.Event{await(single, "")}}, broken},
		{"a wait for what is not there", &perdurev1.Commit{Events: []*perdurev1.Event{await(single, "", "e:7")}}, broken},
		{"an acknowledged cancel without a request", &perdurev1.Commit{Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{}}}}}, broken},
	} {
		if c.commit.Task == nil {
			c.commit.Task = proto.CloneOf(task.Token)
		}
		c.commit.KnownSeq = task.NextSeq
		callRefused(t, c.what, s.commit(c.commit), c.reason)
	}
	callRefused(t, "no token at all", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{}}})), bad)
	for what, r := range map[string]*perdurev1.Release{
		"no token": {}, "a negative delay": {Task: task.Token, DelayMs: -1},
	} {
		callRefused(t, "release: "+what, receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{Release: r}})), bad)
	}
	callRefused(t, "heartbeat without a token", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{
		Heartbeat: &perdurev1.Heartbeat{Tasks: []*perdurev1.TaskToken{{}}}}})), badID)
	callRefused(t, "journal of a missing execution", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_ReadJournal{
		ReadJournal: &perdurev1.ReadJournal{Id: "missing"}}})), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	callRefused(t, "journal without an id", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_ReadJournal{
		ReadJournal: &perdurev1.ReadJournal{}}})), badID)

	if after := w.journal("e"); len(after) != len(before) {
		t.Errorf("refused commits made %v of the journal", after)
	}
	if e := w.describe("e"); e.Task.Version != task.Token.Version || e.Task.State != "acquired" {
		t.Errorf("refused commits changed the task: %v", e.Task)
	}
	if n := w.listed(); n != 1 {
		t.Errorf("refused commits started %d executions", n-1)
	}
	// The execution continues normally.
	m := s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: append(stepEvents("e:0", "s", big(maxPayload)), completed("end"))})
	if r := m.GetCommit(); r.GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED || r.GetNextSeq() != 5 {
		t.Errorf("the right commit was answered %v", m)
	}
}

// TestLateCommit lets a lease end. The worker's later messages are refused and change nothing.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("late", "f")
	a := w.hello(&perdurev1.Hello{WorkerId: t.Name() + "-a", Functions: []string{"f"}, Capacity: 1, LeaseMs: 1000})
	mine := a.task()
	b := w.hello(&perdurev1.Hello{WorkerId: t.Name() + "-b", Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	theirs := b.task() // a sends no heartbeat
	if theirs.Token.Version <= mine.Token.Version || theirs.Token.Incarnation != mine.Token.Incarnation {
		t.Errorf("the task was %v and is %v", mine.Token, theirs.Token)
	}
	for what, events := range map[string][]*perdurev1.Event{
		"a step": stepEvents("late:0", "s", []byte("a")), "the end": {completed("a")}, "nothing": nil,
	} {
		callRefused(t, "a late commit of "+what, a.commit(&perdurev1.Commit{Task: mine.Token, KnownSeq: mine.NextSeq, Events: events}), stale)
	}
	callRefused(t, "a late release", receive(t, "answer", a.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{
		Release: &perdurev1.Release{Task: mine.Token, Problem: "late"}}})), stale)
	until(t, "a heartbeat to be answered that the task is lost", func() error {
		beat := receive(t, "answer", a.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{Tasks: []*perdurev1.TaskToken{mine.Token}}}}))
		if len(beat.GetHeartbeat().GetUnknown()) > 0 { // a busy node could not tell in time
			return fmt.Errorf("answered %v", beat)
		}
		if lost := beat.GetHeartbeat().GetLost(); len(lost) != 1 || !proto.Equal(lost[0], mine.Token) {
			t.Fatalf("a late heartbeat was answered %v", beat)
		}
		return nil
	})
	if e := w.describe("late"); e.JournalEvents != 1 || e.LastProblem != "" || e.Task.Version != theirs.Token.Version {
		t.Errorf("late requests changed it: %v", e)
	}

	// The holder's commit is applied once, however often it is sent, also at the same time.
	commit := func() *perdurev1.WorkRequest {
		return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{
			Request: &perdurev1.RequestID{Id: []byte("0123456789abcdef")}, Task: proto.CloneOf(theirs.Token), KnownSeq: theirs.NextSeq, Events: stepEvents("late:0", "s", []byte("b"))}}}
	}
	var answers []<-chan *perdurev1.WorkResponse
	for range 5 {
		answers = append(answers, b.ask(commit()))
	}
	for _, answer := range answers {
		m := receive(t, "answer", answer)
		if r := m.GetCommit(); r.GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED || r.GetNextSeq() != 4 || r.GetNextChild() != 1 {
			t.Errorf("the commit was answered %v", m)
		}
	}
	end := &perdurev1.Commit{Request: rid(), Task: theirs.Token, NextChild: 1, KnownSeq: 4, Events: []*perdurev1.Event{completed("b")}}
	for range 3 {
		if m := b.commit(proto.CloneOf(end)); m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED || m.GetCommit().GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			t.Errorf("the end was answered %v", m)
		}
	}
	end.Request = rid()
	callRefused(t, "another commit after the end", b.commit(end), stale)
	if got := w.journal("late"); len(got) != 5 || string(got[3].Event.GetInvokeCompleted().GetResult().GetValue()) != "b" {
		t.Errorf("the journal is %v", got)
	}
}

// TestWorkerComesBack opens a second stream under the same worker id: the first is over, the tasks are
// kept, and those the worker does not know of are sent again.
func TestWorkerComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"known", "unknown"} {
		w.start(id, "f")
	}
	hello := func(held ...*perdurev1.TaskToken) *perdurev1.Hello {
		return &perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 2, LeaseMs: 600_000, Held: held}
	}
	first := w.hello(hello())
	tasks := map[string]*perdurev1.Task{}
	for range 2 {
		task := first.task()
		tasks[task.Token.Id] = task
	}
	never := &perdurev1.TaskToken{Namespace: w.ns, Id: "never", Incarnation: 1, Version: 1}
	old := proto.CloneOf(tasks["unknown"].Token)
	old.Version += 7
	again := w.hello(hello(tasks["known"].Token, never, old))
	if err := receive(t, "end of the first stream", first.ended); status.Code(err) != codes.Canceled {
		t.Errorf("the first stream ended with %v", err)
	}
	lost := map[string]bool{}
	for _, l := range again.welcome.Lost {
		lost[l.Id] = true
	}
	if len(lost) != 2 || !lost["never"] || !lost["unknown"] {
		t.Errorf("lost are %v", again.welcome.Lost)
	}
	if task := again.task(); !proto.Equal(task, tasks["unknown"]) {
		t.Errorf("the task came again as %v, it was %v", task, tasks["unknown"])
	}
	again.noTask()
	for id, task := range tasks {
		if m := again.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed(id)}}); m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED {
			t.Errorf("%s: %v", id, m)
		}
	}
	// Its credit is the capacity of the last hello and the later messages, less the task that was sent again.
	for i := range 2 {
		w.start(fmt.Sprint("more-", i), "f")
	}
	// They may be of two partitions, of which either may have the credit.
	came, waits := again.task().Token.Id, "more-1"
	if came == waits {
		waits = "more-0"
	}
	if e := w.describe(waits); e.WakeSource != "no worker" {
		t.Errorf("more tasks were delivered than the capacity allows: after %s, %v", came, e)
	}
	again.noTask()
	if err := again.raw.Send(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Credit{Credit: &perdurev1.Credit{Tasks: 1}}}); err != nil {
		t.Fatal(err)
	}
	if task := again.task(); task.Token.Id != waits {
		t.Errorf("the task %v came, after %s", task, came)
	}
}

// TestHelloExtendsLeases opens a second stream that claims a task: the claim counts as a heartbeat, for the node of the
// first stream may have passed none on.
func TestHelloExtendsLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"claimed", "not claimed"} {
		w.start(id, "f")
	}
	hello := &perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 2, LeaseMs: 600_000}
	first := w.hello(hello)
	leases := map[string]int64{}
	for range 2 {
		task := first.task()
		leases[task.Token.Id] = w.describe(task.Token.Id).Task.LeaseUntilMs
		if task.Token.Id == "claimed" {
			hello.Held = append(hello.Held, task.Token)
		}
	}
	until(t, "the clock to advance", func() error {
		if now := time.Now().UnixMilli(); now <= leases["claimed"]-hello.LeaseMs {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
	w.hello(hello)
	if got := w.describe("claimed").Task.LeaseUntilMs; got <= leases["claimed"] {
		t.Errorf("the lease of the claimed task lasts until %d, as before (%d)", got, leases["claimed"])
	}
	if got := w.describe("not claimed").Task.LeaseUntilMs; got != leases["not claimed"] {
		t.Errorf("the lease of the other task lasts until %d, before %d", got, leases["not claimed"])
	}
}

// TestWorkerOfAnotherNamespace calls itself like a worker elsewhere: it gets nothing of that one's.
func TestWorkerOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("mine", "f")
	hello := func(ns string) *perdurev1.Hello {
		return &perdurev1.Hello{WorkerId: t.Name(), Namespace: ns, Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000}
	}
	mine := w.hello(hello(w.ns))
	task := mine.task()
	thief := w.hello(hello(w.ns + "-other"))
	callRefused(t, "a commit of another namespace's task", thief.commit(&perdurev1.Commit{Task: task.Token, Events: []*perdurev1.Event{completed("stolen")}}), bad)
	callRefused(t, "a release of another namespace's task", receive(t, "answer", thief.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{
		Release: &perdurev1.Release{Task: task.Token}}})), bad)
	callRefused(t, "a heartbeat for another namespace's task", receive(t, "answer", thief.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{
		Heartbeat: &perdurev1.Heartbeat{Tasks: []*perdurev1.TaskToken{task.Token}}}})), bad)
	callRefused(t, "another namespace's journal", receive(t, "answer", thief.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_ReadJournal{
		ReadJournal: &perdurev1.ReadJournal{Namespace: w.ns, Id: "mine"}}})), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	thief.noTask()
	if e := w.describe("mine"); e.Task.Version != task.Token.Version || e.JournalEvents != 1 {
		t.Errorf("it is %v", e)
	}
}

// TestReleaseAndCancel releases tasks with a problem, and receives a cancel without asking.
func TestReleaseAndCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("long", "f")
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	task := s.task()
	release := func(task *perdurev1.Task, delay time.Duration) {
		t.Helper()
		m := receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{Release: &perdurev1.Release{
			Task: task.Token, Problem: "not now", DelayMs: delay.Milliseconds(), Credit: 1}}}))
		if m.GetRelease() == nil {
			t.Fatalf("a release was answered %v", m)
		}
	}
	release(task, time.Hour)
	if e := w.describe("long"); e.LastProblem != "not now" || e.Task.State != "pending" || e.WakeSource != "retry timer" {
		t.Errorf("after a release it is %v", e)
	}
	w.start("r", "f")
	task = s.task()
	began := time.Now()
	release(task, 150*time.Millisecond)
	task = s.task()
	if took := time.Since(began); task.Token.Id != "r" || took < 149*time.Millisecond { // the node counts whole milliseconds
		t.Errorf("a task released for 150 ms came again after %v: %v", took, task.Token)
	}
	release(task, 0)
	task = s.task()
	if m := s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: stepEvents("r:0", "s", nil)}); m.GetCommit() == nil {
		t.Fatalf("a commit was answered %v", m)
	}
	if e := w.describe("r"); e.LastProblem != "" {
		t.Errorf("after a commit the problem is still %q", e.LastProblem)
	}
	if _, err := w.executions.Cancel(soon(t), &perdurev1.CancelRequest{Namespace: w.ns, Id: "r", Reason: "why", Request: rid()}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, "news of the cancel", s.pushed); len(m.GetHeartbeat().GetCancelling()) != 1 || !proto.Equal(m.GetHeartbeat().GetCancelling()[0], task.Token) {
		t.Errorf("the worker got %v", m)
	}
	beat := receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{Tasks: []*perdurev1.TaskToken{task.Token}}}}))
	if c := beat.GetHeartbeat().GetCancelling(); len(c) != 1 || len(beat.GetHeartbeat().GetLost()) != 0 {
		t.Errorf("a heartbeat was answered %v", beat)
	}
	page := receive(t, "page", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_ReadJournal{ReadJournal: &perdurev1.ReadJournal{Id: "r", Incarnation: task.Token.Incarnation, FromSeq: 4}}}))
	if p := page.GetJournal(); len(p.GetEntries()) != 1 || p.GetEntries()[0].Event.GetCancelRequested().GetReason() != "why" || p.GetNextSeq() != 5 {
		t.Errorf("the journal's rest is %v", page)
	}
	m := s.commit(&perdurev1.Commit{Task: task.Token, NextChild: 1, KnownSeq: 5, Events: []*perdurev1.Event{
		{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: "why"}}}}})
	if m.GetCommit().GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
		t.Errorf("the acknowledgement was answered %v", m)
	}
}

// TestTooManyWorkers fills a node's worker streams.
func TestTooManyWorkers(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *embed.Config) { c.MaxWorkers = 2 })
	w := connect(t, n)
	hello := func(id string) *perdurev1.Hello {
		return &perdurev1.Hello{WorkerId: id, Namespace: w.ns, Functions: []string{"f"}}
	}
	a := w.hello(hello("a"))
	w.hello(hello("b"))
	third := w.open()
	third.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Hello{Hello: hello("c")}})
	refused(t, "a third worker", receive(t, "refusal", third.ended), perdurev1.Reason_REASON_OVERLOADED)
	again := w.hello(hello("a")) // it comes back: that is no further worker
	receive(t, "end of the stream before", a.ended)
	again.cancel()
	until(t, "a slot for another worker", func() error {
		s := w.open()
		answer := s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Hello{Hello: hello("d")}})
		select {
		case m := <-answer:
			if m.GetWelcome() == nil {
				return fmt.Errorf("answered %v", m)
			}
			return nil
		case err := <-s.ended:
			return err
		}
	})
}

// TestSilentWorker opens a stream and says nothing; one that reads nothing does not keep the node from
// stopping.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	w := connect(t, n)
	// It takes more tasks than its connection holds, and reads none of them. Its stream begins after the starts: a busy
	// machine may take longer for them than a stream may be without its Hello.
	const executions = 40
	for i := range executions {
		if _, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: fmt.Sprint("e", i), Function: "f", Input: big(256 << 10), AllowUnknownFunction: true}); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := w.tasks.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Send(&perdurev1.WorkRequest{CallId: 1, Kind: &perdurev1.WorkRequest_Hello{Hello: &perdurev1.Hello{
		WorkerId: "deaf", Namespace: w.ns, Functions: []string{"f"}, Capacity: 2 * executions, LeaseMs: 600_000}}}); err != nil {
		t.Fatal(err)
	}
	until(t, "all tasks to be its own", func() error {
		for i := range executions {
			if e := w.describe(fmt.Sprint("e", i)); e.Task.State != "acquired" {
				return fmt.Errorf("%v", e.Task)
			}
		}
		return nil
	})
	began := time.Now()
	if err := finish(n); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > prompt {
		t.Errorf("the stop took %v", took)
	}
}

// TestNoTaskTwice has tasks wait for a worker that connects: each reaches it once, and takes its credit once.
func TestNoTaskTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const waiting, more, rounds = 12, 3, 10
	for round := range rounds {
		function := fmt.Sprint("f", round)
		for i := range waiting {
			w.start(fmt.Sprintf("e-%d-%d", round, i), function)
		}
		s := w.hello(&perdurev1.Hello{WorkerId: fmt.Sprint(t.Name(), round), Functions: []string{function}, Capacity: waiting + more, LeaseMs: 600_000})
		for i := range more {
			w.start(fmt.Sprintf("more-%d-%d", round, i), function)
		}
		seen := map[string]bool{}
		for range waiting + more {
			id := s.task().Token.Id
			if seen[id] {
				t.Errorf("%s came twice", id)
			}
			seen[id] = true
		}
		s.noTask()
		s.cancel()
	}
}

// TestHeartbeatIsBounded refuses a heartbeat that names too much, by its rule.
func TestHeartbeatIsBounded(t *testing.T) {
	t.Parallel()
	const maxHeartbeat = 4096
	w := newWorld(t)
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, LeaseMs: 600_000})
	beat := func(n int, id string) *perdurev1.WorkResponse {
		h := &perdurev1.Heartbeat{}
		for i := range n {
			h.Tasks = append(h.Tasks, &perdurev1.TaskToken{Id: fmt.Sprint(id, i), Incarnation: 1, Version: 1})
		}
		return receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: h}}))
	}
	callRefused(t, "a heartbeat of too many tasks", beat(maxHeartbeat+1, "x"), bad)
	callRefused(t, "a heartbeat of too many bytes", beat(2000, strings.Repeat("x", 1000)), bad)
	if lost := beat(maxHeartbeat, "x").GetHeartbeat().GetLost(); len(lost) != maxHeartbeat {
		t.Errorf("%d of %d unknown tasks are lost", len(lost), maxHeartbeat)
	}
}
