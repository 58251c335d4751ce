package durable

import (
	"fmt"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

// journalOfCalls is the journal of an execution that called n children one after the other, each with the result 1.
func journalOfCalls(eid, child string, n int) []*perdurev1.JournalEntry {
	events := []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{}}}}
	for i := range n {
		p := childID(eid, i)
		events = append(events,
			&perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
				PromiseId: p, Kind: perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, FunctionName: child, RetryPolicy: "attempts=1"}}},
			started(p, 1),
			&perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
				WaitingOn: []string{p}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE}}},
			completed(p, 1, value("1")),
			&perdurev1.Event{Kind: &perdurev1.Event_ExecutionResumed{ExecutionResumed: &perdurev1.ExecutionResumed{}}})
	}
	return entriesOf(events)
}

// childID is the id of an execution's n-th operation.
func childID(eid string, n int) string { return string(id.PromiseID(eid).Child(uint32(n))) }

// entriesOf numbers events as a journal does.
func entriesOf(events []*perdurev1.Event) []*perdurev1.JournalEntry {
	out := make([]*perdurev1.JournalEntry, len(events))
	for i, ev := range events {
		out[i] = &perdurev1.JournalEntry{Seq: uint64(i), Event: ev}
	}
	return out
}

// BenchmarkReplay replays an execution that called children one after the other, up to its frontier. read
// folds the journal only, call calls the function as well. A function of n waits is replayed n times: its
// whole cost grows with the square of n, for any cost of one operation.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{100, 400, 1200} {
		entries := journalOfCalls("x", "child", n)
		w := NewWorker(newFake(b).client(client.Options{}), WorkerOptions{Lease: time.Hour})
		w.base = b.Context()
		replay := func() *activation {
			task := &perdurev1.Task{Token: &perdurev1.TaskToken{Id: "x", Incarnation: 1, Version: 1}, Function: "parent",
				Entries: entries, NextSeq: uint64(len(entries))}
			t := newActivation(newHold(w, task), task)
			t.owner.Store(goroutine())
			t.load(task)
			return t
		}
		b.Run(fmt.Sprintf("waits=%d/read", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				replay()
			}
		})
		b.Run(fmt.Sprintf("waits=%d/call", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t := replay()
				ctx := execContext{t.ctx, t}
				for range n {
					if out, err := CallName[int](ctx, "child", 7); err != nil || out != 1 {
						b.Fatalf("%d, %v", out, err)
					}
				}
				if !t.live.Load() {
					b.Fatal("the replay has not reached its frontier")
				}
			}
		})
	}
}
