package reduction

import "strconv"

// Outcome is what one attempt of a node's work has come to (staged reduction, 3.2). The eight types of this
// file are all there are. Each is either a [Forward] or a [Reset], never both, and a function that is about
// one class takes that type.
type Outcome interface {
	// Target is the status that the outcome leaves the node in.
	Target() Status
	// Kind names the type; its number is the first byte of the encoding.
	Kind() OutcomeKind
	outcome()
}

// Forward outcomes move a node up in the order of [Status.AtMost]. They are the monotone fragment of the
// reduction: nothing that one of them establishes is taken back by another.
type Forward interface {
	Outcome
	forward()
}

// Reset outcomes take a node back to pending: the work was interrupted, so it has no result, and will be
// done again. They are not monotone, and commute only because they are node-local (staged reduction, 7.3).
type Reset interface {
	Outcome
	reset()
}

// OutcomeKind numbers the outcomes. The numbers are stored and never change.
type OutcomeKind uint8

// The forward outcomes, then the resets.
const (
	OutcomeSucceeded    OutcomeKind = 1
	OutcomeSkipped      OutcomeKind = 2
	OutcomeSuspendedOn  OutcomeKind = 3
	OutcomeNodeFailed   OutcomeKind = 4
	OutcomeNodeTimedOut OutcomeKind = 5

	OutcomeNodeCancelled    OutcomeKind = 6
	OutcomeNodeShutdown     OutcomeKind = 7
	OutcomeNodeRunCancelled OutcomeKind = 8
)

var outcomeNames = [...]string{"", "Succeeded", "Skipped", "SuspendedOn", "NodeFailed", "NodeTimedOut",
	"NodeCancelled", "NodeShutdown", "NodeRunCancelled"}

// String returns the type's name, or "OutcomeKind(n)".
func (k OutcomeKind) String() string {
	if k == 0 || int(k) >= len(outcomeNames) {
		return "OutcomeKind(" + strconv.Itoa(int(k)) + ")"
	}
	return outcomeNames[k]
}

// Succeeded is forward: the work is done and has an output.
type Succeeded struct {
	// Output is opaque; nil is an output too, the empty one. A caller that keeps values elsewhere stores a
	// reference.
	Output []byte
}

// Skipped is forward: the node decided that there is nothing to do. Its successors may start.
type Skipped struct{}

// SuspendedOn is forward: the node waits for the signal, whose payload becomes its output.
type SuspendedOn struct {
	// Signal is its name, never empty.
	Signal string
}

// NodeFailed is forward: the work failed for good. The state records only the fact; the detail is for the
// store of results.
type NodeFailed struct {
	// Detail is opaque.
	Detail []byte
}

// NodeTimedOut is forward: the work did not end in time, which is a failure.
type NodeTimedOut struct{}

// NodeCancelled is a reset: this attempt was called off.
type NodeCancelled struct{}

// NodeShutdown is a reset: the worker shut down in order before the work ended.
type NodeShutdown struct{}

// NodeRunCancelled is a reset: the attempt was cancelled together with the whole run. The canceller decides
// the run's final status; its nodes only have no result.
type NodeRunCancelled struct{}

func (Succeeded) Target() Status        { return Status{Kind: StatusCompleted} }
func (Skipped) Target() Status          { return Status{Kind: StatusSkipped} }
func (o SuspendedOn) Target() Status    { return Waiting(o.Signal) }
func (NodeFailed) Target() Status       { return Status{Kind: StatusFailed} }
func (NodeTimedOut) Target() Status     { return Status{Kind: StatusFailed} }
func (NodeCancelled) Target() Status    { return Status{Kind: StatusPending} }
func (NodeShutdown) Target() Status     { return Status{Kind: StatusPending} }
func (NodeRunCancelled) Target() Status { return Status{Kind: StatusPending} }

func (Succeeded) Kind() OutcomeKind        { return OutcomeSucceeded }
func (Skipped) Kind() OutcomeKind          { return OutcomeSkipped }
func (SuspendedOn) Kind() OutcomeKind      { return OutcomeSuspendedOn }
func (NodeFailed) Kind() OutcomeKind       { return OutcomeNodeFailed }
func (NodeTimedOut) Kind() OutcomeKind     { return OutcomeNodeTimedOut }
func (NodeCancelled) Kind() OutcomeKind    { return OutcomeNodeCancelled }
func (NodeShutdown) Kind() OutcomeKind     { return OutcomeNodeShutdown }
func (NodeRunCancelled) Kind() OutcomeKind { return OutcomeNodeRunCancelled }

func (Succeeded) outcome()        {}
func (Skipped) outcome()          {}
func (SuspendedOn) outcome()      {}
func (NodeFailed) outcome()       {}
func (NodeTimedOut) outcome()     {}
func (NodeCancelled) outcome()    {}
func (NodeShutdown) outcome()     {}
func (NodeRunCancelled) outcome() {}

func (Succeeded) forward()    {}
func (Skipped) forward()      {}
func (SuspendedOn) forward()  {}
func (NodeFailed) forward()   {}
func (NodeTimedOut) forward() {}

func (NodeCancelled) reset()    {}
func (NodeShutdown) reset()     {}
func (NodeRunCancelled) reset() {}

// Result is one node's outcome: a local fact (staged reduction, 3.3).
type Result struct {
	Node    NodeID
	Outcome Outcome
}
