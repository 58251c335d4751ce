package machine

import (
	"fmt"
	"strconv"
	"strings"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// A view is a worker's memory of its task: the token, and the journal entries that it has received.
type view struct {
	worker    string
	token     *perdurev1.TaskToken
	journal   []*perdurev1.JournalEntry
	nextChild uint32
	// request is that of the last commit.
	request []byte
}

type viewKey struct{ worker, id string }

// take grants a worker's credit to every partition and remembers what it is given, in order.
func (w *world) take(worker string, credit int, functions ...string) []*view {
	w.t.Helper()
	var got []*view
	for _, p := range w.parts {
		got = append(got, w.takeFrom(p, grant(worker, credit-len(got), functions...))...)
	}
	return got
}

func (w *world) takeFrom(p *part, o *commandv1.Grant) []*view {
	w.t.Helper()
	res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{assignCmd()}, Grants: []*commandv1.Grant{o}})
	return w.assigned(res)
}

// assigned makes a view of every task that an entry has given out.
func (w *world) assigned(res *Result) (got []*view) {
	w.t.Helper()
	for _, a := range res.Effects.Assigned {
		v := &view{worker: a.Worker, token: a.Token}
		w.read(v)
		w.views[viewKey{a.Worker, a.Token.Id}] = v
		got = append(got, v)
	}
	return got
}

// read reads the journal of a task from its start.
func (w *world) read(v *view) {
	w.t.Helper()
	v.journal = w.journal(v.token.Id)
	v.nextChild = childrenOf(v.journal)
}

// childrenOf counts the child ids that a journal has taken.
func childrenOf(entries []*perdurev1.JournalEntry) (n uint32) {
	blocked := false
	for _, e := range entries {
		switch k := e.Event.Kind.(type) {
		case *perdurev1.Event_InvokeScheduled, *perdurev1.Event_RandomGenerated, *perdurev1.Event_TimeRecorded,
			*perdurev1.Event_TimerScheduled, *perdurev1.Event_JoinSetCreated:
			n++
		case *perdurev1.Event_ExecutionAwaiting:
			blocked = true
			if k.ExecutionAwaiting.Kind == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
				n++
			}
		case *perdurev1.Event_ExecutionResumed:
			blocked = false
		case *perdurev1.Event_SignalReceived:
			if !blocked {
				n++
			}
		}
	}
	return n
}

// only takes the one task there must be.
func (w *world) only(worker string, functions ...string) *view {
	w.t.Helper()
	got := w.take(worker, 10, functions...)
	if len(got) != 1 {
		w.t.Fatalf("%d tasks for %s, must be one", len(got), worker)
	}
	return got[0]
}

// begin starts an execution and gives its task to worker w1.
func (w *world) begin(objectID, function string) *view {
	w.t.Helper()
	w.do(startCmd(w.request(), objectID, function, "in"))
	return w.only("w1", function)
}

// commitCmd makes the next commit of a view from operations as text (see ops).
func (w *world) commitCmd(v *view, text string) *commandv1.Command {
	w.t.Helper()
	c, err := ops(v.token.Id, v.nextChild, text)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	v.request = w.request()
	c.Task, c.NextChild, c.KnownSeq = v.token, v.nextChild, uint64(len(v.journal))
	return wrapCommit(v.request, c)
}

func wrapCommit(request []byte, c *perdurev1.Commit) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: c.Task.Id, Request: &perdurev1.RequestID{Id: request},
		Kind: &commandv1.Command_Commit{Commit: c}}
}

// commit commits operations that must be accepted, and lets the view learn from the answer.
func (w *world) commit(v *view, text string) *perdurev1.CommitReply {
	w.t.Helper()
	cmd := w.commitCmd(v, text)
	reply := w.do(cmd).GetCommit()
	w.learn(v, cmd.GetCommit(), reply)
	return reply
}

// learn merges a commit's answer into the worker's copy of the journal: the received entries, and its own
// events at the remaining positions. The copy must be the journal.
func (w *world) learn(v *view, c *perdurev1.Commit, reply *perdurev1.CommitReply) {
	w.t.Helper()
	if reply.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		return
	}
	v.nextChild = reply.NextChild
	if reply.Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		// A commit to a cancelling execution is recorded only in part.
		w.read(v)
		return
	}
	received := map[uint64]*perdurev1.JournalEntry{}
	for _, e := range reply.Entries {
		if _, twice := received[e.Seq]; twice {
			w.t.Fatalf("%s: the answer has entry %d twice", v.token.Id, e.Seq)
		}
		received[e.Seq] = e
	}
	own := c.Events
	for seq := uint64(len(v.journal)); seq < reply.NextSeq; seq++ {
		e, ok := received[seq]
		if !ok {
			if len(own) == 0 {
				w.t.Fatalf("%s: the worker can not know entry %d", v.token.Id, seq)
			}
			e, own = &perdurev1.JournalEntry{Seq: seq, Event: own[0]}, own[1:]
		}
		v.journal = append(v.journal, e)
	}
	if n := childrenOf(v.journal); n != reply.NextChild {
		w.t.Fatalf("%s: the worker counts %d child ids, the answer says %d", v.token.Id, n, reply.NextChild)
	}
	w.sameJournal(v)
}

// sameJournal checks that a worker's copy has the journal's course.
func (w *world) sameJournal(v *view) {
	w.t.Helper()
	stored := w.journal(v.token.Id)
	if len(stored) < len(v.journal) {
		w.t.Fatalf("%s: the worker knows %d entries, there are %d", v.token.Id, len(v.journal), len(stored))
	}
	for i, e := range v.journal {
		have, want := e.Event, stored[i].Event
		if timer := want.GetTimerScheduled(); timer != nil && have.GetTimerScheduled() != nil {
			have = &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{
				PromiseId: have.GetTimerScheduled().PromiseId, DurationMs: have.GetTimerScheduled().DurationMs, FireAtMs: timer.FireAtMs}}}
		}
		if showEvent(have) != showEvent(want) || e.Seq != uint64(i) {
			w.t.Fatalf("%s: entry %d is %q for the worker, %q in the journal", v.token.Id, i, showEvent(e.Event), showEvent(want))
		}
	}
}

// commitRefused commits operations that must be refused.
func (w *world) commitRefused(v *view, text string, reason perdurev1.Reason, rule string) {
	w.t.Helper()
	e := w.refused(w.commitCmd(v, text), reason)
	if !strings.Contains(e.Meta["rule"], rule) {
		w.t.Fatalf("%q: refused by %q (%v), must be by %q", text, e.Meta["rule"], e, rule)
	}
}

// ops reads the operations of a commit, one after the other, separated by "; ":
//
//	step NAME -> RESULT | step NAME !TYPE:MESSAGE    a local step, run already
//	intent NAME [policy=P]                           scheduled and started
//	scheduled NAME [policy=P]
//	started N#A   done N#A -> RESULT   retrying N#A !TYPE:MESSAGE [at=MS]
//	child FUNCTION [INPUT] [spread] [timeout=MS]
//	signal ID NAME PAYLOAD   spawn ID FUNCTION [INPUT]
//	ecall ENTITY OPERATION INPUT   etell ENTITY OPERATION INPUT [at=DELAY]   lock ENTITY,…   unlock
//	random BYTES   time MS   sleep MS
//	await N   any N,…   all N,…   wait NAME [timeout=MS]
//	receive NAME DELIVERY PAYLOAD                    a signal that is known to have arrived
//	cleanup MS               what Commit.cleanup_ms says
//	set   submit SET N   taken SET N -> RESULT
//	return RESULT   fail TYPE:MESSAGE   cancelled REASON
//	continue [INPUT]                                 as new
//	nothing
//
// N is a child number; ids are taken from next on.
func ops(eid string, next uint32, text string) (*perdurev1.Commit, error) {
	b := &opsBuilder{eid: id.PromiseID(eid), next: next, c: &perdurev1.Commit{}}
	for op := range strings.SplitSeq(text, ";") {
		if err := b.op(strings.TrimSpace(op)); err != nil {
			return nil, fmt.Errorf("%q: %w", op, err)
		}
	}
	return b.c, nil
}

type opsBuilder struct {
	eid  id.PromiseID
	next uint32
	c    *perdurev1.Commit
}

func (b *opsBuilder) add(ev *perdurev1.Event) { b.c.Events = append(b.c.Events, ev) }

func (b *opsBuilder) child(n string) string {
	number, err := strconv.ParseUint(n, 10, 32)
	if err != nil {
		return n // any other id, to be refused
	}
	return string(b.eid.Child(uint32(number)))
}

func (b *opsBuilder) children(list string) (out []string) {
	for n := range strings.SplitSeq(list, ",") {
		if n != "" {
			out = append(out, b.child(n))
		}
	}
	return out
}

func (b *opsBuilder) take() string {
	b.next++
	return string(b.eid.Child(b.next - 1))
}

func receiving(promise, name, payload string, delivery uint64) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_SignalReceived{SignalReceived: &perdurev1.SignalReceived{
		PromiseId: promise, Name: name, Payload: value(payload), DeliveryId: delivery}}}
}

func value(s string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(s)}}
}

func failed(s string) *perdurev1.Failure {
	kind, message, _ := strings.Cut(s, ":")
	return &perdurev1.Failure{Type: kind, Message: message}
}

func failure(s string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: failed(s)}}
}

func (b *opsBuilder) op(text string) error {
	var words []string
	options := map[string]string{}
	result := value("")
	text, after, arrow := strings.Cut(text, " -> ")
	for _, word := range strings.Fields(text) {
		key, val, isOption := strings.Cut(word, "=")
		switch {
		case word == "spread":
			options[word] = word
		case isOption && (key == "policy" || key == "timeout" || key == "at" || key == "attempts" || key == "pause" ||
			key == "id" || key == "delay" || key == "close" || key == "secret"):
			options[key] = val
		case strings.HasPrefix(word, "!"):
			result = failure(word[1:])
		default:
			words = append(words, word)
		}
	}
	if arrow {
		result = value(after)
	}
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	num := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	name, attemptText, _ := strings.Cut(arg(1), "#")
	attempt := uint32(num(attemptText))
	switch arg(0) {
	case "nothing":
	case "step":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_STEP, arg(1), "", options["policy"]))
		b.add(invokeStarted(p, 1))
		b.add(completed(p, 1, result))
	case "intent":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_STEP, arg(1), "", options["policy"]))
		b.add(invokeStarted(p, 1))
	case "scheduled":
		b.add(scheduled(b.take(), perdurev1.InvokeKind_INVOKE_KIND_STEP, arg(1), "", options["policy"]))
	case "started":
		b.add(invokeStarted(b.child(name), attempt))
	case "done":
		b.add(completed(b.child(name), attempt, result))
	case "retrying":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_InvokeRetrying{InvokeRetrying: &perdurev1.InvokeRetrying{
			PromiseId: b.child(name), FailedAttempt: attempt, Error: result.GetFailure(), RetryAtMs: num(options["at"])}}})
	case "child":
		p := b.take()
		child := &perdurev1.ChildOptions{PromiseId: p, Spread: options["spread"] != "", TimeoutMs: num(options["timeout"]),
			Id: options["id"], DelayMs: num(options["delay"]), ClosePolicy: perdurev1.ClosePolicy(num(options["close"]))}
		attempts := "1"
		if options["attempts"] != "" {
			attempts, child.Retry = options["attempts"], &perdurev1.ChildRetry{InitialMs: num(options["pause"])}
		}
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, arg(1), arg(2), "attempts="+attempts))
		b.c.Children = append(b.c.Children, child)
	case "kind":
		b.add(scheduled(b.take(), perdurev1.InvokeKind(num(arg(1))), "f", "", ""))
	case "signal":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, "signal", arg(3), ""))
		b.c.Sends = append(b.c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_Signal{
			Signal: &perdurev1.SignalSend{Id: arg(1), Name: arg(2), Payload: []byte(arg(3))}}})
	case "promise":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, "promise", options["secret"], ""))
		b.c.Sends = append(b.c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_NewPromise{
			NewPromise: &perdurev1.NewPromise{TimeoutMs: num(options["timeout"])}}})
	case "value":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, "await promise", arg(1), ""))
		b.c.Sends = append(b.c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_AwaitedPromise{
			AwaitedPromise: &perdurev1.AwaitedPromise{Id: arg(1)}}})
	case "future":
		b.add(scheduled(b.take(), perdurev1.InvokeKind_INVOKE_KIND_SIGNAL, arg(1), "", "attempts=1"))
	case "cancel":
		p, target := b.take(), b.child(arg(1))
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, "cancel", target, "attempts=1"))
		b.c.Sends = append(b.c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_Cancel{Cancel: &perdurev1.CancelOperation{OperationId: target}}})
	case "spawn":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, "start", arg(3), ""))
		b.c.Sends = append(b.c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_Start{
			Start: &perdurev1.StartSend{Id: arg(1), Function: arg(2), Input: []byte(arg(3)), TimeoutMs: num(options["timeout"]), DelayMs: num(options["delay"])}}})
	case "ecall", "etell", "lock", "unlock":
		p := b.take()
		b.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, arg(0), arg(1), ""))
		s := &perdurev1.Send{PromiseId: p}
		switch arg(0) {
		case "ecall":
			s.What = &perdurev1.Send_EntityCall{EntityCall: &perdurev1.EntityCall{Id: arg(1), Operation: arg(2), Input: []byte(arg(3))}}
		case "etell":
			s.What = &perdurev1.Send_EntitySignal{EntitySignal: &perdurev1.EntitySignal{Id: arg(1), Operation: arg(2), Input: []byte(arg(3)), DelayMs: num(options["at"])}}
		case "lock":
			s.What = &perdurev1.Send_EntityLocks{EntityLocks: &perdurev1.EntityLocks{Ids: strings.Split(arg(1), ",")}}
		case "unlock":
			s.What = &perdurev1.Send_EntityUnlock{EntityUnlock: &perdurev1.EntityUnlock{}}
		}
		b.c.Sends = append(b.c.Sends, s)
	case "random":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_RandomGenerated{RandomGenerated: &perdurev1.RandomGenerated{PromiseId: b.take(), Value: []byte(arg(1))}}})
	case "time":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_TimeRecorded{TimeRecorded: &perdurev1.TimeRecorded{PromiseId: b.take(), TimeMs: num(arg(1))}}})
	case "sleep":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: b.take(), DurationMs: num(arg(1))}}})
	case "await":
		b.add(awaiting(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "", b.children(arg(1))...))
	case "any":
		b.add(awaiting(perdurev1.AwaitKind_AWAIT_KIND_ANY, "", b.children(arg(1))...))
	case "all":
		b.add(awaiting(perdurev1.AwaitKind_AWAIT_KIND_ALL, "", b.children(arg(1))...))
	case "next":
		wait := awaiting(perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET, "", b.child(arg(2)))
		wait.GetExecutionAwaiting().JoinSetId = b.child(arg(1))
		b.add(wait)
	case "receive":
		b.add(receiving(b.take(), arg(1), arg(3), uint64(num(arg(2)))))
	case "wait":
		b.add(awaiting(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, arg(1), b.take()))
		b.c.WaitTimeoutMs = num(options["timeout"])
	case "cleanup":
		b.c.CleanupMs = num(arg(1))
	case "set":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: b.take()}}})
	case "submit":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_JoinSetSubmitted{JoinSetSubmitted: &perdurev1.JoinSetSubmitted{
			JoinSetId: b.child(arg(1)), PromiseId: b.child(arg(2))}}})
	case "taken":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_JoinSetAwaited{JoinSetAwaited: &perdurev1.JoinSetAwaited{
			JoinSetId: b.child(arg(1)), PromiseId: b.child(arg(2)), Result: result}}})
	case "return":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(arg(1))}}})
	case "fail":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: failed(arg(1))}}})
	case "cancelled":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: arg(1)}}})
	case "continue":
		b.c.ContinueAsNew = &perdurev1.ContinueAsNew{Input: []byte(arg(1))}
	case "resumed":
		b.add(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionResumed{ExecutionResumed: &perdurev1.ExecutionResumed{}}})
	default:
		return fmt.Errorf("no operation %q", arg(0))
	}
	return nil
}

func scheduled(promise string, kind perdurev1.InvokeKind, name, input, policy string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: promise, Kind: kind, FunctionName: name, Input: []byte(input), RetryPolicy: policy}}}
}

func invokeStarted(promise string, attempt uint32) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: attempt}}}
}

func completed(promise string, attempt uint32, result *perdurev1.Outcome) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{
		PromiseId: promise, Attempt: attempt, Result: result}}}
}

func awaiting(kind perdurev1.AwaitKind, signal string, on ...string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
		Kind: kind, SignalName: signal, WaitingOn: on}}}
}
