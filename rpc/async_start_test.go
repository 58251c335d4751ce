package rpc_test

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestStartAndWaitOnAStream: a start that waits is answered with the result when the execution ends, at once or after
// long, and again when it is repeated; one that is refused changes nothing.
func TestStartAndWaitOnAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, c, _ := w.streamed()
	worker := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 10, LeaseMs: 600_000})
	type answer struct {
		out *perdurev1.StartResponse
		err error
	}
	start := func(in *perdurev1.StartRequest) <-chan answer {
		in.Namespace, in.Function, in.WaitMs = w.ns, "f", 60_000
		ended := make(chan answer, 1)
		go func() {
			out, err := c.Start(soon(t), in)
			ended <- answer{out, err}
		}()
		return ended
	}
	end := func(result string) {
		t.Helper()
		task := worker.task()
		worker.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: []*perdurev1.Event{completed(result)}})
	}
	check := func(a answer, created bool, result string) {
		t.Helper()
		if a.err != nil || a.out.Created != created || string(a.out.GetResult().GetOutcome().GetValue()) != result || a.out.Result.ReadIndex == 0 {
			t.Errorf("%v, %v; want %q, created: %v", a.out, a.err, result, created)
		}
	}
	request := rid()
	first := start(&perdurev1.StartRequest{Id: "a", Request: request})
	end("one")
	check(receive(t, "answer", first), true, "one")
	check(receive(t, "answer to the repeated request", start(&perdurev1.StartRequest{Id: "a", Request: request})), true, "one")
	check(receive(t, "answer to another request", start(&perdurev1.StartRequest{Id: "a", Request: rid()})), false, "one")
	both := []<-chan answer{start(&perdurev1.StartRequest{Id: "b", Request: rid()}), start(&perdurev1.StartRequest{Id: "b", Request: rid()})}
	end("two")
	created := 0
	for _, one := range both {
		a := receive(t, "answer", one)
		if a.err != nil || string(a.out.GetResult().GetOutcome().GetValue()) != "two" {
			t.Errorf("%v, %v", a.out, a.err)
		}
		if a.out.GetCreated() {
			created++
		}
	}
	if created != 1 {
		t.Errorf("%d of two starts have created b", created)
	}
	refused(t, "a start without an id", receive(t, "refusal", start(&perdurev1.StartRequest{Request: rid()})).err, perdurev1.Reason_REASON_BAD_ID)
	refused(t, "a start with another input", receive(t, "refusal", start(&perdurev1.StartRequest{Id: "a", Input: []byte("x"), Request: rid()})).err,
		perdurev1.Reason_REASON_ID_CONFLICT)
}
