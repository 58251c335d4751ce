package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// BenchmarkApplyBatch is what a replica does with the entries of a loaded leader, from their bytes to Pebble. One
// operation is one execution of three local steps.
func BenchmarkApplyBatch(b *testing.B) {
	for _, side := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("%d-commands-an-entry", side), func(b *testing.B) {
			benchmarkApplyBatch(b, side)
		})
	}
}

// benchmarkApplyBatch runs side executions beside each other, so that each entry has a command of each.
func benchmarkApplyBatch(b *testing.B, side int) {
	s, err := Open("state", Options{FS: vfs.NewMem(), Create: true, Stamp: stampOfTests, Logger: quiet{}, Machine: machine.Config{Partitions: 1}, OnFatal: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	input := bytes.Repeat([]byte("x"), 64)
	index, now := uint64(0), int64(1_000_000)
	entry := func(e *commandv1.Entry) *raft.Log {
		index++
		now += 5
		e.TimeMs = now
		data, err := EncodeEntry(e)
		if err != nil {
			b.Fatal(err)
		}
		return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
	}
	logs := []*raft.Log{entry(&commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_RaiseLevel{
		RaiseLevel: &commandv1.RaiseLevel{Level: state.FeatureLevel}}}}})}
	for n := 0; n < b.N; n += side {
		start := &commandv1.Entry{Grants: []*commandv1.Grant{{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: uint32(side), LeaseMs: 10_000}}}
		born := index + 1
		for i := range side {
			id := fmt.Sprintf("order-%08d", n+i)
			start.Commands = append(start.Commands, &commandv1.Command{Namespace: ns, Id: id, Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "request-%08d", n+i)},
				Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Id: id, Function: "f", Input: input, AllowUnknownFunction: true}}})
		}
		logs = append(logs, entry(start))
		for step := range uint32(4) {
			e := &commandv1.Entry{}
			for i := range side {
				e.Commands = append(e.Commands, benchmarkStep(fmt.Sprintf("order-%08d", n+i), born, step, input))
			}
			logs = append(logs, entry(e))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, l := range logs {
		res, applied := s.Apply(l).(*machine.Result)
		if !applied {
			b.Fatalf("entry %d is not applied", l.Index)
		}
		for _, r := range res.Replies {
			if e := wire.ReplyError(r); e != nil {
				b.Fatal(e)
			}
		}
	}
}

// benchmarkStep is the commit of one of three steps, or after those the end.
func benchmarkStep(id string, born uint64, n uint32, result []byte) *commandv1.Command {
	c := &perdurev1.Commit{Task: &perdurev1.TaskToken{Namespace: ns, Id: id, Incarnation: born, Version: 1}, NextChild: n, KnownSeq: uint64(1 + 3*n)}
	if n < 3 {
		promise := fmt.Sprintf("%s:%d", id, n)
		c.Events = []*perdurev1.Event{
			{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
				PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: "step"}}},
			{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: 1}}},
			{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: promise, Attempt: 1,
				Result: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: result}}}}},
		}
	} else {
		c.Events = []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: result}}}}
	}
	return &commandv1.Command{Namespace: ns, Id: id, Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "commit-%s-%d", id, n)},
		Kind: &commandv1.Command_Commit{Commit: c}}
}
