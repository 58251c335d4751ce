package machine

import (
	"fmt"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// executionModel is the high-level model of executions: what each has done and may do next, without messages,
// tasks, partitions or a clean-up of storage (durable functions semantics, section 4.3; recovery protocol;
// the ending table). It shares no code with the machine. Its steps are what a user sees: an execution begins,
// its journal grows by one entry, it begins again, it is erased with its caller's incarnation. Each step has
// a guard: what other executions, clients and workers did before.
//
// A flight stands for a message of the machine: its effect happens once, at any later time, and its answer was true at some
// moment in between.
type executionModel struct {
	now int64
	// again reports whether an operation's child has been begun again by an incarnation of its caller.
	again func(promise string, incarnation uint64) bool
	runs  map[string]*modelRun
	calls map[string]*modelCall // by promise and the caller's incarnation
	// values are promises that clients settle: "" while open.
	values  map[string]string
	flights []*modelFlight
	act     modelAct
}

// modelAct is what the environment does in one command. Each part is the licence for some steps.
type modelAct struct {
	commit *modelRun
	// events are those of the commit that have not been recorded yet, with the contents of its operations.
	events                     []journal.Event
	sends                      map[id.PromiseID]*perdurev1.Send
	children                   map[id.PromiseID]*perdurev1.ChildOptions
	waitMS, cleanupMS          int64
	continues                  bool
	input                      string
	start                      *perdurev1.StartRequest
	signal                     *modelFlight
	promised                   []*modelFlight // signals that must be delivered now
	cancel, terminate, restart string
	graceMS                    int64
	kept                       uint64
	newChildren, fromFailure   bool
}

type modelPhase int

const (
	modelRunning modelPhase = iota
	modelBlocked
	modelCancelling
	modelEnded
)

// modelRun is one incarnation of an execution.
type modelRun struct {
	id, function, input string
	incarnation         uint64
	call                *modelCall // whose result it is; nil for a root
	phase               modelPhase
	log                 []journal.Entry
	ops                 []*modelOp
	wait                journal.ExecutionAwaiting
	waitEnds            int64
	// mail are the signals that were delivered and not received, redeliver those that come from the former incarnation.
	mail, redeliver  []journal.SignalDelivered
	deadline, graces int64
	// ready is when its task may be acquired first.
	ready      int64
	armed      int64
	terminated bool
	completed  bool
	cleanup    *modelRun
	cleanupOf  *modelRun
	outcome    string
	// holder is the version of the task that a worker holds until leaseAt, 0 for none. begun: this attempt
	// has been acquired.
	holder  uint64
	leaseAt int64
	begun   bool
}

// modelOp is an operation of an execution, by its child number.
type modelOp struct {
	*modelWorld
	call      journal.Kind
	invoke    journal.InvokeKind
	function  string
	input     string
	started   int // attempts
	open      bool
	seen      int // failures of the child that are recorded
	resolved  bool
	cancelled bool // by an operation
	result    string
	members   []uint32 // of a join set
	consumed  bool
	kept      bool // by a restart: what its child did before that the journal may not say
	// begunBefore and failedBefore are the attempts that the journal has of children in whose place this one began.
	// claimed: the former incarnation's journal had more attempts than the restart keeps, of whichever child.
	begunBefore, failedBefore int
	claimed                   bool
}

// modelWorld is what an operation did outside its execution's journal. A restart that keeps the operation keeps it.
type modelWorld struct {
	child  *modelCall
	flight *modelFlight
	fireAt int64
	target uint32 // of a cancel
	// answered is what a cancel has answered, in this incarnation or a former one.
	answered string
	// made is the id of a promise that clients settle.
	made string
}

// modelCall is the call of a child.
type modelCall struct {
	promise         id.PromiseID
	incarnation     uint64
	function, input string
	policy          state.ClosePolicy
	ownID           string
	elsewhere       bool
	attempts        int
	made            int64 // when it was called
	ready, deadline int64
	run             *modelRun
	begun           int // attempts that a worker has begun
	failures        []string
	answers         []string // what may come to the caller
	// told: the child may be ended, cancelled or terminated, because of its caller. owed: it must be.
	// dropped: the caller's incarnation that made the call is over.
	told, terminate, owed, dropped bool
}

// modelFlight is a question to another object: a signal, a start, a request for a promise's value.
type modelFlight struct {
	kind                        journal.Kind // of what it brings about: SignalDelivered, ExecutionStarted, or 0 for a value
	from, target, name, payload string
	done, came                  bool // came: delivered, or started; done: or answered
	answers                     []string
}

func newExecutionModel() *executionModel {
	return &executionModel{runs: map[string]*modelRun{}, calls: map[string]*modelCall{}, values: map[string]string{}}
}

const (
	modelTimeout   = "!" + state.FailureTimeout
	modelCancelled = "!" + state.FailureCancelled
	modelConflict  = "!" + state.FailureConflict
	modelNotFound  = "!" + state.FailureTargetNotFound
	modelFinished  = "!" + state.FailureTargetFinished
)

// shown is an outcome as the model compares it: of the server's own failures only the type.
func shown(outcome []byte) string {
	o, err := recovery.DecodeOutcome(outcome)
	switch {
	case err != nil:
		return "damaged"
	case o.Failure == nil:
		return string(o.Data)
	case o.Failure.Type == "bad":
		return "!bad:" + o.Failure.Message
	}
	return "!" + o.Failure.Type
}

func callKey(promise id.PromiseID, incarnation uint64) string {
	return fmt.Sprint(promise, "#", incarnation)
}

func addOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// look lets every flight and every call see what is true now.
func (m *executionModel) look() {
	for _, f := range m.flights {
		if f.done {
			continue
		}
		r := m.runs[f.target]
		switch {
		case f.kind == journal.KindSignalDelivered && r == nil:
			f.answers = addOnce(f.answers, modelNotFound)
		case f.kind == journal.KindSignalDelivered && r.phase == modelEnded:
			f.answers = addOnce(f.answers, modelFinished)
		case f.kind == journal.KindExecutionStarted && r != nil:
			f.answers = addOnce(addOnce(f.answers, modelConflict), "")
		case f.kind == journal.KindExecutionStarted:
			if _, taken := m.values[f.target]; taken {
				f.answers = addOnce(f.answers, modelConflict)
			}
		case f.kind == 0:
			if value, made := m.values[f.target]; made {
				if value != "" {
					f.answers = addOnce(f.answers, value)
				}
			} else if r == nil {
				f.answers = addOnce(f.answers, modelNotFound)
			} else if r.phase == modelEnded {
				f.answers = addOnce(f.answers, r.outcome)
			}
		}
	}
	for _, c := range m.calls {
		if c.ownID == "" || c.run != nil {
			continue
		}
		if _, taken := m.values[c.ownID]; taken || m.runs[c.ownID] != nil {
			c.answers = addOnce(c.answers, modelConflict)
		}
	}
}

// own takes the next event of the commit, which must be this one.
func (m *executionModel) own(r *modelRun, e journal.Event) error {
	if m.act.commit != r || len(m.act.events) == 0 || showModel(m.act.events[0]) != showModel(e) {
		return fmt.Errorf("%s: no worker that holds the task says %s", r.id, showModel(e))
	}
	m.act.events = m.act.events[1:]
	return nil
}

// showModel is what a worker says, without what the server adds.
func showModel(e journal.Event) string {
	if t, ok := e.(journal.TimerScheduled); ok {
		t.FireAt = 0
		e = t
	}
	return fmt.Sprintf("%T%+v", e, e)
}

func (r *modelRun) running() error {
	if r.phase != modelRunning {
		return fmt.Errorf("%s does not run, it is in phase %d", r.id, r.phase)
	}
	return nil
}

func (r *modelRun) op(p id.PromiseID) (*modelOp, error) {
	n, ok := p.IsChildOf(id.PromiseID(r.id))
	if !ok || int(n) >= len(r.ops) {
		return nil, fmt.Errorf("%s has no operation %s", r.id, p)
	}
	return r.ops[n], nil
}

func refuse(r *modelRun, format string, args ...any) error {
	return fmt.Errorf("%s: %s", r.id, fmt.Sprintf(format, args...))
}

// step is one more entry in an execution's journal.
func (m *executionModel) step(r *modelRun, e journal.Entry, outcome string, grace int64) error {
	if r.phase == modelEnded {
		return refuse(r, "it has ended, and goes on with %s", showModel(e.Event))
	}
	if err := m.guard(r, e, outcome, grace); err != nil {
		return err
	}
	r.log = append(r.log, e)
	m.look()
	return nil
}

func (m *executionModel) guard(r *modelRun, e journal.Entry, outcome string, grace int64) error {
	switch ev := e.Event.(type) {
	case journal.InvokeScheduled, journal.TimerScheduled, journal.RandomGenerated, journal.TimeRecorded, journal.JoinSetCreated,
		journal.JoinSetSubmitted, journal.JoinSetAwaited:
		return m.says(r, ev)
	case journal.ExecutionAwaiting:
		if err := r.running(); err != nil {
			return err
		}
		if err := m.own(r, ev); err != nil {
			return err
		}
		r.await(ev)
		if r.waitEnds = 0; m.act.waitMS > 0 {
			r.waitEnds = m.now + m.act.waitMS
		}
	case journal.ExecutionResumed:
		if r.phase != modelBlocked || !r.satisfied() {
			return refuse(r, "it resumes, and waits for %v", r.wait)
		}
		r.phase = modelRunning
	case journal.InvokeStarted:
		return m.attemptStarted(r, ev)
	case journal.InvokeRetrying:
		return m.attemptRetried(r, ev)
	case journal.InvokeCompleted:
		return m.invocationDone(r, ev)
	case journal.TimerFired:
		op, err := r.op(ev.Promise)
		if err != nil {
			return err
		}
		if op.call != journal.KindTimerScheduled || op.resolved || op.cancelled || op.fireAt > m.now {
			return refuse(r, "timer %s of %d fires at %d: %+v", ev.Promise, op.fireAt, m.now, op)
		}
		op.resolved = true
	case journal.SignalDelivered:
		return m.delivered(r, ev)
	case journal.SignalReceived:
		return m.received(r, ev)
	case journal.CancelRequested:
		return m.cancelRequested(r, grace)
	case journal.ExecutionCompleted:
		if err := r.running(); err != nil {
			return err
		}
		if err := m.own(r, ev); err != nil {
			return err
		}
		r.completed = true
		return m.end(r, string(ev.Result), outcome)
	case journal.ExecutionFailed:
		if err := r.running(); err != nil {
			return err
		}
		if err := m.own(r, ev); err != nil {
			return err
		}
		if m.mustRetry(r) {
			return refuse(r, "its attempt %d of %d fails for good", len(r.call.failures)+1, r.call.attempts)
		}
		r.completed = true
		return m.end(r, shown(ev.Error), outcome)
	case journal.ExecutionCancelled:
		return m.cancelled(r, outcome)
	default:
		return refuse(r, "%s in the middle of its journal", showModel(ev))
	}
	return nil
}
