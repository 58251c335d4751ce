package journal_test

import (
	"fmt"

	"perdure/id"
	"perdure/journal"
)

// A step, a wait for a person, and the answer: the journal of an approval, event by event. The program takes
// child numbers 0 (the step) and 1 (the wait); the answer uses the wait's.
func ExampleState() {
	order := id.PromiseID("order-42")
	state := journal.New(order)
	for _, ev := range []journal.Event{
		journal.ExecutionStarted{ComponentDigest: "d1", Input: []byte(`{"item":"book"}`)},
		journal.InvokeScheduled{Promise: order.Child(0), Invoke: journal.InvokeStep, Function: "create_order"},
		journal.InvokeStarted{Promise: order.Child(0), Attempt: 1},
		journal.InvokeCompleted{Promise: order.Child(0), Result: []byte("ok"), Attempt: 1},
		journal.ExecutionAwaiting{On: []id.PromiseID{order.Child(1)}, Wait: journal.AwaitSignal, Signal: "approval"},
		journal.ExecutionCompleted{},
		journal.SignalDelivered{Name: "approval", Payload: []byte("yes"), DeliveryID: state.Deliveries("approval") + 1},
		journal.ExecutionResumed{},
		journal.SignalReceived{Promise: order.Child(1), Name: "approval", Payload: []byte("yes"), DeliveryID: 1},
		journal.ExecutionResumed{},
		journal.ExecutionCompleted{Result: []byte("shipped")},
	} {
		seq := state.NextSeq()
		if err := state.Append(seq, ev); err != nil {
			fmt.Println("   refused:", err)
			continue
		}
		fmt.Printf("%2d %-18v %-9v next child %d\n", seq, ev.Kind(), state.Status(), state.NextChild())
	}
	// Output:
	//  0 ExecutionStarted   Running   next child 0
	//  1 InvokeScheduled    Running   next child 1
	//  2 InvokeStarted      Running   next child 1
	//  3 InvokeCompleted    Running   next child 1
	//  4 ExecutionAwaiting  Blocked   next child 2
	//    refused: execution "order-42", event 5: ExecutionCompleted while Blocked (R1 returns_only_while_running)
	//  5 SignalDelivered    Blocked   next child 2
	//    refused: execution "order-42", event 6: 0 of 1 promises are resolved, and the wait is of kind AwaitSignal (K9 resumes_a_satisfied_wait)
	//  6 SignalReceived     Blocked   next child 2
	//  7 ExecutionResumed   Running   next child 2
	//  8 ExecutionCompleted Completed next child 2
}

// A commit is several events that are appended all or not at all.
func ExampleState_Begin() {
	order := id.PromiseID("order-42")
	state := journal.New(order)
	commit := func(events ...journal.Event) error {
		state.Begin()
		defer state.Rollback()
		for _, ev := range events {
			if err := state.Append(state.NextSeq(), ev); err != nil {
				return err
			}
		}
		state.Commit()
		return nil
	}
	fmt.Println(commit(journal.ExecutionStarted{}))
	fmt.Println(commit(journal.TimerScheduled{Promise: order.Child(0)}, journal.TimerScheduled{Promise: order.Child(0)}))
	fmt.Println(state.NextSeq(), state.NextChild())
	// Output:
	// <nil>
	// execution "order-42", event 2: the next identifier is order-42:1, not order-42:0 (R4 takes_next_child)
	// 1 0
}

// A program that runs again asks what stands recorded at the identifier its call takes, and notices when it is
// not the program that wrote the journal.
func ExampleReplay() {
	order := id.PromiseID("order-42")
	replay, err := journal.NewReplay(order, []journal.Entry{
		{Seq: 0, Event: journal.ExecutionStarted{}},
		{Seq: 1, Event: journal.InvokeScheduled{Promise: order.Child(0), Invoke: journal.InvokeStep, Function: "charge"}},
		{Seq: 2, Event: journal.InvokeStarted{Promise: order.Child(0), Attempt: 1}},
		{Seq: 3, Event: journal.InvokeCompleted{Promise: order.Child(0), Result: []byte("receipt 7"), Attempt: 1}},
		{Seq: 4, Event: journal.TimerScheduled{Promise: order.Child(1), Duration: 60_000, FireAt: 90_000}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := range uint32(3) {
		recorded, ok := replay.Lookup(order.Child(n))
		fmt.Printf("%v %v %q %v %q\n", ok, recorded.Call, recorded.Function, recorded.Resolved, recorded.Result)
	}
	// Output:
	// true InvokeScheduled "charge" true "receipt 7"
	// true TimerScheduled "" false ""
	// false Kind(0) "" false ""
}
