package journal

import (
	"strconv"

	"perdure/id"
)

// Kind numbers the kinds of events. The numbers are stored and stay for good.
type Kind uint8

// The closed vocabulary of the journal (ruling K15): lifecycle 1-5, side effects 6-9, nondeterminism
// 10-11, control flow 12-17, concurrency 18-20.
const (
	KindExecutionStarted   Kind = 1
	KindExecutionCompleted Kind = 2
	KindExecutionFailed    Kind = 3
	KindCancelRequested    Kind = 4
	KindExecutionCancelled Kind = 5
	KindInvokeScheduled    Kind = 6
	KindInvokeStarted      Kind = 7
	KindInvokeCompleted    Kind = 8
	KindInvokeRetrying     Kind = 9
	KindRandomGenerated    Kind = 10
	KindTimeRecorded       Kind = 11
	KindTimerScheduled     Kind = 12
	KindTimerFired         Kind = 13
	KindSignalDelivered    Kind = 14
	KindSignalReceived     Kind = 15
	KindExecutionAwaiting  Kind = 16
	KindExecutionResumed   Kind = 17
	KindJoinSetCreated     Kind = 18
	KindJoinSetSubmitted   Kind = 19
	KindJoinSetAwaited     Kind = 20
)

// kinds is the table of events: the name in texts, and how the fields are read back.
var kinds = [...]struct {
	name   string
	decode func(*decoder) Event
}{
	KindExecutionStarted:   {"ExecutionStarted", decodeExecutionStarted},
	KindExecutionCompleted: {"ExecutionCompleted", decodeExecutionCompleted},
	KindExecutionFailed:    {"ExecutionFailed", decodeExecutionFailed},
	KindCancelRequested:    {"CancelRequested", decodeCancelRequested},
	KindExecutionCancelled: {"ExecutionCancelled", decodeExecutionCancelled},
	KindInvokeScheduled:    {"InvokeScheduled", decodeInvokeScheduled},
	KindInvokeStarted:      {"InvokeStarted", decodeInvokeStarted},
	KindInvokeCompleted:    {"InvokeCompleted", decodeInvokeCompleted},
	KindInvokeRetrying:     {"InvokeRetrying", decodeInvokeRetrying},
	KindRandomGenerated:    {"RandomGenerated", decodeRandomGenerated},
	KindTimeRecorded:       {"TimeRecorded", decodeTimeRecorded},
	KindTimerScheduled:     {"TimerScheduled", decodeTimerScheduled},
	KindTimerFired:         {"TimerFired", decodeTimerFired},
	KindSignalDelivered:    {"SignalDelivered", decodeSignalDelivered},
	KindSignalReceived:     {"SignalReceived", decodeSignalReceived},
	KindExecutionAwaiting:  {"ExecutionAwaiting", decodeExecutionAwaiting},
	KindExecutionResumed:   {"ExecutionResumed", decodeExecutionResumed},
	KindJoinSetCreated:     {"JoinSetCreated", decodeJoinSetCreated},
	KindJoinSetSubmitted:   {"JoinSetSubmitted", decodeJoinSetSubmitted},
	KindJoinSetAwaited:     {"JoinSetAwaited", decodeJoinSetAwaited},
}

// Valid reports whether k is one of the 20 kinds.
func (k Kind) Valid() bool { return k >= KindExecutionStarted && k <= KindJoinSetAwaited }

// String returns the kind's name as the journal spec writes it, or "Kind(n)" for no kind at all.
func (k Kind) String() string {
	if !k.Valid() {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kinds[k].name
}

// InvokeKind says what an invocation is. The journal treats all kinds alike; the list may grow, and the
// numbers are stored and stay for good.
type InvokeKind uint8

const (
	// InvokeFunction is a child execution or a task run by a worker.
	InvokeFunction InvokeKind = 1
	// InvokeHTTP is a request to an external service.
	InvokeHTTP InvokeKind = 2
	// InvokeStep is a local step, run by the worker that runs the program.
	InvokeStep InvokeKind = 3
	// InvokeSend is a one-way operation: complete once its message is on the way.
	InvokeSend InvokeKind = 4
	// InvokeSignal is a graph's wait for a signal, completed with the signal's payload; or a function's wait
	// for there being one, completed without it: the program consumes the signal by a SignalReceived.
	InvokeSignal InvokeKind = 5
)

var invokeKindNames = [...]string{
	InvokeFunction: "Function", InvokeHTTP: "Http", InvokeStep: "Step", InvokeSend: "Send", InvokeSignal: "Signal",
}

// Valid reports whether k is a known kind of invocation; others are refused everywhere.
func (k InvokeKind) Valid() bool { return k >= InvokeFunction && k <= InvokeSignal }

// String returns the kind's name ("Function", "Http", "Step", "Send", "Signal"), or "InvokeKind(n)".
func (k InvokeKind) String() string {
	if !k.Valid() {
		return "InvokeKind(" + strconv.Itoa(int(k)) + ")"
	}
	return invokeKindNames[k]
}

// AwaitKind says when a wait is satisfied. The numbers are stored and stay for good.
type AwaitKind uint8

const (
	// AwaitSingle waits for exactly one promise.
	AwaitSingle AwaitKind = 1
	// AwaitAny waits for the first of at least one promise.
	AwaitAny AwaitKind = 2
	// AwaitAll waits for every one of at least one promise.
	AwaitAll AwaitKind = 3
	// AwaitSignal waits for the next signal of a name; the wait takes a child number of its own.
	AwaitSignal AwaitKind = 4
	// AwaitJoinSet waits for the first member of a join set among those whose results were not consumed. It
	// names one of them, so that its entry is small however many they are.
	AwaitJoinSet AwaitKind = 5
)

var awaitKindNames = [...]string{
	AwaitSingle: "Single", AwaitAny: "Any", AwaitAll: "All", AwaitSignal: "AwaitSignal",
	AwaitJoinSet: "AwaitJoinSet",
}

// Valid reports whether k is one of the five kinds of waits.
func (k AwaitKind) Valid() bool { return k >= AwaitSingle && k <= AwaitJoinSet }

// String returns the kind's name ("Single", "Any", "All", "AwaitSignal", "AwaitJoinSet"), or "AwaitKind(n)".
func (k AwaitKind) String() string {
	if !k.Valid() {
		return "AwaitKind(" + strconv.Itoa(int(k)) + ")"
	}
	return awaitKindNames[k]
}

// JoinSetID names a join set. It is taken from the same child numbers as promises, but it is a type of
// its own: a join set cannot be awaited, completed or submitted to another join set.
type JoinSetID id.PromiseID

// String returns the canonical text.
func (j JoinSetID) String() string { return string(j) }
