package machine

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// The simulator's executions run programs: straight lists of operations whose results are known in
// advance, so that what the journals hold can be compared with what must come out.

type simKind int

const (
	simStep   simKind = iota // a local step: its first fails attempts fail
	simIntent                // the same, committed before it runs
	simCall                  // a child, waited for at once
	simGo                    // a child, waited for later
	simTimer                 // a timer, waited for later
	simSleep
	simAll // waits for all handles so far
	simAny // for any of them
	simSet // takes the results of all child handles out of a join set, in the order they come
	simWait
	simSend
	simSpawn
	simRandom
	simTime
	simAsk     // a call of an entity, waited for at once
	simTell    // a signal to an entity
	simSection // a critical section: locks, a call of each entity, unlock
	simFuture  // a signal or a timer, and a cancel of the loser
	simKinds
)

type simOp struct {
	kind     simKind
	name     string
	fails    int
	attempts int
	program  int // of a child
	spread   bool
	policy   perdurev1.ClosePolicy
	delay    int64
	timeout  int64
	target   string
	awaited  bool // of a send: it waits for the answer
}

type simProgram struct {
	ops   []simOp
	fails bool // it ends with an error
	// says is the type of what it ends with if that is neither a result nor an error: it is to be skipped, or to
	// wait for the signal.
	says, signal string
	// then is the program that it continues as, 0 for none.
	then int
}

// A book holds the programs of one run; an execution's input is the number of its program. The attempts of a
// graph's nodes, which have other inputs, run the programs of a pool, as their ids fall.
type book struct {
	programs []simProgram
	pool     []int
	// sentTo are the targets of signals, by payload.
	sentTo map[string]string
}

// programOf is the number of an execution's program.
func (b *book) programOf(eid string, input []byte) (int, error) {
	n, err := strconv.Atoi(string(input))
	if err != nil && len(b.pool) > 0 {
		h := fnv.New32a()
		h.Write([]byte(eid))
		n, err = b.pool[int(h.Sum32()>>4)%len(b.pool)], nil
	}
	if err == nil && n >= len(b.programs) {
		err = fmt.Errorf("there is no program %d", n)
	}
	return n, err
}

// write draws a program and those of its children, at most depth deep.
func (b *book) write(draw func(n int) int, depth int, targets []string) int {
	var p simProgram
	handles := 0
	for range 1 + draw(6) {
		op := simOp{kind: simKind(draw(int(simKinds)))}
		if draw(4) == 0 {
			op.kind = []simKind{simCall, simGo, simSend}[draw(3)]
		}
		op.name = fmt.Sprint(op.kind, "-", len(b.programs), "-", len(p.ops))
		switch op.kind {
		case simStep, simIntent:
			// Either it succeeds in the end, whatever is lost on the way, or it never does.
			op.attempts, op.fails = 40, draw(3)
			if draw(5) == 0 {
				op.attempts, op.fails = 1+draw(3), 1000
			}
		case simCall, simGo:
			if depth == 0 {
				continue
			}
			op.spread = draw(3) == 0
			if draw(3) == 0 {
				op.policy = perdurev1.ClosePolicy(draw(4))
			}
			if draw(6) == 0 {
				op.delay = int64(1 + draw(5_000))
			}
			if draw(6) == 0 {
				op.timeout = int64(1 + draw(20_000))
			}
			op.program = b.write(draw, depth-1, targets)
			if op.attempts = 1 + max(draw(6)-3, 0); b.sends(op.program) {
				op.attempts = 1 // each attempt would send again
			}
			handles++
		case simTimer, simSleep:
			op.timeout = int64(draw(30_000))
			handles++
		case simAll, simAny, simSet:
			if handles == 0 {
				continue
			}
		case simWait:
			op.name = string("ab"[draw(2)])
			if draw(2) == 0 {
				op.timeout = int64(1 + draw(20_000))
			}
		case simSend:
			op.name, op.target, op.awaited = string("ab"[draw(2)]), targets[draw(len(targets))], draw(2) == 0
		case simAsk, simTell, simSection:
			writeEntities(draw, &op)
		case simFuture:
			op.name, op.timeout = string("ab"[draw(2)]), int64(1+draw(5_000))
		case simSpawn:
			if depth == 0 {
				continue
			}
			op.target = fmt.Sprint("spawned-", len(b.programs))
			op.program = b.write(draw, 0, targets)
		}
		p.ops = append(p.ops, op)
	}
	p.fails = draw(8) == 0
	if depth == 2 && draw(4) == 0 {
		// A second incarnation that signals would do so under the first one's names.
		if then := b.write(draw, 0, targets); !b.sends(then) {
			p.then = then
		}
	}
	b.programs = append(b.programs, p)
	return len(b.programs) - 1
}

// sends reports whether a program or one of its children's signals another execution.
func (b *book) sends(program int) bool {
	if then := b.programs[program].then; then != 0 && b.sends(then) {
		return true
	}
	return slices.ContainsFunc(b.programs[program].ops, func(op simOp) bool {
		return op.kind == simSend || (op.kind == simCall || op.kind == simGo) && b.sends(op.program)
	})
}

// expect is a program's result without timeouts and cancels; certain is false if the result depends on the
// course of events.
func (b *book) expect(program int) (outcome string, certain bool) {
	p := b.programs[program]
	if p.then != 0 {
		return b.expect(p.then)
	}
	acc, certain := accumulator{}, true
	children := map[int]string{}
	for i, op := range p.ops {
		switch op.kind {
		case simCall, simGo:
			result, sure := b.expect(op.program)
			certain = certain && sure && op.timeout == 0
			children[i] = result
			if op.kind == simCall {
				acc.add(op.name, result)
			}
		case simSet:
			acc.addAll(op.name, children)
		case simWait:
			certain = certain && op.timeout == 0
			acc.add("signal", "")
		default:
			acc.op(op)
		}
	}
	return acc.outcome(p), certain
}

// An accumulator makes the result of a program from those of its operations.
type accumulator struct{ parts []string }

func (a *accumulator) add(name, result string) { a.parts = append(a.parts, name+"="+result) }

// op adds an operation whose result does not depend on anything.
func (a *accumulator) op(op simOp) {
	switch op.kind {
	case simStep, simIntent:
		result := op.name
		if op.fails >= op.attempts {
			result = "failed"
		}
		a.add(op.name, result)
	default:
		a.add(op.name, "")
	}
}

// addAll adds results in whatever order they came.
func (a *accumulator) addAll(name string, results map[int]string) {
	var all []string
	for _, r := range results {
		all = append(all, r)
	}
	slices.Sort(all)
	a.add(name, strings.Join(all, "+"))
}

func (a *accumulator) outcome(p simProgram) string {
	h := fnv.New64a()
	for _, part := range a.parts {
		fmt.Fprintf(h, "%s;", part)
	}
	if p.fails {
		return "!" + strconv.FormatUint(h.Sum64(), 16)
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// textOf is an outcome as programs see it.
func textOf(encoded []byte) string {
	o, err := recovery.DecodeOutcome(encoded)
	switch {
	case err != nil:
		return "damaged"
	case o.Failure == nil:
		return string(o.Data)
	case o.Failure.Type == "app":
		return "!" + o.Failure.Message
	}
	return "!" + o.Failure.Type
}

// A run is one walk through a program along a journal: it goes as far as there are results, and makes
// the events of what comes next, as the rules for workers have it.
type run struct {
	b       *book
	program simProgram
	replay  *journal.Replay
	eid     id.PromiseID
	next    uint32
	known   uint32 // child ids in the journal
	acc     accumulator
	c       *perdurev1.Commit
	// ran are the attempts this worker has run itself since it got the task.
	ran map[uint32]uint32
	// stop decides after each operation whether to commit what there is.
	stop func() bool
	done bool // no event may follow
	cut  bool
	// order in which handles were made: children and timers by their number.
	handles  []uint32
	children map[int]uint32
	outcomes map[uint32]string
	// sets is the join set that a child was submitted to.
	sets    map[uint32]string
	entries []*perdurev1.JournalEntry
}

// walk goes through the program. The commit it leaves has no events if there is nothing to do, which
// cannot be while the task is held.
func (b *book) walk(eid string, entries []*perdurev1.JournalEntry, ran map[uint32]uint32, stop func() bool) (*run, error) {
	r := &run{b: b, eid: id.PromiseID(eid), ran: ran, stop: stop, entries: entries, c: &perdurev1.Commit{}, children: map[int]uint32{}, outcomes: map[uint32]string{}, sets: map[uint32]string{}}
	var all []journal.Entry
	for _, w := range entries {
		ev, err := eventFromEntry(w)
		if err != nil {
			return nil, err
		}
		all = append(all, journal.Entry{Seq: w.Seq, Time: w.TimeMs, Event: ev})
	}
	var err error
	if r.replay, err = journal.NewReplay(r.eid, all, journal.WithRetryBound(state.RetryBound)); err != nil {
		return nil, err
	}
	started, _ := r.replay.Started()
	n, err := b.programOf(eid, started.Input)
	if err != nil {
		return nil, fmt.Errorf("%s has the input %q: %w", eid, started.Input, err)
	}
	r.program = b.programs[n]
	r.known = r.replay.State().NextChild()
	r.c.NextChild = r.known
	r.walk()
	return r, nil
}

// eventFromEntry is EventFromWire for all events, as a worker's library has it.
func eventFromEntry(w *perdurev1.JournalEntry) (journal.Event, error) {
	switch k := w.Event.Kind.(type) {
	case *perdurev1.Event_ExecutionStarted:
		e := k.ExecutionStarted
		return journal.ExecutionStarted{ComponentDigest: e.ComponentDigest, Input: e.Input, Parent: id.PromiseID(e.ParentId), IdempotencyKey: e.IdempotencyKey}, nil
	case *perdurev1.Event_CancelRequested:
		return journal.CancelRequested{Reason: k.CancelRequested.Reason}, nil
	case *perdurev1.Event_TimerFired:
		return journal.TimerFired{Promise: id.PromiseID(k.TimerFired.PromiseId)}, nil
	case *perdurev1.Event_SignalDelivered:
		payload, err := wire.DecodeOutcome(k.SignalDelivered.Payload)
		if err != nil {
			return nil, err
		}
		return journal.SignalDelivered{Name: k.SignalDelivered.Name, Payload: payload, DeliveryID: k.SignalDelivered.DeliveryId}, nil
	case *perdurev1.Event_SignalReceived:
		e := k.SignalReceived
		payload, err := wire.DecodeOutcome(e.Payload)
		if err != nil {
			return nil, err
		}
		return journal.SignalReceived{Promise: id.PromiseID(e.PromiseId), Name: e.Name, Payload: payload, DeliveryID: e.DeliveryId}, nil
	case *perdurev1.Event_ExecutionResumed:
		return journal.ExecutionResumed{}, nil
	}
	return wire.DecodeEvent(w.Event)
}

func (r *run) add(ev *perdurev1.Event) { r.c.Events = append(r.c.Events, ev) }

// take takes the next child id; recorded is what stands there, if anything does.
func (r *run) take() (n uint32, p string, recorded journal.Recorded, known bool) {
	n = r.next
	r.next++
	child := r.eid.Child(n)
	recorded, known = r.replay.Lookup(child)
	return n, string(child), recorded, known
}

func (r *run) walk() {
	if r.replay.State().Status() == journal.StatusCancelling {
		r.acknowledge()
		return
	}
	for i, op := range r.program.ops {
		if r.operation(i, op); r.done || r.cut {
			return
		}
		if len(r.c.Events) > 0 && r.stop() {
			r.cut = true
			return
		}
	}
	if r.program.then != 0 {
		r.continueAsNew()
		return
	}
	r.done = true
	if r.program.says != "" {
		r.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{
			Error: &perdurev1.Failure{Type: r.program.says, Message: r.program.signal, NonRetryable: true}}}})
		return
	}
	if r.program.fails {
		r.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{
			Error: &perdurev1.Failure{Type: "app", Message: strings.TrimPrefix(r.acc.outcome(r.program), "!")}}}})
		return
	}
	r.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(r.acc.outcome(r.program))}}})
}

// acknowledge ends an execution that was asked to cancel, after the results of what was under way.
func (r *run) acknowledge() {
	for n := range r.known {
		rec, _ := r.replay.Lookup(r.eid.Child(n))
		if rec.Invoke == journal.InvokeStep && rec.Open > 0 && r.ran[n] == rec.Open && !r.stop() {
			r.add(completed(string(r.eid.Child(n)), rec.Open, value("late")))
		}
	}
	r.done = true
	r.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: "acknowledged"}}})
}

// arrived returns the next signal of a name if the worker receives it without a wait: the first of a commit, and those of one
// name only.
func (r *run) arrived(name string) (delivery uint64, payload string, ok bool) {
	if name != "a" || slices.ContainsFunc(r.c.Events, func(e *perdurev1.Event) bool { return e.GetSignalReceived() != nil }) {
		return 0, "", false
	}
	delivery, seq, ok := r.replay.State().NextReceipt(name)
	if !ok {
		return 0, "", false
	}
	return delivery, string(r.entries[seq].Event.GetSignalDelivered().GetPayload().GetValue()), true
}

func (r *run) operation(i int, op simOp) {
	switch op.kind {
	case simStep, simIntent:
		r.step(op)
	case simCall, simGo:
		r.child(i, op)
	case simTimer, simSleep:
		n, p, rec, known := r.take()
		if !known {
			r.add(&perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: p, DurationMs: op.timeout}}})
		}
		r.handles = append(r.handles, n)
		if op.kind == simSleep && !rec.Resolved {
			r.wait(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n)
		}
		r.acc.op(op)
	case simAll, simAny:
		resolved := 0
		for _, n := range r.handles {
			if rec, ok := r.replay.Lookup(r.eid.Child(n)); ok && rec.Resolved {
				resolved++
			}
		}
		if op.kind == simAll && resolved < len(r.handles) {
			r.wait(perdurev1.AwaitKind_AWAIT_KIND_ALL, r.handles...)
		}
		if op.kind == simAny && resolved == 0 {
			r.wait(perdurev1.AwaitKind_AWAIT_KIND_ANY, r.handles...)
		}
		r.acc.op(op)
	case simSet:
		r.joinSet(op)
	case simWait:
		_, p, rec, known := r.take()
		if !rec.Resolved {
			if known {
				r.done = true // it cannot be: see settle
				return
			}
			if delivery, payload, arrived := r.arrived(op.name); arrived {
				r.add(receiving(p, op.name, payload, delivery))
				r.acc.add("signal", "")
				return
			}
			r.add(awaiting(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, op.name, p))
			r.c.WaitTimeoutMs, r.done = op.timeout, true
			return
		}
		result := ""
		if o, _ := recovery.DecodeOutcome(rec.Result); o.Failure != nil {
			result = o.Failure.Type
		}
		r.acc.add("signal", result)
	case simSend, simSpawn:
		r.send(op)
	case simAsk, simTell:
		r.askEntity(op)
	case simSection:
		r.section(op)
	case simFuture:
		r.future(op)
	case simRandom:
		if _, p, _, known := r.take(); !known {
			r.add(&perdurev1.Event{Kind: &perdurev1.Event_RandomGenerated{RandomGenerated: &perdurev1.RandomGenerated{PromiseId: p, Value: []byte(op.name)}}})
		}
		r.acc.op(op)
	case simTime:
		if _, p, _, known := r.take(); !known {
			r.add(&perdurev1.Event{Kind: &perdurev1.Event_TimeRecorded{TimeRecorded: &perdurev1.TimeRecorded{PromiseId: p, TimeMs: 5}}})
		}
		r.acc.op(op)
	}
}

// step runs a local step as far as it goes: to its result, or to where the worker stops to commit.
func (r *run) step(op simOp) {
	n, p, rec, known := r.take()
	if rec.Resolved {
		result := textOf(rec.Result)
		if strings.HasPrefix(result, "!") {
			result = "failed"
		}
		r.acc.add(op.name, result)
		return
	}
	open, retries := rec.Open, rec.Retries
	if !known {
		r.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_STEP, op.name, "", fmt.Sprintf("attempts=%d", op.attempts)))
		r.add(invokeStarted(p, 1))
		open = 1
		r.ran[n] = 1
		if op.kind == simIntent || r.stop() {
			r.cut = true
			return
		}
	} else if open == 0 {
		open = retries + 1
		r.add(invokeStarted(p, open))
		r.ran[n] = open
	}
	for {
		fails, why := int(open) <= op.fails, "app"
		if r.ran[n] != open {
			fails, why = true, "lost" // by the worker that had it before
		}
		if !fails {
			r.add(completed(p, open, value(op.name)))
			r.acc.add(op.name, op.name)
			return
		}
		if int(open) >= op.attempts {
			r.add(completed(p, open, failure(why+":no")))
			r.acc.add(op.name, "failed")
			return
		}
		r.add(&perdurev1.Event{Kind: &perdurev1.Event_InvokeRetrying{InvokeRetrying: &perdurev1.InvokeRetrying{
			PromiseId: p, FailedAttempt: open, Error: failed(why + ":no"), RetryAtMs: 1}}})
		if r.stop() {
			r.cut = true
			return
		}
		open++
		r.add(invokeStarted(p, open))
		r.ran[n] = open
	}
}

func (r *run) child(i int, op simOp) {
	n, p, rec, known := r.take()
	if !known {
		r.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, "f"+strconv.Itoa(op.program%2), strconv.Itoa(op.program), fmt.Sprintf("attempts=%d", op.attempts)))
		r.c.Children = append(r.c.Children, &perdurev1.ChildOptions{PromiseId: p, Spread: op.spread, TimeoutMs: op.timeout,
			Retry: &perdurev1.ChildRetry{InitialMs: 100, JitterPercent: 50}, ClosePolicy: op.policy, DelayMs: op.delay})
	}
	r.handles, r.children[i] = append(r.handles, n), n
	if rec.Resolved {
		r.outcomes[n] = textOf(rec.Result)
	}
	if op.kind == simGo {
		return
	}
	if !rec.Resolved {
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n)
		return
	}
	r.acc.add(op.name, r.outcomes[n])
}

// joinSet takes the results of all child handles, each once, in the order they come.
func (r *run) joinSet(op simOp) {
	_, set, rec, known := r.take()
	var members []uint32
	for _, n := range r.children {
		if other, ok := r.sets[n]; !ok || other == set {
			r.sets[n] = set
			members = append(members, n)
		}
	}
	slices.Sort(members)
	if !known {
		r.add(&perdurev1.Event{Kind: &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: set}}})
	}
	var open []uint32
	for _, n := range members {
		p := string(r.eid.Child(n))
		if !slices.Contains(rec.Submitted, id.PromiseID(p)) {
			r.add(&perdurev1.Event{Kind: &perdurev1.Event_JoinSetSubmitted{JoinSetSubmitted: &perdurev1.JoinSetSubmitted{JoinSetId: set, PromiseId: p}}})
		}
		if !slices.Contains(rec.Consumed, id.PromiseID(p)) {
			open = append(open, n)
		}
	}
	var left []uint32
	for _, n := range open {
		c, _ := r.replay.Lookup(r.eid.Child(n))
		if !c.Resolved {
			left = append(left, n)
			continue
		}
		r.add(&perdurev1.Event{Kind: &perdurev1.Event_JoinSetAwaited{JoinSetAwaited: &perdurev1.JoinSetAwaited{
			JoinSetId: set, PromiseId: string(r.eid.Child(n)), Result: wire.EncodeOutcome(c.Result)}}})
	}
	switch {
	case len(left) > 0 && len(members)%2 == 0:
		wait := awaiting(perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET, "", string(r.eid.Child(left[0])))
		wait.GetExecutionAwaiting().JoinSetId = set
		r.add(wait)
		r.done = true
		return
	case len(left) > 0:
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_ANY, left...)
		return
	}
	results := map[int]string{}
	for i, n := range r.children {
		results[i] = r.outcomes[n]
	}
	r.acc.addAll(op.name, results)
}

func (r *run) send(op simOp) {
	n, p, rec, known := r.take()
	if !known {
		r.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, op.name, "", ""))
		s := &perdurev1.Send{PromiseId: p}
		if op.kind == simSend {
			payload := fmt.Sprintf("%s#%d", r.eid, n)
			if r.b.sentTo == nil {
				r.b.sentTo = map[string]string{}
			}
			r.b.sentTo[payload] = op.target
			s.What = &perdurev1.Send_Signal{Signal: &perdurev1.SignalSend{Id: op.target, Name: op.name, Payload: []byte(payload)}}
		} else {
			s.What = &perdurev1.Send_Start{Start: &perdurev1.StartSend{Id: op.target, Function: "f" + strconv.Itoa(op.program%2), Input: []byte(strconv.Itoa(op.program))}}
		}
		r.c.Sends = append(r.c.Sends, s)
	}
	if op.awaited && !rec.Resolved {
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n)
	}
	r.acc.op(op)
}

func (r *run) wait(kind perdurev1.AwaitKind, on ...uint32) {
	list := slices.Compact(slices.Sorted(slices.Values(on)))
	var ids []string
	for _, n := range list {
		ids = append(ids, string(r.eid.Child(n)))
	}
	r.add(awaiting(kind, "", ids...))
	r.done = true
}
