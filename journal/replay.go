package journal

import (
	"perdure/id"
)

// Replay is a whole journal, checked by every rule, in the form that audits and simulated programs read: the
// record at each identifier. It shares payloads with its entries. It is not safe for concurrent use while
// entries are added. Workers of package durable keep a history of their own kind, which takes commits and
// pages as they come and checks no rule.
type Replay struct {
	state    *State
	started  ExecutionStarted
	cancel   string
	outcome  []byte
	reason   string
	recorded []Recorded
}

// Recorded is what a journal holds at one child identifier: which call took it, with which arguments, and
// how far it has come. A program whose call does not fit it is not the program that wrote the journal.
type Recorded struct {
	Promise id.PromiseID
	// Call is the kind of the event that took the identifier: KindInvokeScheduled, KindRandomGenerated,
	// KindTimeRecorded, KindTimerScheduled, KindSignalReceived, KindExecutionAwaiting (a signal wait that
	// has not been answered; answered, it reads KindSignalReceived) or KindJoinSetCreated.
	Call Kind
	// Resolved reports whether the program gets an answer: the result is recorded, the timer has fired, or
	// the signal was consumed. Random values and times always have one, join sets never.
	Resolved bool

	// Invoke, Function, Input and RetryPolicy are an invocation's, as it was scheduled.
	Invoke      InvokeKind
	Function    string
	Input       []byte
	RetryPolicy string
	// Open is the running attempt (0: none). Retries counts the failed ones; the last of them left LastError,
	// and the next attempt follows at RetryAt, in unix milliseconds.
	Open, Retries uint32
	LastError     []byte
	RetryAt       int64
	// Set is the join set the invocation was submitted to, "" if none.
	Set JoinSetID

	// Result is an invocation's result (a final failure too, K3), a random value, or a signal's payload.
	Result []byte
	// Time is a recorded time, in unix milliseconds.
	Time int64
	// Duration is a timer's, in milliseconds; FireAt is its firing time, in unix milliseconds.
	Duration, FireAt int64
	// Signal is the name waited for or received, DeliveryID the delivery consumed (0: none yet).
	Signal     string
	DeliveryID uint64

	// Submitted and Consumed are a join set's: its members in the order of submission, and those whose
	// result was consumed, in the order of consumption. They must not be changed.
	Submitted, Consumed []id.PromiseID
}

// NewReplay reads a journal from its first entry. An entry that breaks a rule is an error, a *Violation:
// such a journal must not be replayed.
func NewReplay(eid id.PromiseID, entries []Entry, opts ...Option) (*Replay, error) {
	r := &Replay{state: New(eid, opts...)}
	for _, entry := range entries {
		if err := r.Add(entry); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add reads the next entry of the journal, for journals that arrive in pages and for entries that were
// appended since. The error is a *Violation, and then nothing has changed.
func (r *Replay) Add(entry Entry) error {
	if err := r.state.Append(entry.Seq, entry.Event); err != nil {
		return err
	}
	r.record(entry.Event)
	return nil
}

func (r *Replay) record(ev Event) {
	switch e := ev.(type) {
	case ExecutionStarted:
		r.started = e
	case ExecutionCompleted:
		r.outcome = e.Result
	case ExecutionFailed:
		r.outcome = e.Error
	case CancelRequested:
		r.cancel = e.Reason
	case ExecutionCancelled:
		r.reason = e.Reason
	case InvokeScheduled:
		r.take(Recorded{Promise: e.Promise, Call: KindInvokeScheduled, Invoke: e.Invoke, Function: e.Function,
			Input: e.Input, RetryPolicy: e.RetryPolicy})
	case InvokeStarted:
		r.at(e.Promise).Open = e.Attempt
	case InvokeCompleted:
		c := r.at(e.Promise)
		c.Open, c.Resolved, c.Result = 0, true, e.Result
	case InvokeRetrying:
		c := r.at(e.Promise)
		c.Open, c.Retries, c.LastError, c.RetryAt = 0, c.Retries+1, e.Error, e.RetryAt
	case RandomGenerated:
		r.take(Recorded{Promise: e.Promise, Call: KindRandomGenerated, Resolved: true, Result: e.Value})
	case TimeRecorded:
		r.take(Recorded{Promise: e.Promise, Call: KindTimeRecorded, Resolved: true, Time: e.Time})
	case TimerScheduled:
		r.take(Recorded{Promise: e.Promise, Call: KindTimerScheduled, Duration: e.Duration, FireAt: e.FireAt})
	case TimerFired:
		r.at(e.Promise).Resolved = true
	case SignalReceived:
		c := Recorded{Promise: e.Promise, Call: KindSignalReceived, Resolved: true, Result: e.Payload,
			Signal: e.Name, DeliveryID: e.DeliveryID}
		if waited := r.at(e.Promise); waited != nil {
			*waited = c
		} else {
			r.take(c)
		}
	case ExecutionAwaiting:
		if e.Wait == AwaitSignal {
			r.take(Recorded{Promise: e.On[0], Call: KindExecutionAwaiting, Signal: e.Signal})
		}
	case JoinSetCreated:
		r.take(Recorded{Promise: id.PromiseID(e.Set), Call: KindJoinSetCreated})
	case JoinSetSubmitted:
		r.at(e.Promise).Set = e.Set
		set := r.at(id.PromiseID(e.Set))
		set.Submitted = append(set.Submitted, e.Promise)
	case JoinSetAwaited:
		set := r.at(id.PromiseID(e.Set))
		set.Consumed = append(set.Consumed, e.Promise)
	}
}

func (r *Replay) take(c Recorded) { r.recorded = append(r.recorded, c) }

// at finds the record at p; nil if there is none.
func (r *Replay) at(p id.PromiseID) *Recorded {
	n, ok := p.IsChildOf(r.state.eid)
	if !ok || uint64(n) >= uint64(len(r.recorded)) {
		return nil
	}
	return &r.recorded[n]
}

// Lookup returns the record at p. ok is false when there is none: p is a call that the program has not made
// before (or no child of this execution).
func (r *Replay) Lookup(p id.PromiseID) (recorded Recorded, ok bool) {
	if c := r.at(p); c != nil {
		return *c, true
	}
	return Recorded{}, false
}

// State returns the guard over the same journal: its status, the next sequence and child numbers, buffered
// signals. It belongs to the Replay; appending to it directly would part the two.
func (r *Replay) State() *State { return r.state }

// Started returns the first entry's event; ok is false for an empty journal.
func (r *Replay) Started() (started ExecutionStarted, ok bool) {
	return r.started, r.state.status != StatusNone
}

// CancelReason returns the reason given with CancelRequested; ok is false if no cancel was requested.
func (r *Replay) CancelReason() (reason string, ok bool) {
	return r.cancel, r.state.status == StatusCancelling || r.state.status == StatusCancelled
}

// Outcome returns how the execution ended: the result of Completed, the error of Failed, the reason of
// Cancelled as bytes; ok is false while it has not.
func (r *Replay) Outcome() (value []byte, ok bool) {
	if r.state.status == StatusCancelled {
		return []byte(r.reason), true
	}
	return r.outcome, r.state.status.Terminal()
}
