package durable

import (
	"context"
	"fmt"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

func event(kind any) *perdurev1.Event {
	switch k := kind.(type) {
	case *perdurev1.ExecutionStarted:
		return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: k}}
	case *perdurev1.CancelRequested:
		return &perdurev1.Event{Kind: &perdurev1.Event_CancelRequested{CancelRequested: k}}
	case *perdurev1.RandomGenerated:
		return &perdurev1.Event{Kind: &perdurev1.Event_RandomGenerated{RandomGenerated: k}}
	case *perdurev1.TimerScheduled:
		return &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: k}}
	case *perdurev1.TimerFired:
		return &perdurev1.Event{Kind: &perdurev1.Event_TimerFired{TimerFired: k}}
	case *perdurev1.ExecutionAwaiting:
		return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: k}}
	case *perdurev1.ExecutionResumed:
		return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionResumed{ExecutionResumed: k}}
	case *perdurev1.SignalDelivered:
		return &perdurev1.Event{Kind: &perdurev1.Event_SignalDelivered{SignalDelivered: k}}
	case *perdurev1.InvokeScheduled:
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: k}}
	}
	panic(fmt.Sprintf("%T", kind))
}

// A reply names its entries by number: the missing ones are the worker's own, and no others.
func TestAbsorb(t *testing.T) {
	random := event(&perdurev1.RandomGenerated{PromiseId: "x:0", Value: []byte("12345678")})
	timer := event(&perdurev1.TimerScheduled{PromiseId: "x:1", DurationMs: 5})
	timerAsRecorded := event(&perdurev1.TimerScheduled{PromiseId: "x:1", DurationMs: 5, FireAtMs: 77})
	wait := event(&perdurev1.ExecutionAwaiting{WaitingOn: []string{"x:1"}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE})
	fired := event(&perdurev1.TimerFired{PromiseId: "x:1"})
	resumed := event(&perdurev1.ExecutionResumed{})
	cancel := event(&perdurev1.CancelRequested{Reason: "enough"})
	arrived := event(&perdurev1.SignalDelivered{Name: "s", DeliveryId: 1})
	open := event(&perdurev1.InvokeScheduled{PromiseId: "x:0", Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: "s"})
	const running, cancelling = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING, perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING
	type entries map[uint64]*perdurev1.Event
	for _, c := range []struct {
		name      string
		before    []*perdurev1.Event // after ExecutionStarted
		own       []*perdurev1.Event
		status    perdurev1.ExecutionStatus
		entries   entries
		next      uint64
		nextChild uint32
		applied   bool
		problem   string
		resolved  []uint32
	}{
		{name: "nothing else", own: []*perdurev1.Event{random, timer}, status: running, next: 3, nextChild: 2, applied: true, resolved: []uint32{0}},
		{name: "an arrival before", own: []*perdurev1.Event{random}, status: running, entries: entries{1: arrived}, next: 3, nextChild: 1, applied: true, resolved: []uint32{0}},
		{name: "fired at once", own: []*perdurev1.Event{random, timer, wait}, status: running, entries: entries{3: fired}, next: 4, nextChild: 2, applied: true, resolved: []uint32{0, 1}},
		{name: "repeated, all of it", own: []*perdurev1.Event{random, timer, wait}, status: running,
			entries: entries{1: random, 2: timerAsRecorded, 3: wait, 4: fired, 5: resumed}, next: 6, nextChild: 2, applied: true, resolved: []uint32{0, 1}},
		{name: "waited, and due before a tick", own: []*perdurev1.Event{random, timer, wait}, status: running,
			entries: entries{4: fired, 5: resumed}, next: 6, nextChild: 2, applied: true, resolved: []uint32{0, 1}},
		{name: "a wait alone, and due before a tick", before: []*perdurev1.Event{random, timerAsRecorded}, own: []*perdurev1.Event{wait}, status: running,
			entries: entries{4: fired, 5: resumed}, next: 6, nextChild: 2, applied: true, resolved: []uint32{0, 1}},
		{name: "a wait alone, and fired before", before: []*perdurev1.Event{random, timerAsRecorded}, own: []*perdurev1.Event{wait}, status: running,
			entries: entries{3: fired}, next: 4, nextChild: 2, applied: true, resolved: []uint32{0, 1}},
		{name: "seen before", own: []*perdurev1.Event{random}, status: running, entries: entries{0: arrived}, next: 2, nextChild: 1, applied: true},
		{name: "cancelled before", own: []*perdurev1.Event{random, timer, wait}, status: cancelling, entries: entries{1: cancel}, next: 2},
		{name: "cancelled before, a wait alone", own: []*perdurev1.Event{wait}, status: cancelling, entries: entries{1: cancel}, next: 2},
		{name: "cancelled after, and repeated", own: []*perdurev1.Event{random}, status: cancelling, entries: entries{1: random, 2: cancel}, next: 3, nextChild: 1, applied: true},
		{name: "cancelled after, and repeated, a timer", before: []*perdurev1.Event{random}, own: []*perdurev1.Event{timer}, status: cancelling,
			entries: entries{2: timerAsRecorded, 3: cancel}, next: 4, nextChild: 2, applied: true},
		{name: "a result while cancelling", before: []*perdurev1.Event{open, started("x:0", 1), cancel}, own: []*perdurev1.Event{completed("x:0", 1, value("v"))},
			status: cancelling, next: 5, nextChild: 1, applied: true, resolved: []uint32{0}},
		{name: "a result and more while cancelling", before: []*perdurev1.Event{open, started("x:0", 1)},
			own:    []*perdurev1.Event{completed("x:0", 1, value("v")), timer},
			status: cancelling, entries: entries{3: cancel}, next: 5, nextChild: 1, applied: false, resolved: []uint32{0}},
		{name: "half of it", own: []*perdurev1.Event{random, timer}, status: running, next: 2, nextChild: 1,
			problem: "durable: x: a commit of 2 events was answered as if it had recorded 1"},
		{name: "others' entries lack", own: []*perdurev1.Event{random}, status: running, next: 4, nextChild: 1,
			problem: "durable: x: a commit of 1 events was answered as if it had recorded 3"},
		{name: "another count", own: []*perdurev1.Event{random}, status: running, next: 2, nextChild: 7,
			problem: "durable: x has taken 1 child ids, the server counts 7"},
		{name: "entries out of place", own: []*perdurev1.Event{random}, status: running, entries: entries{9: arrived}, next: 3, nextChild: 1,
			problem: "durable: x: the reply to a commit lacks entry 2"},
		{name: "own ids taken by others", own: []*perdurev1.Event{random}, status: running, entries: entries{1: random}, next: 3, nextChild: 1,
			problem: `durable: journal of x, entry 2: id "x:0" is not the next child, x:1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := history{id: "x"}
			for i, e := range append([]*perdurev1.Event{event(&perdurev1.ExecutionStarted{})}, c.before...) {
				if err := r.ingest([]*perdurev1.JournalEntry{{Seq: uint64(i), Event: e}}); err != nil {
					t.Fatal(err)
				}
			}
			reply := &perdurev1.CommitReply{Status: c.status, NextSeq: c.next, NextChild: c.nextChild}
			for seq := range uint64(20) {
				if e := c.entries[seq]; e != nil {
					reply.Entries = append(reply.Entries, &perdurev1.JournalEntry{Seq: seq, Event: e})
				}
			}
			applied, err := r.absorb(c.own, reply)
			if c.problem != "" {
				if err == nil || err.Error() != c.problem {
					t.Errorf("error %v\nwant  %s", err, c.problem)
				}
				return
			}
			if err != nil || applied != c.applied || r.next != c.next || r.cancelled != (c.status == cancelling) {
				t.Errorf("applied %v, next %d, cancelled %v, error %v", applied, r.next, r.cancelled, err)
			}
			for _, n := range c.resolved {
				if !r.resolved(n) {
					t.Errorf("%d is not resolved", n)
				}
			}
		})
	}
}

// An unreadable journal stops the replay: the worker releases the task.
func TestUnreadableJournal(t *testing.T) {
	begun := event(&perdurev1.ExecutionStarted{})
	for want, entries := range map[string][]*perdurev1.Event{
		"does not begin with ExecutionStarted":   {event(&perdurev1.ExecutionResumed{})},
		`id "y:0" is not the next child, x:0`:    {begun, event(&perdurev1.RandomGenerated{PromiseId: "y:0"})},
		`id "x:1" is not the next child, x:0`:    {begun, event(&perdurev1.TimerScheduled{PromiseId: "x:1"})},
		`id "x:0" was not taken`:                 {begun, event(&perdurev1.TimerFired{PromiseId: "x:0"})},
		`id "x:3" was not taken`:                 {begun, started("x:3", 1)},
		"unknown kind of event":                  {begun, {}},
		`a wait for signal "s" names 0 ids`:      {begun, event(&perdurev1.ExecutionAwaiting{Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: "s"})},
		"x:0 is a random number of 2 bytes":      {begun, event(&perdurev1.RandomGenerated{PromiseId: "x:0", Value: []byte("no")})},
		`as *uint64: json: cannot unmarshal`:     {begun, event(&perdurev1.RandomGenerated{PromiseId: "x:0", Value: []byte("12345678")}), stepDone("x:1", "s", `"text"`)[0], stepDone("x:1", "s", `"text"`)[1], stepDone("x:1", "s", `"text"`)[2]},
		`x:0 is join set in the journal`:         {begun, {Kind: &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: "x:0"}}}},
		`x:0 is request "u" in the journal`:      {begun, event(&perdurev1.InvokeScheduled{PromiseId: "x:0", Kind: perdurev1.InvokeKind_INVOKE_KIND_HTTP, FunctionName: "u"})},
		"ends at 1, before its announced length": {begun},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (uint64, error) {
				if _, err := Random(ctx); err != nil {
					return 0, err
				}
				return Run(ctx, "s", func(context.Context) (uint64, error) { return 1, nil })
			}))
			f.mu.Lock()
			ex := f.newExec("x", "f")
			for i, e := range entries {
				ex.entries = append(ex.entries, &perdurev1.JournalEntry{Seq: uint64(i), Event: e})
			}
			ex.state, ex.worker, ex.version = perdurev1.TaskState_TASK_STATE_ACQUIRED, f.conns[0].worker, 1
			next := uint64(len(entries))
			if strings.HasPrefix(want, "ends") {
				next = 5
			}
			f.conns[0].send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Task{Task: &perdurev1.Task{
				Token: ex.token(), Function: "f", Entries: ex.entries, NextSeq: next}}})
			f.mu.Unlock()
			if r := f.released(1); !strings.Contains(r.GetProblem(), want) {
				t.Errorf("released with %q", r.GetProblem())
			}
		})
	}
}

// stepDone are the events of a step with a result.
func stepDone(p, name, result string) []*perdurev1.Event {
	return []*perdurev1.Event{
		event(&perdurev1.InvokeScheduled{PromiseId: p, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name, RetryPolicy: "attempts=1"}),
		started(p, 1), completed(p, 1, value(result)),
	}
}
