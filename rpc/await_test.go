package rpc_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// TestStartAndWait: a start that waits is answered with the result. While it waits it holds nothing of its
// input, and its repetition is answered with the same result.
func TestStartAndWait(t *testing.T) {
	w := newWorld(t)
	s := w.hello(&perdurev1.Hello{WorkerId: "w", Functions: []string{"f"}, Capacity: 9, LeaseMs: 600_000})
	in := &perdurev1.StartRequest{Namespace: w.ns, Id: "x", Function: "f", Request: rid(), Input: big(1 << 20), WaitMs: testTimeout.Milliseconds()}
	done := make(chan *perdurev1.StartResponse, 1)
	start := func() {
		out, err := w.executions.Start(soon(t), proto.CloneOf(in))
		if err != nil {
			t.Error(err)
		}
		done <- out
	}
	go start()
	task := s.task()
	until(t, "the input to be released", func() error {
		if n := metrics(t, w.node)["perdure_request_bytes"]; n >= 1<<20 {
			return fmt.Errorf("%v bytes are held", n)
		}
		return nil
	})
	s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed("r")}})
	first := receive(t, "result", done)
	if r := first.GetResult(); !first.GetCreated() || !r.GetDone() || string(r.GetOutcome().GetValue()) != "r" || r.GetIncarnation() != first.GetIncarnation() ||
		r.GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || r.GetReadIndex() <= first.GetIncarnation() {
		t.Errorf("it is %v", first)
	}
	in.Request.AgeMs = 1
	go start()
	if again := receive(t, "the same result", done); again.GetIncarnation() != first.GetIncarnation() || !proto.Equal(again.GetResult().GetOutcome(), first.GetResult().GetOutcome()) {
		t.Errorf("the repetition is answered with %v, the first was %v", again, first)
	}
}

// TestStartDoesNotWait: a start whose wait ends, by its own bound or with the node, has started the execution.
func TestStartDoesNotWait(t *testing.T) {
	w := connect(t, startNode(t, nil))
	start := func(id string, wait time.Duration) (*perdurev1.StartResponse, error) {
		return w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: id, Function: "f", AllowUnknownFunction: true,
			Request: rid(), WaitMs: wait.Milliseconds()})
	}
	if out, err := start("x", time.Millisecond); err != nil || !out.Created || out.Result != nil {
		t.Errorf("%v, %v", out, err)
	}
	_, err := start("y", -time.Millisecond)
	refused(t, "a negative wait", err, perdurev1.Reason_REASON_BAD_REQUEST)
	done := make(chan error, 1)
	go func() {
		out, err := start("z", testTimeout)
		if err == nil && (!out.Created || out.Result != nil) {
			t.Errorf("%v", out)
		}
		done <- err
	}()
	until(t, "the start", func() error {
		if n := w.listed(); n != 2 {
			return fmt.Errorf("%d executions", n)
		}
		return nil
	})
	if err := finish(w.node); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "answer of a node that stops", done); err != nil {
		t.Error(err)
	}
}
