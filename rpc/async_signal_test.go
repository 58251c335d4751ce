package rpc_test

import (
	"context"
	"fmt"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream"
	"perdure/internal/testkit"
)

// streamed returns a client whose calls go by a stream, and counts those.
func (w *world) streamed() (perdurev1.ExecutionsClient, <-chan struct{}) {
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
	return c, sent
}

// TestSignalAndResultOnAStream: a signal is delivered once however often it is repeated, and a result is answered when it
// comes, at once if it has come, and with a refusal if there is no such execution.
func TestSignalAndResultOnAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, sent := w.streamed()
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
