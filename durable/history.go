package durable

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// opKind is the kind of an operation, which takes a child number.
type opKind uint8

const (
	opStep opKind = iota + 1
	opChild
	opSend
	opRandom
	opTime
	opTimer
	opSignal
	opJoinSet
	opSignalFuture
	opHTTP
	opForeign // an invocation of a kind that functions do not make
)

// describe names an operation as a mismatch reports it.
func (k opKind) describe(name string) string {
	q := strconv.Quote(name)
	switch k {
	case opStep:
		return "step " + q
	case opChild:
		return "child " + q
	case opSend:
		return "signal to another execution " + q
	case opRandom:
		return "random number"
	case opTime:
		return "time"
	case opTimer:
		return "timer"
	case opSignal:
		return "signal wait " + q
	case opJoinSet:
		return "join set"
	case opHTTP:
		return "request " + q
	case opSignalFuture:
		return "future of signal " + q
	}
	return "invocation " + q
}

// record is the journal's content about one child number. It is small, since a worker holds one for each
// operation of an execution.
type record struct {
	n    uint32 // the child number
	kind opKind
	// open says that an invocation's attempt has started and not ended; attempt is the last started.
	open bool
	// done says that the result is known. doneSeq is its sequence number: results came in the order of
	// doneSeq, the same at every replay. It is meaningless for entries that this worker wrote itself (its own
	// steps), which race with nothing.
	done    bool
	attempt uint32
	doneSeq uint64
	// outcome is the result; of a random number, the bytes.
	outcome *perdurev1.Outcome
	name    string
	// policy and retryAt are of invocations.
	policy  string
	retryAt int64
	// since is when an invocation was recorded, in unix milliseconds; 0 if this worker recorded it.
	since  int64
	timeMs int64 // of a time
	set    *memberRecord
}

// memberRecord is a join set's part of its record: its members, and those whose results the function has
// taken, in order.
type memberRecord struct{ submitted, consumed []uint32 }

// history is what a worker knows of an execution's journal: the entries that it was sent, folded by child
// number, and its own commits. A replayed function gets its results from it. The server's guard has checked
// the entries, so it checks none of the journal's rules, and it keeps only what functions ask for.
// journal.Replay is the checked reading of a whole stored journal, for audits: it refuses what breaks a rule,
// and keeps every field. A history belongs to one goroutine.
type history struct {
	id      id.PromiseID
	started bool
	input   []byte
	ops     []*record
	// spent is the record of each operation whose result the function has and cannot ask for again: see forget.
	spent record
	// forgotten is the sum of the fingerprints of spent operations.
	forgotten uint64
	// settled are the numbers of the operations whose results came after they began, in the order of the journal.
	settled []uint32
	// targets are the operations that cancels without a result are about, by the ids of the cancels.
	targets map[string]string
	// receipts counts the signals of the execution, by name.
	receipts []receipt
	// secrets are those of the promises that the function has made, by their ids.
	secrets map[string][]byte
	// firstTexts and texts are the names and policies of operations, each once. Most functions need no map.
	firstTexts [4]string
	texts      map[string]string
	// next is the sequence number of the first entry not seen.
	next uint64
	// cancelled says that CancelRequested was seen; reason is its reason.
	cancelled bool
	reason    string
	ended     bool
	// size is the encoded size of its events.
	size int
}

// ingest folds entries that came from the server. Those below next were seen before and are skipped.
func (r *history) ingest(entries []*perdurev1.JournalEntry) error {
	for _, e := range entries {
		if e.GetSeq() < r.next {
			continue
		}
		if err := r.add(e.GetSeq(), e.GetEvent()); err != nil {
			return fmt.Errorf("durable: journal of %s, entry %d: %w", r.id, e.GetSeq(), err)
		}
		r.next = e.GetSeq() + 1
		if e.GetEvent().GetInvokeScheduled() != nil {
			r.ops[len(r.ops)-1].since = e.GetTimeMs()
		}
	}
	return nil
}

// recorded are the events of a commit that the journal has when the task is still held afterwards. A wait
// that was already satisfied is not among them: because of it the task is still held. See absorb for one that was
// satisfied as soon as it was recorded.
func recorded(own []*perdurev1.Event) []*perdurev1.Event {
	if n := len(own); n > 0 && own[n-1].GetExecutionAwaiting() != nil {
		return own[:n-1]
	}
	return own
}

// lacks reports whether a reply omits the entries that others wrote, because one message cannot carry them.
// For a cancelling execution their number is unknown.
func (r *history) lacks(own []*perdurev1.Event, reply *perdurev1.CommitReply) bool {
	missing := int(reply.GetNextSeq()) - int(r.next)
	if len(reply.GetEntries()) > 0 || missing <= 0 {
		return false
	}
	return missing > len(recorded(own)) || reply.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING
}

// absorb folds the reply to a commit after which the task is still held. own are the commit's events. The
// reply has the entries that others wrote, in between and because of them; the numbers missing in it are this
// worker's own entries. A reply that was repeated has everything. applied is false when own was not recorded
// because the execution is cancelling.
func (r *history) absorb(own []*perdurev1.Event, reply *perdurev1.CommitReply) (applied bool, err error) {
	var entries []*perdurev1.JournalEntry
	for _, e := range reply.GetEntries() {
		if e.GetSeq() >= r.next {
			entries = append(entries, e)
		}
	}
	missing := int(reply.GetNextSeq()-r.next) - len(entries)
	cancelling := reply.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING
	if cancelling || missing != len(own) {
		own = recorded(own) // otherwise what a wait at their end is for was due, and not settled yet
	}
	switch {
	case !cancelling:
		applied = true
	case missing == 0:
		applied = len(own) > 0 && slices.ContainsFunc(entries, func(e *perdurev1.JournalEntry) bool { return sameEvent(e.GetEvent(), own[0]) })
	case missing == len(own):
		applied = true
	default: // only results of attempts that had begun were recorded
		own = slices.DeleteFunc(slices.Clone(own), func(e *perdurev1.Event) bool { return e.GetInvokeCompleted() == nil })
	}
	if missing != 0 && missing != len(own) {
		return false, fmt.Errorf("durable: %s: a commit of %d events was answered as if it had recorded %d", r.id, len(own), missing)
	}
	for r.next < reply.GetNextSeq() {
		var ev *perdurev1.Event
		mine := false
		switch {
		case len(entries) > 0 && entries[0].GetSeq() == r.next:
			ev, entries = entries[0].GetEvent(), entries[1:]
		case missing > 0:
			missing--
			mine, ev, own = true, own[0], own[1:]
		default:
			return false, fmt.Errorf("durable: %s: the reply to a commit lacks entry %d", r.id, r.next)
		}
		if err := r.add(r.next, ev); err != nil {
			return false, fmt.Errorf("durable: journal of %s, entry %d: %w", r.id, r.next, err)
		}
		if mine {
			r.forgetValue(ev)
		}
		r.next++
	}
	if n := len(r.ops); int(reply.GetNextChild()) != n {
		return false, fmt.Errorf("durable: %s has taken %d child ids, the server counts %d", r.id, n, reply.GetNextChild())
	}
	return applied, nil
}

// sameEvent compares an event as it was recorded with one as it was sent.
func sameEvent(recorded, sent *perdurev1.Event) bool {
	if timer := recorded.GetTimerScheduled(); timer != nil {
		return sent.GetTimerScheduled().GetPromiseId() == timer.GetPromiseId() // the server has added when it fires
	}
	return proto.Equal(recorded, sent)
}

// add folds one event. It checks no rule of the journal; it refuses an event that it cannot assign to an operation.
func (r *history) add(seq uint64, ev *perdurev1.Event) error {
	r.size += proto.Size(ev)
	switch e := ev.GetKind().(type) {
	case *perdurev1.Event_ExecutionStarted:
		r.started, r.input = true, e.ExecutionStarted.GetInput()
	case *perdurev1.Event_CancelRequested:
		r.cancelled, r.reason = true, e.CancelRequested.GetReason()
	case *perdurev1.Event_ExecutionCompleted, *perdurev1.Event_ExecutionFailed, *perdurev1.Event_ExecutionCancelled:
		r.ended = true

	case *perdurev1.Event_InvokeScheduled:
		s := e.InvokeScheduled
		rec := &record{kind: opForeign, name: r.text(s.GetFunctionName()), policy: r.text(s.GetRetryPolicy())}
		if s.GetFunctionName() == nameCancel && s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SEND {
			r.cancels(s)
		}
		if s.GetFunctionName() == namePromise && s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SEND && len(s.GetInput()) == id.PromiseSecretBytes {
			if r.secrets == nil {
				r.secrets = map[string][]byte{}
			}
			r.secrets[s.GetPromiseId()] = s.GetInput()
		}
		switch s.GetKind() {
		case perdurev1.InvokeKind_INVOKE_KIND_STEP:
			rec.kind = opStep
		case perdurev1.InvokeKind_INVOKE_KIND_HTTP:
			rec.kind = opHTTP
		case perdurev1.InvokeKind_INVOKE_KIND_FUNCTION:
			rec.kind = opChild
		case perdurev1.InvokeKind_INVOKE_KIND_SEND:
			rec.kind = opSend
		case perdurev1.InvokeKind_INVOKE_KIND_SIGNAL:
			rec.kind = opSignalFuture
		}
		return r.take(s.GetPromiseId(), rec)
	case *perdurev1.Event_InvokeStarted:
		rec, err := r.find(e.InvokeStarted.GetPromiseId())
		if err != nil {
			return err
		}
		rec.open, rec.attempt = true, e.InvokeStarted.GetAttempt()
	case *perdurev1.Event_InvokeRetrying:
		rec, err := r.find(e.InvokeRetrying.GetPromiseId())
		if err != nil {
			return err
		}
		rec.open, rec.retryAt = false, e.InvokeRetrying.GetRetryAtMs()
	case *perdurev1.Event_InvokeCompleted:
		rec, err := r.find(e.InvokeCompleted.GetPromiseId())
		if err != nil {
			return err
		}
		rec.open = false
		r.resolve(rec, seq, e.InvokeCompleted.GetResult())
		return r.cancelDone(seq, e.InvokeCompleted)

	case *perdurev1.Event_RandomGenerated:
		return r.take(e.RandomGenerated.GetPromiseId(), &record{kind: opRandom, done: true,
			outcome: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: e.RandomGenerated.GetValue()}}})
	case *perdurev1.Event_TimeRecorded:
		return r.take(e.TimeRecorded.GetPromiseId(), &record{kind: opTime, timeMs: e.TimeRecorded.GetTimeMs(), done: true})
	case *perdurev1.Event_TimerScheduled:
		return r.take(e.TimerScheduled.GetPromiseId(), &record{kind: opTimer})
	case *perdurev1.Event_TimerFired:
		rec, err := r.find(e.TimerFired.GetPromiseId())
		if err != nil {
			return err
		}
		r.resolve(rec, seq, nil)
	case *perdurev1.Event_JoinSetCreated:
		return r.take(e.JoinSetCreated.GetJoinSetId(), &record{kind: opJoinSet, done: true, set: &memberRecord{}})

	case *perdurev1.Event_ExecutionAwaiting:
		if a := e.ExecutionAwaiting; a.GetKind() == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
			if len(a.GetWaitingOn()) != 1 {
				return fmt.Errorf("a wait for signal %q names %d ids", a.GetSignalName(), len(a.GetWaitingOn()))
			}
			return r.take(a.GetWaitingOn()[0], &record{kind: opSignal, name: a.GetSignalName()})
		}
	case *perdurev1.Event_SignalReceived:
		s := e.SignalReceived
		rec, err := r.find(s.GetPromiseId())
		if err != nil { // received without waiting: this entry takes the id
			rec = &record{kind: opSignal, name: s.GetName()}
			if err := r.take(s.GetPromiseId(), rec); err != nil {
				return err
			}
		}
		r.receive(s.GetName(), s.GetDeliveryId())
		r.resolve(rec, seq, s.GetPayload())

	case *perdurev1.Event_JoinSetSubmitted:
		return r.join(e.JoinSetSubmitted.GetJoinSetId(), e.JoinSetSubmitted.GetPromiseId(), func(set *memberRecord, n uint32) { set.submitted = append(set.submitted, n) })
	case *perdurev1.Event_JoinSetAwaited:
		return r.join(e.JoinSetAwaited.GetJoinSetId(), e.JoinSetAwaited.GetPromiseId(), func(set *memberRecord, n uint32) { set.consumed = append(set.consumed, n) })

	case *perdurev1.Event_SignalDelivered:
		of := r.receipt(e.SignalDelivered.GetName())
		of.delivered = max(of.delivered, e.SignalDelivered.GetDeliveryId())
	case *perdurev1.Event_ExecutionResumed:
		// A replayed function does not ask for it.
	default:
		return fmt.Errorf("unknown kind of event %T", ev.GetKind())
	}
	return nil
}

func (r *history) resolve(rec *record, seq uint64, o *perdurev1.Outcome) {
	if !rec.done {
		rec.done, rec.doneSeq, rec.outcome = true, seq, o
		r.settled = append(r.settled, rec.n)
	}
}

// maxTexts is how many texts are held once: a function may name each of its operations differently.
const maxTexts = 256

// text returns one copy of a text that many operations have.
func (r *history) text(s string) string {
	for i, first := range r.firstTexts {
		if first == s {
			return first
		}
		if first == "" {
			r.firstTexts[i] = s
			return s
		}
	}
	if known, ok := r.texts[s]; ok {
		return known
	}
	if r.texts == nil {
		r.texts = map[string]string{}
	}
	if len(r.texts) < maxTexts {
		r.texts[s] = s
	}
	return s
}

// take adds the record of the next child number. Numbers are dense, so any other is not readable.
func (r *history) take(promiseID string, rec *record) error {
	n, ok := id.PromiseID(promiseID).IsChildOf(r.id)
	if !ok || int(n) != len(r.ops) {
		return fmt.Errorf("id %q is not the next child, %s", promiseID, r.id.Child(uint32(len(r.ops))))
	}
	rec.n = n
	r.ops = append(r.ops, rec)
	return nil
}

func (r *history) find(promiseID string) (*record, error) {
	n, ok := id.PromiseID(promiseID).IsChildOf(r.id)
	if !ok || int(n) >= len(r.ops) {
		return nil, fmt.Errorf("id %q was not taken", promiseID)
	}
	return r.ops[n], nil
}

// op is the record of the n-th operation; nil when it is not recorded.
func (r *history) op(n uint32) *record {
	if int(n) < len(r.ops) {
		return r.ops[n]
	}
	return nil
}

// resolved reports whether the n-th operation's result is recorded.
func (r *history) resolved(n uint32) bool {
	rec := r.op(n)
	return rec != nil && rec.done
}
