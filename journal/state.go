package journal

import (
	"math"

	"perdure/id"
)

// State is the guards' state of one execution's journal. It checks and records every append in constant time
// (an ExecutionAwaiting in the number of its promises), whatever the journal's length.
//
// Results of completed invocations, and payloads of signals that are not consumed, are remembered only as far
// as rules R16 and CF-2 need them: up to 32 bytes as they are, longer ones as their SHA-256. A State is not
// safe for concurrent use.
type State struct {
	eid   id.PromiseID
	bound func(policy string) int
	head
	// children holds what took each child number; its length is the next number.
	children []child
	// signals holds one counter per signal name, in order of first delivery; signalIndex finds them.
	signals     []signal
	signalIndex map[string]int
	undo        *Undo
}

// head is the part of a State that is copied whole when a transaction begins.
type head struct {
	status Status
	seq    uint64
	// waitKind, waitOn and waitSignal are the open wait while Blocked, else zero.
	waitKind   AwaitKind
	waitOn     []id.PromiseID
	waitSignal string
	// waitSet is the child number of the join set if waitKind is AwaitJoinSet, else 0.
	waitSet uint32
	// waitEpoch numbers the waits; a child that carries the current one is waited for.
	waitEpoch uint32
	// waitResolved counts the members of the open wait that are resolved.
	waitResolved int
	// openSignals are the child numbers of the invocations of kind InvokeSignal without a result, ascending.
	// A change makes a list of its own, so that a copy of head keeps the former one.
	openSignals []uint32
	// heldBytes is the size of the signal names and of the unconsumed deliveries' fingerprints.
	heldBytes int
}

// Option configures a State, a Check or a Replay.
type Option func(options) options

type options struct {
	bound func(policy string) int
}

// DefaultRetryBound is how many retries a promise has unless WithRetryBound says otherwise: attempts 1 to
// 4 (ruling K4).
const DefaultRetryBound = 3

// WithRetryBound sets how many InvokeRetrying a promise may have, as a function of the retry policy in its
// InvokeScheduled. State calls it once per promise, at its InvokeScheduled. It must be pure, since every
// replica calls it. Negative results count as 0.
func WithRetryBound(bound func(policy string) int) Option {
	return func(o options) options {
		o.bound = bound
		return o
	}
}

func buildOptions(opts []Option) options {
	o := options{bound: func(string) int { return DefaultRetryBound }}
	for _, opt := range opts {
		o = opt(o)
	}
	return o
}

// retryBound asks the policy's bound and brings it into range.
func retryBound(bound func(string) int, policy string) uint32 {
	n := bound(policy)
	switch {
	case n < 0:
		return 0
	case n > math.MaxUint32-1:
		return math.MaxUint32 - 1
	}
	return uint32(n)
}

// New returns the state of the empty journal of eid.
func New(eid id.PromiseID, opts ...Option) *State {
	o := buildOptions(opts)
	return &State{eid: eid, bound: o.bound}
}

// Append checks ev as the entry with sequence number seq and records it. On refusal it returns a *Violation
// and changes nothing.
func (s *State) Append(seq uint64, ev Event) error {
	if v := s.check(seq, ev); v != nil {
		return v
	}
	ev.apply(s)
	s.seq++
	return nil
}

// Check returns what Append would return, nil or a *Violation, and records nothing.
func (s *State) Check(seq uint64, ev Event) error {
	if v := s.check(seq, ev); v != nil {
		return v
	}
	return nil
}

// check applies the rules that all events share, then the event's own.
func (s *State) check(seq uint64, ev Event) *Violation {
	v := s.refusal(seq, ev)
	if v != nil {
		v.Execution, v.Seq = s.eid, seq
		if ev != nil {
			v.Kind = ev.Kind()
		}
	}
	return v
}

func (s *State) refusal(seq uint64, ev Event) *Violation {
	if ev == nil {
		return broken(RuleVocabulary, "", "no event")
	}
	kind := ev.Kind()
	switch {
	case seq != s.seq:
		return broken(RuleSequence, "", "the next sequence number is "+num(s.seq))
	case s.status == StatusNone && kind != KindExecutionStarted:
		return broken(RuleStartsWithStarted, "", kind.String()+" on an empty journal")
	case s.status.Terminal() && isTerminal(kind):
		return broken(RuleSingleTerminal, "", kind.String()+" after the execution has ended as "+s.status.String())
	case s.status.Terminal():
		return broken(RuleTerminalIsLast, "", kind.String()+" after the execution has ended as "+s.status.String())
	}
	return ev.guard(s)
}

func isTerminal(k Kind) bool {
	return k == KindExecutionCompleted || k == KindExecutionFailed || k == KindExecutionCancelled
}

// running refuses what only running code can do.
func (s *State) running(k Kind) *Violation {
	switch s.status {
	case StatusBlocked:
		return broken(RuleBlocked, "", k.String()+" while Blocked")
	case StatusCancelling:
		return broken(RuleCancellingAdmit, "", k.String()+" while Cancelling")
	}
	return nil
}

// EID returns the execution whose journal this is.
func (s *State) EID() id.PromiseID { return s.eid }

// Status returns the journal's status.
func (s *State) Status() Status { return s.status }

// NextSeq returns the sequence number of the next entry, which is the number of entries so far.
func (s *State) NextSeq() uint64 { return s.seq }

// NextChild returns the child number that the next call takes, which is the number of calls so far.
func (s *State) NextChild() uint32 { return uint32(len(s.children)) }

// Wait returns the open wait; ok is false unless the execution is Blocked. signal is the name waited for
// when kind is AwaitSignal, and "" otherwise. on must not be changed.
func (s *State) Wait() (kind AwaitKind, on []id.PromiseID, signal string, ok bool) {
	return s.waitKind, s.waitOn, s.waitSignal, s.status == StatusBlocked
}

// WaitSatisfied reports whether ExecutionResumed can be appended now.
func (s *State) WaitSatisfied() bool {
	if s.status != StatusBlocked {
		return false
	}
	if s.waitKind == AwaitAny || s.waitKind == AwaitJoinSet {
		return s.waitResolved > 0
	}
	return s.waitResolved == len(s.waitOn)
}

// Satisfied reports whether a wait would be needless (R13): its promises are resolved as kind demands, or
// there is an unconsumed signal of that name. Such an ExecutionAwaiting is not recorded; the program
// continues. Satisfied does not check the wait's form; signal counts only for AwaitSignal. Of a join set it knows the
// members in on only.
func (s *State) Satisfied(kind AwaitKind, on []id.PromiseID, signal string) bool {
	if kind == AwaitSignal {
		if _, _, buffered := s.NextReceipt(signal); buffered || len(on) == 0 {
			return buffered
		}
	}
	resolved := 0
	for _, p := range on {
		if s.Resolved(p) {
			resolved++
		}
	}
	if kind == AwaitAny || kind == AwaitJoinSet {
		return resolved > 0
	}
	return resolved == len(on)
}

// Resolved reports whether p, a child of this execution, has its InvokeCompleted, TimerFired or
// SignalReceived.
func (s *State) Resolved(p id.PromiseID) bool {
	c := s.child(p)
	return c != nil && c.resolved
}

// InvokeInfo is what a State knows of one invocation.
type InvokeInfo struct {
	Kind InvokeKind
	// Open is the attempt that runs now, from 1; 0 if none does.
	Open uint32
	// Retries counts the attempts recorded as failed; Bound is how many may be.
	Retries, Bound uint32
	// Started reports that an attempt was started; Completed says that the result is recorded.
	Started, Completed bool
}

// Invoke returns what is known of the invocation p; ok is false if p is not one of this journal's.
func (s *State) Invoke(p id.PromiseID) (info InvokeInfo, ok bool) {
	c := s.child(p)
	if c == nil || c.call != callInvoke {
		return InvokeInfo{}, false
	}
	return InvokeInfo{Kind: c.invoke, Open: c.openAttempt(), Retries: c.retries, Bound: c.bound,
		Started: c.started(), Completed: c.resolved}, true
}

// Timer reports whether the timer p has fired; ok is false if p is not one of this journal's timers.
func (s *State) Timer(p id.PromiseID) (fired, ok bool) {
	c := s.child(p)
	if c == nil || c.call != callTimer {
		return false, false
	}
	return c.resolved, true
}
