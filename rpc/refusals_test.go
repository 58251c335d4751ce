package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

const (
	badID     = perdurev1.Reason_REASON_BAD_ID
	idTooLong = perdurev1.Reason_REASON_ID_TOO_LONG
	tooLarge  = perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE
	tooMany   = perdurev1.Reason_REASON_TOO_MANY_TAGS
	bad       = perdurev1.Reason_REASON_BAD_REQUEST
	stale     = perdurev1.Reason_REASON_STALE_TASK
	broken    = perdurev1.Reason_REASON_RULE_BROKEN

	maxPayload = 4 << 20
)

func manyTags(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint(i)] = "v"
	}
	return m
}

// TestRefusedAtTheEdge sends everything that a request may not be. Each is refused with its reason before
// anything is proposed, and nothing is there afterwards. It runs alone: it counts what is proposed.
func TestRefusedAtTheEdge(t *testing.T) {
	w := newWorld(t)
	w.start("exists", "unserved") // for what needs an execution
	if _, err := w.promises.Create(soon(t), &perdurev1.CreatePromiseRequest{Namespace: w.ns, Id: "promise", TimeoutMs: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	before, journal := proposed(t, w), len(w.journal("exists"))

	start := func(change func(*perdurev1.StartRequest)) error {
		r := &perdurev1.StartRequest{Namespace: w.ns, Id: "new", Function: "unserved", AllowUnknownFunction: true, Request: rid()}
		change(r)
		_, err := w.executions.Start(soon(t), r)
		return err
	}
	signal := func(change func(*perdurev1.SignalRequest)) error {
		r := &perdurev1.SignalRequest{Namespace: w.ns, Id: "exists", Name: "s", Request: rid()}
		change(r)
		_, err := w.executions.Signal(soon(t), r)
		return err
	}
	cancel := func(change func(*perdurev1.CancelRequest)) error {
		r := &perdurev1.CancelRequest{Namespace: w.ns, Id: "exists", Request: rid()}
		change(r)
		_, err := w.executions.Cancel(soon(t), r)
		return err
	}
	terminate := func(change func(*perdurev1.TerminateRequest)) error {
		r := &perdurev1.TerminateRequest{Namespace: w.ns, Id: "exists", Request: rid()}
		change(r)
		_, err := w.executions.Terminate(soon(t), r)
		return err
	}
	create := func(change func(*perdurev1.CreatePromiseRequest)) error {
		r := &perdurev1.CreatePromiseRequest{Namespace: w.ns, Id: "new", TimeoutMs: 1000, Request: rid()}
		change(r)
		_, err := w.promises.Create(soon(t), r)
		return err
	}
	settle := func(change func(*perdurev1.SettlePromiseRequest)) error {
		r := &perdurev1.SettlePromiseRequest{Namespace: w.ns, Id: "promise", State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED, Request: rid()}
		change(r)
		_, err := w.promises.Settle(soon(t), r)
		return err
	}
	value := func(b []byte) *perdurev1.Outcome {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: b}}
	}
	failure := func(f *perdurev1.Failure) *perdurev1.Outcome {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: f}}
	}
	rejected := perdurev1.PromiseState_PROMISE_STATE_REJECTED
	shortID, longID := &perdurev1.RequestID{Id: big(15)}, &perdurev1.RequestID{Id: big(17)}

	cases := []struct {
		what   string
		err    error
		reason perdurev1.Reason
	}{
		{"start: no id", start(func(r *perdurev1.StartRequest) { r.Id = "" }), badID},
		{"start: id with a colon", start(func(r *perdurev1.StartRequest) { r.Id = "a:0" }), badID},
		{"start: id with a NUL", start(func(r *perdurev1.StartRequest) { r.Id = "a\x00b" }), badID},
		{"start: id of 1,025 bytes", start(func(r *perdurev1.StartRequest) { r.Id = long(1025) }), idTooLong},
		{"start: no function", start(func(r *perdurev1.StartRequest) { r.Function = "" }), bad},
		{"start: long function", start(func(r *perdurev1.StartRequest) { r.Function = long(257) }), bad},
		{"start: function of the server's own", start(func(r *perdurev1.StartRequest) { r.Function = "$http" }), bad},
		{"start: function with a NUL", start(func(r *perdurev1.StartRequest) { r.Function = "f\x00" }), bad},
		{"start: long namespace", start(func(r *perdurev1.StartRequest) { r.Namespace = long(257) }), bad},
		{"start: namespace with a NUL", start(func(r *perdurev1.StartRequest) { r.Namespace = "n\x00" }), bad},
		{"start: large input", start(func(r *perdurev1.StartRequest) { r.Input = big(maxPayload + 1) }), tooLarge},
		{"start: 65 tags", start(func(r *perdurev1.StartRequest) { r.Tags = manyTags(65) }), tooMany},
		{"start: a tag without a key", start(func(r *perdurev1.StartRequest) { r.Tags = map[string]string{"": "v"} }), bad},
		{"start: a long key", start(func(r *perdurev1.StartRequest) { r.Tags = map[string]string{long(1025): "v"} }), bad},
		{"start: a long tag", start(func(r *perdurev1.StartRequest) { r.Tags = map[string]string{"k": long(1025)} }), bad},
		{"start: negative timeout", start(func(r *perdurev1.StartRequest) { r.TimeoutMs = -1 }), bad},
		{"start: long digest", start(func(r *perdurev1.StartRequest) { r.ComponentDigest = long(1025) }), bad},
		{"start: short request id", start(func(r *perdurev1.StartRequest) { r.Request = shortID }), bad},
		{"start: long request id", start(func(r *perdurev1.StartRequest) { r.Request = longID }), bad},

		{"signal: no id", signal(func(r *perdurev1.SignalRequest) { r.Id = "" }), badID},
		{"signal: id with a NUL", signal(func(r *perdurev1.SignalRequest) { r.Id = "a\x00" }), badID},
		{"signal: long id", signal(func(r *perdurev1.SignalRequest) { r.Id = long(1025) }), idTooLong},
		{"signal: no name", signal(func(r *perdurev1.SignalRequest) { r.Name = "" }), bad},
		{"signal: long name", signal(func(r *perdurev1.SignalRequest) { r.Name = long(257) }), bad},
		{"signal: large payload", signal(func(r *perdurev1.SignalRequest) { r.Payload = big(maxPayload + 1) }), tooLarge},
		{"signal: short request id", signal(func(r *perdurev1.SignalRequest) { r.Request = shortID }), bad},

		{"cancel: negative grace", cancel(func(r *perdurev1.CancelRequest) { r.GraceMs = -1 }), bad},
		{"cancel: long reason", cancel(func(r *perdurev1.CancelRequest) { r.Reason = long(4097) }), bad},
		{"cancel: no id", cancel(func(r *perdurev1.CancelRequest) { r.Id = "" }), badID},
		{"cancel: long request id", cancel(func(r *perdurev1.CancelRequest) { r.Request = longID }), bad},
		{"terminate: long reason", terminate(func(r *perdurev1.TerminateRequest) { r.Reason = long(4097) }), bad},
		{"terminate: no id", terminate(func(r *perdurev1.TerminateRequest) { r.Id = "" }), badID},
		{"terminate: long request id", terminate(func(r *perdurev1.TerminateRequest) { r.Request = longID }), bad},

		{"create: no id", create(func(r *perdurev1.CreatePromiseRequest) { r.Id = "" }), badID},
		{"create: child id", create(func(r *perdurev1.CreatePromiseRequest) { r.Id = "a:0" }), badID},
		{"create: long id", create(func(r *perdurev1.CreatePromiseRequest) { r.Id = long(1025) }), idTooLong},
		{"create: large param", create(func(r *perdurev1.CreatePromiseRequest) { r.Param = big(maxPayload + 1) }), tooLarge},
		{"create: 65 tags", create(func(r *perdurev1.CreatePromiseRequest) { r.Tags = manyTags(65) }), tooMany},
		{"create: no timeout", create(func(r *perdurev1.CreatePromiseRequest) { r.TimeoutMs = 0 }), bad},
		{"create: negative timeout", create(func(r *perdurev1.CreatePromiseRequest) { r.TimeoutMs = -5 }), bad},
		{"create: short request id", create(func(r *perdurev1.CreatePromiseRequest) { r.Request = shortID }), bad},
		{"settle: large value", settle(func(r *perdurev1.SettlePromiseRequest) { r.Value = value(big(maxPayload + 1)) }), tooLarge},
		{"settle: large failure", settle(func(r *perdurev1.SettlePromiseRequest) {
			r.State, r.Value = rejected, failure(&perdurev1.Failure{Type: "t", Message: long(maxPayload)})
		}), tooLarge},
		{"settle: long type of failure", settle(func(r *perdurev1.SettlePromiseRequest) {
			r.State, r.Value = rejected, failure(&perdurev1.Failure{Type: long(257)})
		}), bad},
		{"settle: resolved with a failure", settle(func(r *perdurev1.SettlePromiseRequest) { r.Value = failure(&perdurev1.Failure{}) }), bad},
		{"settle: rejected with a value", settle(func(r *perdurev1.SettlePromiseRequest) { r.State, r.Value = rejected, value(nil) }), bad},
		{"settle: pending", settle(func(r *perdurev1.SettlePromiseRequest) { r.State = perdurev1.PromiseState_PROMISE_STATE_PENDING }), bad},
		{"settle: timed out", settle(func(r *perdurev1.SettlePromiseRequest) {
			r.State = perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT
		}), bad},
		{"settle: no state", settle(func(r *perdurev1.SettlePromiseRequest) { r.State = 0 }), bad},
		{"settle: short request id", settle(func(r *perdurev1.SettlePromiseRequest) { r.Request = shortID }), bad},
	}
	reads := func(ns, id string, wait int64, reason perdurev1.Reason) {
		add := func(what string, err error) {
			cases = append(cases, struct {
				what   string
				err    error
				reason perdurev1.Reason
			}{fmt.Sprintf("%s: namespace %.8q, id %.8q, wait %d", what, ns, id, wait), err, reason})
		}
		_, err := w.executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: ns, Id: id, WaitMs: wait})
		add("result", err)
		_, err = w.promises.Await(soon(t), &perdurev1.AwaitPromiseRequest{Namespace: ns, Id: id, WaitMs: wait})
		add("await", err)
		if wait >= 0 {
			_, err = w.executions.Describe(soon(t), &perdurev1.DescribeRequest{Namespace: ns, Id: id})
			add("describe", err)
			_, err = w.executions.Journal(soon(t), &perdurev1.JournalRequest{Namespace: ns, Id: id})
			add("journal", err)
			_, err = w.promises.Get(soon(t), &perdurev1.GetPromiseRequest{Namespace: ns, Id: id})
			add("get", err)
		}
	}
	reads(w.ns, "exists", -1, bad)
	reads(w.ns, "", 0, badID)
	reads(w.ns, "a\x00", 0, badID)
	reads(w.ns, long(1025), 0, idTooLong)
	reads(long(257), "exists", 0, bad)
	for _, r := range []*perdurev1.ListRequest{{Namespace: long(257)}, {Namespace: w.ns, Cursor: []byte("nonsense")}, {Namespace: w.ns, Cursor: []byte{1}}} {
		_, err := w.executions.List(soon(t), r)
		cases = append(cases, struct {
			what   string
			err    error
			reason perdurev1.Reason
		}{fmt.Sprintf("list: %.60v", r), err, bad})
	}
	for _, c := range cases {
		refused(t, c.what, c.err, c.reason)
		if c.err != nil && len(c.err.Error()) > 2000 {
			t.Errorf("%s: the error has %d bytes", c.what, len(c.err.Error()))
		}
	}

	if n := proposed(t, w) - before; n != 0 {
		t.Errorf("%d commands were proposed for requests that are refused by their form", n)
	}
	if n := w.listed(); n != 1 {
		t.Errorf("%d executions are listed, want the one that was there", n)
	}
	if n := len(w.journal("exists")); n != journal {
		t.Errorf("the journal has %d entries, it had %d", n, journal)
	}
	if p, err := w.promises.Get(soon(t), &perdurev1.GetPromiseRequest{Namespace: w.ns, Id: "promise"}); err != nil || p.Promise.State != perdurev1.PromiseState_PROMISE_STATE_PENDING {
		t.Errorf("the promise is %v, %v", p, err)
	}
	_, err := w.promises.Get(soon(t), &perdurev1.GetPromiseRequest{Namespace: w.ns, Id: "new"})
	refused(t, "get of a promise whose creation was refused", err, perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
}

// proposed is how many commands the node has put into its logs.
func proposed(t *testing.T, w *world) int {
	t.Helper()
	n := 0.0
	for name, v := range metrics(t, w.node) {
		if strings.HasPrefix(name, "perdure_partition_commands_total{") {
			n += v
		}
	}
	return int(n)
}

// TestLimitsPass sends what is exactly within the limits.
func TestLimitsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := long(1024)
	tags := manyTags(63)
	tags[long(1024)] = long(1024)
	s, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: id, Function: long(256), Input: big(maxPayload),
		Tags: tags, ComponentDigest: long(1024), TimeoutMs: 1<<63 - 1, AllowUnknownFunction: true})
	if err != nil || !s.Created {
		t.Fatalf("start: %v, %v", s, err)
	}
	if _, err := w.executions.Signal(soon(t), &perdurev1.SignalRequest{Namespace: w.ns, Id: id, Name: long(256), Payload: big(maxPayload)}); err != nil {
		t.Errorf("signal: %v", err)
	}
	e := w.describe(id)
	if len(e.Tags) != 64 || e.Tags[long(1024)] != long(1024) || e.DeadlineMs != 0 || e.JournalEvents != 2 {
		t.Errorf("described: %d tags, deadline %d, %d events", len(e.Tags), e.DeadlineMs, e.JournalEvents)
	}
	if _, err := w.executions.Cancel(soon(t), &perdurev1.CancelRequest{Namespace: w.ns, Id: id, Reason: long(4096), GraceMs: 1<<63 - 1}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	// Pages end at about 1 MiB, and every entry is in one of them.
	seen := 0
	for next := uint64(0); ; {
		p, err := w.executions.Journal(soon(t), &perdurev1.JournalRequest{Namespace: w.ns, Id: id, FromSeq: next})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Entries) == 0 {
			break
		}
		if len(p.Entries) > 1 && len(p.Entries[0].Event.GetExecutionStarted().GetInput()) > 1<<20 {
			t.Errorf("a page of %d entries begins with one beyond its size", len(p.Entries))
		}
		seen += len(p.Entries)
		next = p.Entries[len(p.Entries)-1].Seq + 1
	}
	if seen != 3 {
		t.Errorf("%d entries were read, want 3", seen)
	}
	if _, err := w.executions.Terminate(soon(t), &perdurev1.TerminateRequest{Namespace: w.ns, Id: id, Reason: long(4096)}); err != nil {
		t.Errorf("terminate: %v", err)
	}
	if _, err := w.promises.Create(soon(t), &perdurev1.CreatePromiseRequest{Namespace: w.ns, Id: "p", Param: big(maxPayload), Tags: tags, TimeoutMs: 1<<63 - 1}); err != nil {
		t.Errorf("create: %v", err)
	}
	if p, err := w.promises.Settle(soon(t), &perdurev1.SettlePromiseRequest{Namespace: w.ns, Id: "p", State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
		Value: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: big(maxPayload)}}}); err != nil || len(p.Promise.Value.GetValue()) != maxPayload {
		t.Errorf("settle: %v", err)
	}
	if n := w.listed(); n != 1 {
		t.Errorf("%d executions are listed", n)
	}
	// No namespace is "default"; others do not see into this one.
	if _, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Id: "of-the-default", Function: "unserved", AllowUnknownFunction: true}); err != nil {
		t.Error(err)
	}
	d, err := w.executions.Describe(soon(t), &perdurev1.DescribeRequest{Namespace: "default", Id: "of-the-default"})
	if err != nil || d.Execution.Namespace != "default" {
		t.Errorf("describe in the default namespace: %v, %v", d, err)
	}
	_, err = w.executions.Describe(soon(t), &perdurev1.DescribeRequest{Namespace: w.ns, Id: "of-the-default"})
	refused(t, "describe from another namespace", err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
}

// TestStartTwice starts the same thing again in every way.
func TestStartTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	req := func() *perdurev1.StartRequest {
		return &perdurev1.StartRequest{Namespace: w.ns, Id: "once", Function: "f", Input: []byte("in"), AllowUnknownFunction: true, Request: rid()}
	}
	_, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: "once", Function: "f", Input: []byte("in")})
	refused(t, "an unknown function", err, perdurev1.Reason_REASON_FUNCTION_UNKNOWN)
	if n := w.listed(); n != 0 {
		t.Errorf("a refused start left %d executions", n)
	}
	first := req()
	a, err := w.executions.Start(soon(t), first)
	if err != nil || !a.Created || a.Id != "once" || a.Incarnation == 0 || a.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
		t.Fatalf("start: %v, %v", a, err)
	}
	// A repeated request has its answer repeated; a new request for the same finds what is there.
	if b, err := w.executions.Start(soon(t), first); err != nil || !b.Created || b.Incarnation != a.Incarnation {
		t.Errorf("the request repeated: %v, %v", b, err)
	}
	if b, err := w.executions.Start(soon(t), req()); err != nil || b.Created || b.Incarnation != a.Incarnation {
		t.Errorf("started again: %v, %v", b, err)
	}
	without := req()
	without.Request = nil
	if b, err := w.executions.Start(soon(t), without); err != nil || b.Created {
		t.Errorf("started again without a request id: %v, %v", b, err)
	}
	for what, change := range map[string]func(*perdurev1.StartRequest){
		"another input":    func(r *perdurev1.StartRequest) { r.Input = []byte("other") },
		"no input":         func(r *perdurev1.StartRequest) { r.Input = nil },
		"another function": func(r *perdurev1.StartRequest) { r.Function = "g" },
	} {
		r := req()
		change(r)
		_, err := w.executions.Start(soon(t), r)
		refused(t, what, err, perdurev1.Reason_REASON_ID_CONFLICT)
	}
	if e := w.describe("once"); e.Function != "f" || e.JournalEvents != 1 || e.Incarnation != a.Incarnation {
		t.Errorf("conflicts changed it: %v", e)
	}
	if n := w.listed(); n != 1 {
		t.Errorf("%d executions are listed", n)
	}
}

// TestSignalTwice repeats a signal's request: it is delivered once.
func TestSignalTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("s", "unserved")
	send := func(r *perdurev1.RequestID, payload string) uint64 {
		t.Helper()
		out, err := w.executions.Signal(soon(t), &perdurev1.SignalRequest{Namespace: w.ns, Id: "s", Name: "n", Payload: []byte(payload), Request: r})
		if err != nil {
			t.Fatal(err)
		}
		return out.DeliveryId
	}
	first := rid()
	if n := send(first, "a"); n != 1 {
		t.Errorf("the first delivery has the number %d", n)
	}
	first.AgeMs = 100
	if n := send(first, "a"); n != 1 {
		t.Errorf("the repeated request was answered with %d", n)
	}
	if n := send(rid(), "a"); n != 2 {
		t.Errorf("the second delivery has the number %d", n)
	}
	if n := send(nil, "b"); n != 3 {
		t.Errorf("the third delivery has the number %d", n)
	}
	if n := len(w.journal("s")); n != 4 {
		t.Errorf("the journal has %d entries, want 4", n)
	}
	_, err := w.executions.Signal(soon(t), &perdurev1.SignalRequest{Namespace: w.ns, Id: "missing", Name: "n"})
	refused(t, "a signal to a missing execution", err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
}
