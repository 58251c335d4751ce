package machine

import (
	"fmt"
	"slices"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
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
// What a message carries in the machine is a flight here: its effect may happen at any later time, once, and
// its answer is one that was true at some moment in between.
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
}

// modelWorld is what an operation did outside its execution's journal. A restart that keeps the operation keeps it.
type modelWorld struct {
	child  *modelCall
	flight *modelFlight
	fireAt int64
	target uint32 // of a cancel
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

// retries reports whether another attempt may follow a failure.
func (r *modelRun) retries() bool {
	return r.call != nil && len(r.call.failures)+1 < r.call.attempts
}

// mustRetry: unless the deadline could come first, or the caller has no use for another attempt.
func (m *executionModel) mustRetry(r *modelRun) bool {
	if !r.retries() || r.deadline != 0 || r.call.dropped {
		return false
	}
	caller := m.runs[callerID(string(r.call.promise))]
	return r.call.elsewhere || caller != nil && caller.phase != modelCancelling
}

// says is an event that only a worker writes.
func (m *executionModel) says(r *modelRun, e journal.Event) error {
	if err := r.running(); err != nil {
		return err
	}
	if err := m.own(r, e); err != nil {
		return err
	}
	r.record(e, m.now)
	s, ok := e.(journal.InvokeScheduled)
	if !ok {
		return nil
	}
	op := r.ops[len(r.ops)-1]
	switch s.Invoke {
	case journal.InvokeFunction:
		m.called(r, op, s)
	case journal.InvokeSend:
		return m.sent(r, op, s)
	}
	return nil
}

// record makes the operation of a worker's event.
func (r *modelRun) record(e journal.Event, now int64) {
	op := &modelOp{modelWorld: &modelWorld{}, call: e.Kind()}
	switch ev := e.(type) {
	case journal.InvokeScheduled:
		op.invoke, op.function, op.input = ev.Invoke, ev.Function, string(ev.Input)
	case journal.TimerScheduled:
		op.fireAt = now + ev.Duration
	case journal.JoinSetSubmitted:
		set, _ := r.op(id.PromiseID(ev.Set))
		n, _ := ev.Promise.IsChildOf(id.PromiseID(r.id))
		set.members = append(set.members, n)
		return
	case journal.JoinSetAwaited:
		member, _ := r.op(ev.Promise)
		member.consumed = true
		return
	default:
		op.resolved = true
	}
	r.ops = append(r.ops, op)
}

func (m *executionModel) called(r *modelRun, op *modelOp, s journal.InvokeScheduled) {
	o := m.act.children[s.Promise]
	c := &modelCall{promise: s.Promise, incarnation: r.incarnation, function: s.Function, input: string(s.Input),
		policy: state.ClosePolicy(o.GetClosePolicy()), ownID: o.GetId(), attempts: 1, made: m.now}
	if o.GetRetry() != nil {
		c.attempts = state.RetryBound(s.RetryPolicy) + 1
	}
	if o.GetDelayMs() > 0 {
		c.ready = m.now + o.DelayMs
	}
	if o.GetTimeoutMs() > 0 {
		c.deadline = m.now + o.TimeoutMs + o.DelayMs
	}
	c.elsewhere = c.ownID != "" || o.GetSpread() || c.policy == state.CloseCancel || c.policy == state.CloseAbandon
	op.child, m.calls[callKey(s.Promise, r.incarnation)] = c, c
}

// sent begins the flight of a one-way operation.
func (m *executionModel) sent(r *modelRun, op *modelOp, s journal.InvokeScheduled) error {
	f := &modelFlight{from: fmt.Sprint(r.id, "#", r.incarnation)}
	switch w := m.act.sends[s.Promise].GetWhat().(type) {
	case *perdurev1.Send_Signal:
		f.kind, f.target, f.name, f.payload = journal.KindSignalDelivered, w.Signal.Id, w.Signal.Name, string(w.Signal.Payload)
	case *perdurev1.Send_Start:
		f.kind, f.target, f.name, f.payload = journal.KindExecutionStarted, w.Start.Id, w.Start.Function, string(w.Start.Input)
	case *perdurev1.Send_AwaitedPromise:
		f.target = w.AwaitedPromise.Id
	case *perdurev1.Send_NewPromise:
		op.made = string(s.Promise)
		m.values[op.made] = ""
		if w.NewPromise.TimeoutMs > 0 {
			op.fireAt = m.now + w.NewPromise.TimeoutMs
		}
		return nil
	case *perdurev1.Send_Cancel:
		op.target, _ = id.PromiseID(w.Cancel.OperationId).IsChildOf(id.PromiseID(r.id))
		if target := r.ops[op.target]; target.child != nil && !target.resolved {
			target.child.told = true
		}
		return nil
	default:
		return nil // an entity's: the model of entities has it
	}
	op.flight, m.flights = f, append(m.flights, f)
	return nil
}

func local(k journal.InvokeKind) bool { return k == journal.InvokeStep || k == journal.InvokeHTTP }

func (m *executionModel) attemptStarted(r *modelRun, e journal.InvokeStarted) error {
	op, err := r.op(e.Promise)
	switch {
	case err != nil:
		return err
	case op.resolved || op.open:
		return refuse(r, "%s begins, and is open or over", e.Promise)
	case local(op.invoke):
		if err := m.own(r, e); err != nil {
			return err
		}
	case r.phase == modelCancelling:
		return refuse(r, "%s begins while it is being cancelled", e.Promise)
	case op.invoke == journal.InvokeFunction:
		c := op.child
		if c.begun <= op.started && len(m.answersTo(c)) == 0 && op.seen >= len(c.failures) && !op.cancelled {
			return refuse(r, "attempt %d of child %s begins, and workers have begun %d", op.started+1, e.Promise, c.begun)
		}
	}
	op.started++
	op.open = true
	return nil
}

func (m *executionModel) attemptRetried(r *modelRun, e journal.InvokeRetrying) error {
	op, err := r.op(e.Promise)
	switch {
	case err != nil:
		return err
	case op.resolved || !op.open:
		return refuse(r, "an attempt of %s fails that is not open", e.Promise)
	case local(op.invoke):
		if err := m.own(r, e); err != nil {
			return err
		}
	case r.phase == modelCancelling || op.invoke != journal.InvokeFunction:
		return refuse(r, "%s is repeated", e.Promise)
	default:
		at := slices.Index(op.child.failures[min(op.seen, len(op.child.failures)):], shown(e.Error))
		if at < 0 {
			return refuse(r, "child %s is repeated after %q, it has failed with %q, of which %d are known", e.Promise, shown(e.Error), op.child.failures, op.seen)
		}
		op.seen += at + 1
	}
	op.open = false
	return nil
}

// answersTo are the results that a call may have now.
func (m *executionModel) answersTo(c *modelCall) []string {
	out := slices.Clone(c.answers)
	if c.elsewhere && c.deadline != 0 && c.deadline <= m.now {
		out = append(out, modelTimeout)
	}
	return out
}

func (m *executionModel) invocationDone(r *modelRun, e journal.InvokeCompleted) error {
	op, err := r.op(e.Promise)
	got := shown(e.Result)
	var may []string
	switch {
	case err != nil:
		return err
	case op.resolved || !op.open:
		return refuse(r, "%s completes with %q, and is not open", e.Promise, got)
	case local(op.invoke):
		if r.phase == modelCancelling && m.act.commit == r {
			m.skipTo(e)
		}
		if err := m.own(r, e); err != nil {
			return err
		}
		may = []string{got}
	case op.invoke == journal.InvokeFunction:
		may = m.answersTo(op.child)
	case op.invoke == journal.InvokeSignal:
		if slices.ContainsFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == op.function }) {
			may = []string{""}
		}
	case op.function == "cancel" && op.call == journal.KindInvokeScheduled && op.flight == nil:
		return m.cancelDone(r, op, got)
	case op.made != "":
		if v := m.values[op.made]; v != "" {
			may = []string{v}
		}
		if op.fireAt != 0 && op.fireAt <= m.now {
			may = append(may, modelTimeout)
		}
	case op.flight != nil:
		may = op.flight.answers
		if f := op.flight; got == "" && f.kind == journal.KindSignalDelivered && !f.done && m.runs[f.target] != nil && m.runs[f.target].phase != modelEnded {
			// Within one partition the answer is recorded first.
			may, m.act.promised = append(slices.Clone(may), ""), append(m.act.promised, f)
		}
	default:
		may = []string{got} // an entity's
	}
	if !slices.Contains(may, got) && !(got == modelCancelled && r.cancels(e.Promise)) {
		return refuse(r, "%s completes with %q, it may with %q", e.Promise, got, may)
	}
	if op.flight != nil && op.flight.came && got != "" && got != modelCancelled {
		return refuse(r, "%s completes with %q, and was delivered", e.Promise, got)
	}
	op.resolved, op.open, op.result = true, false, got
	if f := op.flight; f != nil && (got == modelNotFound || got == modelFinished || got == modelConflict) {
		f.done = true
	}
	return nil
}

// skipTo drops what a commit says before a result, while its execution is cancelling.
func (m *executionModel) skipTo(e journal.Event) {
	if i := slices.IndexFunc(m.act.events, func(o journal.Event) bool { return showModel(o) == showModel(e) }); i > 0 {
		m.act.events = m.act.events[i:]
	}
}

// cancels reports whether the execution has an open cancel of an operation.
func (r *modelRun) cancels(p id.PromiseID) bool {
	n, _ := p.IsChildOf(id.PromiseID(r.id))
	return slices.ContainsFunc(r.ops, func(op *modelOp) bool {
		return op.invoke == journal.InvokeSend && op.function == "cancel" && op.open && op.target == n
	})
}

// cancelDone: a cancel says whether the operation was open, and ends it.
func (m *executionModel) cancelDone(r *modelRun, op *modelOp, got string) error {
	target := r.ops[op.target]
	timer := target.call == journal.KindTimerScheduled
	byThis := target.resolved && target.result == modelCancelled && !target.cancelled
	possible := timer || target.call == journal.KindInvokeScheduled && !local(target.invoke)
	switch {
	case got == "\x01" && possible && (!target.resolved && (!target.cancelled || target.child != nil) || byThis):
		target.cancelled = true
		if target.child != nil {
			m.tell(target.child, false)
		} else if target.flight != nil {
			target.flight.answers = addOnce(target.flight.answers, modelCancelled)
		} else if target.made != "" && m.values[target.made] == "" {
			m.values[target.made] = modelCancelled
		}
	case got == "\x00" && (target.resolved || target.cancelled || !possible):
	case got == "\x00" && target.child != nil && len(m.answersTo(target.child)) > 0:
	default:
		return refuse(r, "its cancel of %d answers %q: %+v", op.target, got, target)
	}
	op.resolved, op.open, op.result = true, false, got
	return nil
}

func (r *modelRun) await(e journal.ExecutionAwaiting) {
	r.phase, r.wait, r.holder = modelBlocked, e, 0
	if e.Wait == journal.AwaitSignal {
		r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: e.Kind()})
	}
}

func (r *modelRun) satisfied() bool {
	resolved := 0
	for _, p := range r.wait.On {
		if op, err := r.op(p); err == nil && op.resolved {
			resolved++
		}
	}
	switch r.wait.Wait {
	case journal.AwaitAll:
		return resolved == len(r.wait.On)
	case journal.AwaitJoinSet:
		set, err := r.op(id.PromiseID(r.wait.Set))
		return err == nil && slices.ContainsFunc(set.members, func(n uint32) bool { return r.ops[n].resolved && !r.ops[n].consumed })
	}
	return resolved > 0
}

func (m *executionModel) delivered(r *modelRun, e journal.SignalDelivered) error {
	text := shown(e.Payload)
	count := uint64(1)
	for _, o := range r.log {
		if d, ok := o.Event.(journal.SignalDelivered); ok && d.Name == e.Name {
			count++
		}
	}
	if e.DeliveryID != count {
		return refuse(r, "delivery %d of %s is its delivery %d", count, e.Name, e.DeliveryID)
	}
	switch {
	case len(r.redeliver) > 0:
		if d := r.redeliver[0]; d.Name != e.Name || shown(d.Payload) != text {
			return refuse(r, "it is delivered %s %q, its former incarnation has left %s %q", e.Name, text, d.Name, shown(d.Payload))
		}
		r.redeliver = r.redeliver[1:]
	case text == modelTimeout:
		if r.phase != modelBlocked || r.wait.Wait != journal.AwaitSignal || r.wait.Signal != e.Name || r.waitEnds == 0 || r.waitEnds > m.now {
			return refuse(r, "a wait for %s times out at %d that ends at %d", e.Name, m.now, r.waitEnds)
		}
	default:
		f, err := m.flying(r, e.Name, text)
		if err != nil {
			return err
		}
		f.done, f.came, f.answers = true, true, []string{""}
	}
	r.mail = append(r.mail, e)
	return nil
}

// flying finds a signal that comes to an execution. Those of one sender come in order: an earlier one came, or found no
// execution.
func (m *executionModel) flying(r *modelRun, name, payload string) (*modelFlight, error) {
	for i, f := range m.flights {
		if f.kind != journal.KindSignalDelivered || f.target != r.id || f.name != name || f.payload != payload {
			continue
		}
		if f.done {
			return nil, refuse(r, "signal %s %q comes twice, or was answered otherwise", name, payload)
		}
		for _, before := range m.flights[:i] {
			if before.kind == f.kind && before.from == f.from && before.target == f.target && !before.done {
				if len(before.answers) == 0 {
					return nil, refuse(r, "signal %q comes before %q of the same sender", payload, before.payload)
				}
				before.done = true
			}
		}
		return f, nil
	}
	return nil, refuse(r, "nobody sent signal %s %q", name, payload)
}

func (m *executionModel) received(r *modelRun, e journal.SignalReceived) error {
	i := slices.IndexFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == e.Name })
	if i < 0 || r.mail[i].DeliveryID != e.DeliveryID || shown(r.mail[i].Payload) != shown(e.Payload) {
		return refuse(r, "it receives delivery %d of %s, it has %v", e.DeliveryID, e.Name, r.mail)
	}
	switch {
	case r.phase == modelBlocked && r.wait.Wait == journal.AwaitSignal && r.wait.Signal == e.Name:
		r.ops[len(r.ops)-1].resolved = true
		r.ops[len(r.ops)-1].result = shown(e.Payload)
	case r.phase == modelRunning && m.act.commit == r && len(m.act.events) == 1:
		wait, ok := m.act.events[0].(journal.ExecutionAwaiting)
		if !ok || wait.Signal != e.Name {
			return refuse(r, "it receives %s, and does not wait for it", e.Name)
		}
		m.act.events = nil
		r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: journal.KindExecutionAwaiting, resolved: true, result: shown(e.Payload)})
	default:
		return refuse(r, "it receives %s, and does not wait", e.Name)
	}
	r.mail = slices.Delete(r.mail, i, i+1)
	return nil
}

func (m *executionModel) expired(r *modelRun) bool { return r.deadline != 0 && r.deadline <= m.now }

func (m *executionModel) cancelRequested(r *modelRun, grace int64) error {
	byClient := m.act.cancel == r.id
	if !byClient && m.act.terminate != r.id && !m.expired(r) && (r.call == nil || !r.call.told) {
		return refuse(r, "nobody has asked to cancel it")
	}
	if want := m.now + m.act.graceMS; byClient && grace != 0 && grace != want {
		return refuse(r, "its grace ends at %d, must be %d", grace, want)
	}
	r.phase, r.graces = modelCancelling, grace
	m.reach(r)
	return nil
}

// tell: a child must end because of its caller.
func (m *executionModel) tell(c *modelCall, terminate bool) {
	c.told, c.owed, c.terminate = true, true, c.terminate || terminate
}

// reach lets an execution's cancel, or its end, reach its open children.
func (m *executionModel) reach(r *modelRun) {
	for _, op := range r.ops {
		c := op.child
		if c == nil || op.resolved {
			continue
		}
		switch {
		case r.phase == modelCancelling && c.policy != state.CloseAbandon:
			m.tell(c, false)
		case r.phase != modelEnded || c.policy == state.CloseAbandon:
		case c.policy == state.CloseFollow && !r.completed:
			m.tell(c, r.terminated)
		case c.policy == state.CloseCancel:
			m.tell(c, false)
		case c.policy == state.CloseTerminate:
			m.tell(c, true)
		}
	}
}

func (m *executionModel) cancelled(r *modelRun, outcome string) error {
	if r.phase != modelCancelling {
		return refuse(r, "it is cancelled without a request")
	}
	acknowledged := false
	if m.act.commit == r {
		for _, e := range m.act.events {
			switch e.(type) {
			case journal.ExecutionCompleted, journal.ExecutionFailed, journal.ExecutionCancelled:
				acknowledged = true
			}
		}
	}
	terminated := m.act.terminate == r.id || r.call != nil && r.call.terminate
	want := modelCancelled
	switch {
	case m.expired(r):
		want = modelTimeout
	case acknowledged:
		m.act.events = nil
	case r.graces != 0 && r.graces <= m.now:
	case terminated:
		r.terminated = true
	case !r.begun && r.ready > m.now:
	default:
		return refuse(r, "it is cancelled, and no worker has acknowledged that, its grace ends at %d", r.graces)
	}
	return m.end(r, want, outcome)
}

// end: an execution's result is there, at once for those who ask, later for its caller.
func (m *executionModel) end(r *modelRun, want, outcome string) error {
	if outcome != want {
		return refuse(r, "it has ended with %q, its promise has %q", want, outcome)
	}
	r.phase, r.outcome, r.holder = modelEnded, outcome, 0
	if r.call != nil {
		r.call.answers = append(r.call.answers, outcome)
	}
	m.reach(r)
	return nil
}

// begins is the first entry of an execution that was not there.
func (m *executionModel) begins(h *state.Header, first journal.ExecutionStarted) error {
	r := &modelRun{id: h.ID, function: h.Function, input: string(first.Input), incarnation: h.Incarnation, deadline: h.DeadlineMS}
	fail := func(why string) error { return fmt.Errorf("%s begins: %s", h.ID, why) }
	if c := m.callFor(h); c != nil {
		switch {
		case c.run != nil:
			return fail("its caller has called it once, it begins twice")
		case c.function != h.Function || c.input != r.input || c.deadline != h.DeadlineMS || h.ClosePolicy != state.CloseFollow && h.ClosePolicy != c.policy:
			return fail(fmt.Sprintf("it has %s of %q until %d, its call says %+v", h.Function, r.input, h.DeadlineMS, c))
		}
		r.call, c.run, r.ready = c, r, c.ready
	} else if of := m.cleaned(h); of != nil {
		if of.phase != modelEnded || of.completed || of.armed == 0 || of.terminated || of.cleanup != nil || h.DeadlineMS != m.now+of.armed {
			return fail(fmt.Sprintf("it cleans up after %+v", of))
		}
		of.cleanup, r.cleanupOf = r, of
	} else if h.Parent != "" {
		return fail("nobody calls it")
	} else if s := m.act.start; s != nil && s.Id == h.ID && s.Function == h.Function && string(s.Input) == r.input {
		m.act.start = nil
		if s.TimeoutMs > 0 && h.DeadlineMS != m.now+s.TimeoutMs {
			return fail("it has another deadline")
		}
	} else {
		i := slices.IndexFunc(m.flights, func(f *modelFlight) bool {
			return f.kind == journal.KindExecutionStarted && !f.done && f.target == h.ID && f.name == h.Function && f.payload == r.input
		})
		if i < 0 {
			return fail("nobody has started it")
		}
		m.flights[i].done, m.flights[i].came, m.flights[i].answers = true, true, []string{""}
	}
	m.runs[h.ID] = r
	r.log = []journal.Entry{{Event: first}}
	m.look()
	return nil
}

// callFor is the call that a header names as its origin.
func (m *executionModel) callFor(h *state.Header) *modelCall {
	return m.calls[callKey(id.PromiseID(h.ParentPromise), h.ParentIncarnation)]
}

// drop: the incarnation that made a call is over.
func (m *executionModel) drop(c *modelCall) {
	c.dropped = true
	if c.elsewhere && c.policy == state.CloseCancel {
		m.tell(c, false)
	}
	if c.elsewhere && c.policy == state.CloseTerminate {
		m.tell(c, true)
	}
}

func (m *executionModel) cleaned(h *state.Header) *modelRun {
	if !strings.HasPrefix(h.Function, state.FunctionCleanup) {
		return nil
	}
	return m.runs[h.Parent]
}

// beginsAgain is the next incarnation of an execution, with the entries that it keeps. It returns how many those are.
func (m *executionModel) beginsAgain(old *modelRun, h *state.Header, entries []journal.Entry) (int, error) {
	first := entries[0].Event.(journal.ExecutionStarted)
	r := &modelRun{id: h.ID, function: h.Function, input: string(first.Input), incarnation: h.Incarnation, deadline: h.DeadlineMS, call: old.call}
	fail := func(format string, args ...any) (int, error) {
		return 0, fmt.Errorf("%s begins again: %s", h.ID, fmt.Sprintf(format, args...))
	}
	kept := 1
	input := old.input
	var again []journal.SignalDelivered
	since := func(cut int) (out []journal.SignalDelivered) {
		for _, e := range old.log[cut:] {
			if d, ok := e.Event.(journal.SignalDelivered); ok && shown(d.Payload) != modelTimeout {
				out = append(out, d)
			}
		}
		return out
	}
	switch {
	case m.act.commit == old && m.act.continues:
		if old.phase != modelRunning {
			return fail("as new in phase %d", old.phase)
		}
		input, again, r.begun = m.act.input, old.mail, old.begun
	case m.act.commit == old && m.failure() != "":
		if !old.retries() || old.phase != modelRunning {
			return fail("it has failed, and no attempt is left")
		}
		old.call.failures = append(old.call.failures, m.failure())
		m.before(old)
		again, r.ready = since(0), h.RetryAt
		if r.ready <= m.now {
			return fail("without a pause")
		}
	case m.act.restart == h.ID && old.call == nil:
		if m.act.fromFailure && (old.phase != modelEnded || !old.completed) {
			return fail("from a failure that it does not have")
		}
		if kept = max(int(m.act.kept), 1); kept > len(old.log) || kept > len(entries) {
			return fail("with %d entries of %d", kept, len(old.log))
		}
		for i, e := range entries[1:kept] {
			if showModel(e.Event) != showModel(old.log[i+1].Event) || e.Time != old.log[i+1].Time {
				return fail("entry %d is %s, was %s", i+1, showModel(e.Event), showModel(old.log[i+1].Event))
			}
		}
		again = since(kept)
		if kept == 1 {
			again = since(0)
		}
	case m.act.start != nil && m.act.start.Id == h.ID && old.phase == modelEnded && old.call == nil:
		if m.act.start.Reuse == perdurev1.Reuse_REUSE_REJECT || m.act.start.Reuse == perdurev1.Reuse_REUSE_IF_FAILED && old.completed && !strings.HasPrefix(old.outcome, "!") {
			return fail("although its client did not ask for that")
		}
		input, m.act.start = string(m.act.start.Input), nil
	default:
		c := m.callFor(h)
		if c == nil || c.run != nil {
			return fail("nobody has asked for that")
		}
		input, r.call, c.run = c.input, c, r
	}
	if input != r.input {
		return fail("with the input %q, must be %q", r.input, input)
	}
	if r.call != nil {
		r.call.run = r
	}
	for _, e := range entries[:kept] {
		m.keep(old, r, e)
	}
	for n, op := range r.ops {
		if err := m.calledAgain(r, op, old.ops[n]); err != nil {
			return fail("%v", err)
		}
	}
	for _, op := range old.ops[min(len(r.ops), len(old.ops)):] {
		if op.child != nil {
			m.drop(op.child)
		}
		if op.made != "" {
			if m.values[op.made] == "" {
				m.values[op.made] = modelCancelled
			}
			m.look()
			delete(m.values, op.made)
		}
	}
	r.redeliver, m.runs[h.ID] = slices.Clone(again), r
	m.look()
	return kept, nil
}

// before is what a commit says before a failure that another attempt follows: its journal is gone, its
// messages are not.
func (m *executionModel) before(r *modelRun) {
	for {
		switch e := m.act.events[0].(type) {
		case journal.ExecutionFailed:
			m.act.events = nil
			return
		case journal.InvokeScheduled:
			_ = m.says(r, e)
			if f := r.ops[len(r.ops)-1].flight; f != nil && f.kind == journal.KindSignalDelivered && f.target == r.id {
				f.done = true
				r.log = append(r.log, journal.Entry{Event: journal.SignalDelivered{Name: f.name, Payload: recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte(f.payload)})}})
			}
			m.look()
		default:
			m.act.events = m.act.events[1:]
		}
	}
}

// calledAgain begins the child of an operation again, if the restart has done so.
func (m *executionModel) calledAgain(r *modelRun, op, was *modelOp) error {
	if op.child == nil || op.resolved {
		return nil
	}
	former := op.child
	if !m.again(string(former.promise), r.incarnation) {
		if m.act.newChildren {
			return fmt.Errorf("child %s does not begin again", former.promise)
		}
		return nil
	}
	failed := func(s string) bool { return strings.HasPrefix(s, "!") }
	if !m.act.newChildren && !(m.act.fromFailure && (failed(was.result) || slices.ContainsFunc(m.answersTo(former), failed))) {
		return fmt.Errorf("child %s begins again", former.promise)
	}
	c := *former
	c.incarnation, c.made, c.ready, c.run, c.begun, c.failures, c.answers = r.incarnation, m.now, 0, nil, 0, nil, nil
	c.told, c.terminate, c.owed, c.dropped = false, false, false, false
	if c.deadline != 0 {
		c.deadline = m.now + former.deadline - former.made
	}
	m.drop(former)
	world := *op.modelWorld
	world.child = &c
	op.modelWorld, op.seen = &world, 0
	m.calls[callKey(c.promise, c.incarnation)] = &c
	return nil
}

func (m *executionModel) failure() string {
	for _, e := range m.act.events {
		if f, ok := e.(journal.ExecutionFailed); ok {
			return shown(f.Error)
		}
	}
	return ""
}

// keep copies one entry of a former incarnation, with what its operation did outside.
func (m *executionModel) keep(old, r *modelRun, e journal.Entry) {
	r.log = append(r.log, e)
	op := func(p id.PromiseID) *modelOp { o, _ := r.op(p); return o }
	switch ev := e.Event.(type) {
	case journal.InvokeScheduled, journal.TimerScheduled, journal.RandomGenerated, journal.TimeRecorded, journal.JoinSetCreated,
		journal.JoinSetSubmitted, journal.JoinSetAwaited:
		n := len(r.ops)
		r.record(ev, e.Time)
		if len(r.ops) > n {
			was, now := old.ops[n], r.ops[n]
			if now.modelWorld = was.modelWorld; was.child != nil {
				was.child.owed = false // it has a caller again
				now.kept = true
			}
		}
	case journal.InvokeStarted:
		op(ev.Promise).started++
		op(ev.Promise).open = true
	case journal.InvokeRetrying:
		op(ev.Promise).seen++
		op(ev.Promise).open = false
	case journal.InvokeCompleted:
		o := op(ev.Promise)
		o.resolved, o.open, o.result = true, false, shown(ev.Result)
		if o.function == "cancel" && o.result == "\x01" {
			r.ops[o.target].cancelled = true
		}
	case journal.TimerFired:
		op(ev.Promise).resolved = true
	case journal.ExecutionAwaiting:
		r.await(ev)
	case journal.ExecutionResumed:
		r.phase = modelRunning
	case journal.SignalDelivered:
		r.mail = append(r.mail, ev)
	case journal.SignalReceived:
		r.mail = slices.DeleteFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == ev.Name && d.DeliveryID == ev.DeliveryID })
		if r.phase == modelBlocked {
			r.ops[len(r.ops)-1].resolved = true
		} else {
			r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: journal.KindExecutionAwaiting, resolved: true})
		}
	}
}

// erased: an execution is gone. Only one of a caller's former incarnation may, in the caller's own place.
func (m *executionModel) erased(r *modelRun) error {
	over := r.call != nil && !r.call.elsewhere && (r.call.dropped || m.runs[callerID(r.id)] == nil)
	if r.cleanupOf != nil && m.runs[r.cleanupOf.id] != r.cleanupOf {
		over = true
	}
	if !over {
		return refuse(r, "it is erased, and its caller's incarnation is not over")
	}
	delete(m.runs, r.id)
	for _, op := range r.ops {
		if op.child != nil {
			m.drop(op.child)
		}
		delete(m.values, op.made)
	}
	m.look()
	return nil
}

func callerID(promise string) string {
	parent, _ := state.ParentOf(promise)
	return parent
}

// acquired: a worker holds the task of an execution.
func (m *executionModel) acquired(incarnation, version uint64, lease int64, r *modelRun) error {
	switch {
	case r == nil || r.incarnation != incarnation:
		return fmt.Errorf("a task of incarnation %d is acquired, which is over", incarnation)
	case r.phase != modelRunning && r.phase != modelCancelling:
		return refuse(r, "its task is acquired in phase %d", r.phase)
	case r.holder != 0 && r.leaseAt > m.now:
		return refuse(r, "its task is acquired, and a worker holds it until %d", r.leaseAt)
	case !r.begun && r.ready > m.now:
		return refuse(r, "its task is acquired before %d", r.ready)
	}
	if r.call != nil && !r.begun {
		r.call.begun++
	}
	r.holder, r.leaseAt, r.begun = version, m.now+lease, true
	return nil
}

// holds reports whether a token is that of the worker that holds the task.
func (m *executionModel) holds(token *perdurev1.TaskToken) *modelRun {
	r := m.runs[token.Id]
	if r == nil || r.incarnation != token.Incarnation || r.holder == 0 || r.holder != token.Version || r.leaseAt <= m.now || m.expired(r) {
		return nil
	}
	if r.phase == modelCancelling && r.graces != 0 && r.graces <= m.now {
		return nil
	}
	return r
}

// committing is the licence of a commit.
func (m *executionModel) committing(r *modelRun, c *perdurev1.Commit) error {
	m.act = modelAct{commit: r, waitMS: c.WaitTimeoutMs, sends: map[id.PromiseID]*perdurev1.Send{}, children: map[id.PromiseID]*perdurev1.ChildOptions{},
		continues: c.ContinueAsNew != nil, input: string(c.ContinueAsNew.GetInput())}
	for _, w := range c.Events {
		e, err := wire.DecodeEvent(w)
		if err != nil {
			return err
		}
		m.act.events = append(m.act.events, e)
	}
	for _, s := range c.Sends {
		m.act.sends[id.PromiseID(s.PromiseId)] = s
	}
	for _, o := range c.Children {
		m.act.children[id.PromiseID(o.PromiseId)] = o
	}
	if c.CleanupMs != 0 && r.phase == modelRunning {
		m.act.cleanupMS = c.CleanupMs
	}
	return nil
}

// committed: all that a commit says is recorded, but for a wait that is satisfied, unless its execution is
// being cancelled.
func (m *executionModel) committed() error {
	r := m.act.commit
	if r == nil || m.runs[r.id] != r || r.phase == modelCancelling || r.phase == modelEnded || len(m.act.events) == 0 {
		return nil
	}
	if wait, ok := m.act.events[0].(journal.ExecutionAwaiting); ok && wait.Wait != journal.AwaitSignal {
		other := *r
		if other.wait = wait; other.satisfied() {
			return nil
		}
	}
	return refuse(r, "the commit was applied, and %d of its events are missing: %s", len(m.act.events), showModel(m.act.events[0]))
}

// settled checks what must be at each moment.
func (m *executionModel) settled(r *modelRun) error {
	switch {
	case r.phase == modelBlocked && r.satisfied():
		return refuse(r, "its wait is satisfied, and it waits")
	case len(r.redeliver) > 0:
		return refuse(r, "%d signals of its former incarnation are lost", len(r.redeliver))
	case r.phase == modelEnded && !r.completed && r.armed > 0 && !r.terminated && r.cleanup == nil:
		return refuse(r, "it was cancelled, and nothing cleans up")
	}
	for n, op := range r.ops {
		if op.invoke == journal.InvokeSignal && op.open && r.phase < modelCancelling &&
			slices.ContainsFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == op.function }) {
			return refuse(r, "operation %d waits for signal %s, which it has", n, op.function)
		}
	}
	return nil
}

// known reports whether a promise has its value, or is not there.
func (m *executionModel) known(promise string) bool {
	if value, made := m.values[promise]; made {
		return value != ""
	}
	r := m.runs[promise]
	return r == nil || r.phase == modelEnded
}

// calm checks what must be when every message has come and every deadline has been carried out.
func (m *executionModel) calm(r *modelRun) error {
	switch {
	case r.phase != modelEnded && m.expired(r):
		return refuse(r, "its deadline has passed")
	case r.phase == modelCancelling && r.graces != 0 && r.graces <= m.now:
		return refuse(r, "its grace has passed")
	case r.phase < modelCancelling && r.call != nil && r.call.owed:
		return refuse(r, "its caller's end has not reached it: %+v", r.call)
	case r.phase < modelEnded && r.call != nil && r.call.owed && r.call.terminate:
		return refuse(r, "its caller's end has not terminated it")
	case r.phase == modelEnded:
		return nil
	}
	for n, op := range r.ops {
		due := false
		switch {
		case op.resolved || op.cancelled && op.call == journal.KindTimerScheduled:
		case op.call == journal.KindTimerScheduled:
			due = op.fireAt <= m.now
		case op.child != nil:
			due = len(m.answersTo(op.child)) > 0 && (op.open || r.phase < modelCancelling)
			if op.child.begun > op.started && !op.open && !op.kept && r.phase < modelCancelling {
				return refuse(r, "child %d has begun, and its journal does not say so", n)
			}
			if op.seen < len(op.child.failures) && op.started == 0 && !op.kept && r.phase < modelCancelling {
				return refuse(r, "child %d has failed, and its journal does not say so", n)
			}
			if op.child.run == nil && len(op.child.answers) == 0 {
				return refuse(r, "child %d has not begun", n)
			}
		case op.flight != nil:
			due = op.open && (op.flight.kind != 0 || m.known(op.flight.target))
		case op.made != "":
			due = m.values[op.made] != "" || op.fireAt != 0 && op.fireAt <= m.now
		}
		if due {
			return refuse(r, "operation %d has a result, and its journal has none: %+v %+v", n, op, op.modelWorld)
		}
	}
	return nil
}
