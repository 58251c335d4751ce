package durable

import "errors"

// A function that is a node of a graph may return two errors with a meaning for its node, as they are or wrapped: Skip
// ends the node without a result, SuspendOn makes it wait for a signal. A step that returns one of them is not retried,
// and Call returns the one of a child. Otherwise nothing differs from an execution of its own: an error fails the node,
// after its retries, a time-out is a failure.
// A worker that stops or is lost releases the task, so that another one continues.

// The failure types by which the cluster knows the answers of Skip and SuspendOn.
const (
	TypeSkipped   = "graph.skipped"
	TypeSuspended = "graph.suspended"
)

// ErrSkipped is matched (errors.Is) by the error of Skip, and by that of Outcome for a skipped node.
var ErrSkipped = errors.New("durable: node skipped")

// Skip is the error with which a graph's function skips its node: the nodes after it run, and get null from
// it. The reason is for people: the run's status shows it, cut to 1,000 bytes. Outside a graph the execution
// fails with the type "graph.skipped".
func Skip(reason string) error {
	return &Error{Type: TypeSkipped, Message: reason, NonRetryable: true}
}

// SuspendOn is the error with which a graph's function waits for an answer from outside. Its node waits for
// the signal (client.Client.Signal, or perdure signal, with the run's id) and occupies no worker meanwhile.
// The signal completes the node: the payload is its output, and the function is not run again. To wait within
// the function and continue there, use WaitSignal; its signals are sent to the id of the node's own
// execution. Outside a graph the execution fails with the type "graph.suspended" and the name as its message.
func SuspendOn(signal string) error {
	return &Error{Type: TypeSuspended, Message: signal, NonRetryable: true}
}
