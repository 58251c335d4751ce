package rpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/internal/callstream"
	"perdure/internal/testkit"
)

// streamed returns a connection whose calls go by a stream, a client of it, and counts those calls.
func (w *world) streamed() (*callstream.Conn, perdurev1.ExecutionsClient, <-chan struct{}) {
	w.t.Helper()
	sent := make(chan struct{}, 1000)
	calls := callstream.NewConn(w.conn, callstream.Options{Name: callstream.ForClients, Carries: func(string) bool { return true },
		Sent: func(context.Context) { sent <- struct{}{} }})
	w.t.Cleanup(func() { calls.Close() })
	c := perdurev1.NewExecutionsClient(calls)
	testkit.EventuallyNil(w.t, testTimeout, "a call to go by a stream", func() error {
		if _, err := c.Result(soon(w.t), &perdurev1.ResultRequest{Namespace: w.ns, Id: "nobody"}); err == nil {
			w.t.Fatal("the result of nothing")
		}
		if len(sent) == 0 {
			return fmt.Errorf("no call")
		}
		return nil
	})
	return calls, c, sent
}

// TestSignalAndResultOnAStream: a signal is delivered once however often it is repeated, and a result is answered when it
// comes, at once if it has come, and with a refusal if there is no such execution.
func TestSignalAndResultOnAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, c, sent := w.streamed()
	incarnation := w.start("a", "f").Incarnation
	worker := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 10, LeaseMs: 600_000})
	task := worker.task()
	before := len(sent)
	type answer struct {
		out *perdurev1.ResultResponse
		err error
	}
	result := func(in *perdurev1.ResultRequest) <-chan answer {
		in.Namespace = w.ns
		ended := make(chan answer, 1)
		go func() {
			out, err := c.Result(soon(t), in)
			ended <- answer{out, err}
		}()
		return ended
	}
	waits := []<-chan answer{result(&perdurev1.ResultRequest{Id: "a", Incarnation: incarnation, WaitMs: 60_000}),
		result(&perdurev1.ResultRequest{Id: "a", WaitMs: 60_000})}
	if a := receive(t, "answer", result(&perdurev1.ResultRequest{Id: "a", Incarnation: incarnation})); a.err != nil || a.out.Done || a.out.ReadIndex == 0 {
		t.Errorf("without a wait: %v, %v", a.out, a.err)
	}
	refused(t, "a wait for nothing", receive(t, "refusal", result(&perdurev1.ResultRequest{Id: "nobody", Incarnation: 1, WaitMs: 60_000})).err,
		perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	refused(t, "a negative wait", receive(t, "refusal", result(&perdurev1.ResultRequest{Id: "a", WaitMs: -1})).err, bad)

	signal := func(request *perdurev1.RequestID, payload string) uint64 {
		t.Helper()
		out, err := c.Signal(soon(t), &perdurev1.SignalRequest{Request: request, Namespace: w.ns, Id: "a", Name: "go", Payload: []byte(payload)})
		if err != nil {
			t.Fatal(err)
		}
		return out.DeliveryId
	}
	request := rid()
	if first, again, second := signal(request, "one"), signal(request, "one"), signal(rid(), "two"); first != 1 || again != 1 || second != 2 {
		t.Errorf("deliveries %d, repeated %d, and %d", first, again, second)
	}
	_, err := c.Signal(soon(t), &perdurev1.SignalRequest{Request: rid(), Namespace: w.ns, Id: "a"})
	refused(t, "a nameless signal", err, bad)
	_, err = c.Signal(soon(t), &perdurev1.SignalRequest{Request: rid(), Namespace: w.ns, Id: "nobody", Name: "go"})
	refused(t, "a signal for nobody", err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)

	worker.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed("done")}})
	waits = append(waits, result(&perdurev1.ResultRequest{Id: "a", Incarnation: incarnation, WaitMs: 60_000}))
	for n, wait := range waits {
		if a := receive(t, "result", wait); a.err != nil || string(a.out.GetOutcome().GetValue()) != "done" || a.out.ReadIndex == 0 {
			t.Errorf("wait %d: %v, %v", n, a.out, a.err)
		}
	}
	if got := len(sent) - before; got != 11 {
		t.Errorf("%d of 11 calls went by the stream", got)
	}
}

// TestMessagesTogether: a worker's messages that come in one are handled as if they came one after the other.
func TestMessagesTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("a", "f")
	w.start("b", "f")
	worker := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 2, LeaseMs: 600_000})
	if !worker.welcome.Batches {
		t.Error("the node does not say that it reads batches")
	}
	batch := &perdurev1.WorkRequest{}
	var answers []<-chan *perdurev1.WorkResponse
	for range 2 {
		task := worker.task()
		m := &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{Request: rid(), Task: task.Token, KnownSeq: task.NextSeq,
			Events: []*perdurev1.Event{completed("of " + task.Token.Id)}}}}
		answers = append(answers, worker.expect(m))
		batch.Batch = append(batch.Batch, m)
	}
	nothing := &perdurev1.WorkRequest{Batch: []*perdurev1.WorkRequest{{}}} // one within another
	answers = append(answers, worker.expect(nothing))
	batch.Batch = append(batch.Batch, nothing)
	if err := worker.raw.Send(batch); err != nil {
		t.Fatal(err)
	}
	for n, answer := range answers {
		m := receive(t, "answer", answer)
		if n == 2 {
			callRefused(t, "a batch within another", m, bad)
		} else if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED {
			t.Errorf("a commit was answered by %v", m)
		}
	}
	for _, id := range []string{"a", "b"} {
		out, err := w.executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: w.ns, Id: id})
		if err != nil || string(out.GetOutcome().GetValue()) != "of "+id {
			t.Errorf("%s: %v, %v", id, out, err)
		}
	}
}

// TestPromisesOnAStream: a promise is created and settled once however often that is repeated, and a refusal names the rule.
func TestPromisesOnAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, _, sent := w.streamed()
	c, before := perdurev1.NewPromisesClient(conn), len(sent)
	request := rid()
	create := func(request *perdurev1.RequestID, id, param string, timeout int64) (*perdurev1.PromiseResponse, error) {
		return c.Create(soon(t), &perdurev1.CreatePromiseRequest{Request: request, Namespace: w.ns, Id: id, Param: []byte(param), TimeoutMs: timeout})
	}
	for _, what := range []string{"create", "create again"} {
		if out, err := create(request, "p", "x", 60_000); err != nil || out.Promise.GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING || string(out.Promise.GetParam()) != "x" {
			t.Errorf("%s: %v, %v", what, out, err)
		}
	}
	_, err := create(rid(), "q", "", 0)
	refused(t, "a promise that is never due", err, bad)
	settle := func(request *perdurev1.RequestID, id string, state perdurev1.PromiseState, value string) (*perdurev1.PromiseResponse, error) {
		return c.Settle(soon(t), &perdurev1.SettlePromiseRequest{Request: request, Namespace: w.ns, Id: id, State: state,
			Value: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(value)}}})
	}
	request = rid()
	for _, what := range []string{"settle", "settle again"} {
		if out, err := settle(request, "p", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, "y"); err != nil || string(out.Promise.GetValue().GetValue()) != "y" {
			t.Errorf("%s: %v, %v", what, out, err)
		}
	}
	_, err = settle(rid(), "p", perdurev1.PromiseState_PROMISE_STATE_REJECTED, "y")
	refused(t, "a value for a rejection", err, bad)
	_, err = settle(rid(), "nobody", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, "y")
	refused(t, "a settlement of nothing", err, perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
	if got := len(sent) - before; got != 7 {
		t.Errorf("%d of 7 calls went by the stream", got)
	}
}

// TestRefusalsByQuotasAreHeld: one that comes alone is answered after a pause, and changes nothing.
func TestRefusalsByQuotasAreHeld(t *testing.T) {
	t.Parallel()
	w := connect(t, startNode(t, func(c *embed.Config) { c.Quota = []string{"full=bytes:1B"} }))
	conn, executions, _ := w.streamed()
	promises := perdurev1.NewPromisesClient(conn)
	start := func(id string) error {
		_, err := executions.Start(soon(t), &perdurev1.StartRequest{Request: rid(), Namespace: "full", Id: id, Function: "f", AllowUnknownFunction: true})
		return err
	}
	if err := start("first"); err != nil {
		t.Fatalf("within the quota: %v", err)
	}
	for what, call := range map[string]func() error{
		"start": func() error { return start("second") },
		"promise": func() error {
			_, err := promises.Create(soon(t), &perdurev1.CreatePromiseRequest{Request: rid(), Namespace: "full", Id: "second", TimeoutMs: 60_000})
			return err
		},
	} {
		began := time.Now()
		refused(t, what+" above the quota", call(), perdurev1.Reason_REASON_QUOTA_EXCEEDED)
		if took := time.Since(began); took < 50*time.Millisecond {
			t.Errorf("%s: refused after %v", what, took)
		}
	}
	if _, err := executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: "full", Id: "second"}); err == nil {
		t.Error("a refused start has started its execution")
	}
}
