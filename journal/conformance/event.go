package conformance

import (
	"cmp"
	"errors"
	"slices"

	"perdure/id"
	"perdure/journal"
)

var errUnknown = errors.New("unknown")

// parseEvent reads one event of the protocol: a flat object whose "type" is the kind's name.
func parseEvent(text []byte) (journal.Event, error) {
	f, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	read, known := readers[f.text("type")]
	if !known {
		f.fail("type", errUnknown)
		return nil, f.problem
	}
	ev := read(f)
	if f.problem != nil {
		return nil, f.problem
	}
	return ev, nil
}

// readers is the protocol's table of events and their fields.
var readers = map[string]func(f *fields) journal.Event{
	"ExecutionStarted": func(f *fields) journal.Event {
		return journal.ExecutionStarted{ComponentDigest: f.text("component_digest"), Input: f.bytes("input"),
			Parent: f.id("parent_id"), IdempotencyKey: f.text("idempotency_key")}
	},
	"ExecutionCompleted": func(f *fields) journal.Event {
		return journal.ExecutionCompleted{Result: f.bytes("result")}
	},
	"ExecutionFailed": func(f *fields) journal.Event {
		return journal.ExecutionFailed{Error: f.bytes("error")}
	},
	"CancelRequested": func(f *fields) journal.Event {
		return journal.CancelRequested{Reason: f.text("reason")}
	},
	"ExecutionCancelled": func(f *fields) journal.Event {
		return journal.ExecutionCancelled{Reason: f.text("reason")}
	},
	"InvokeScheduled": func(f *fields) journal.Event {
		return journal.InvokeScheduled{Promise: f.id("promise_id"), Invoke: f.invokeKind("kind"),
			Function: f.text("function_name"), Input: f.bytes("input"), RetryPolicy: f.text("retry_policy")}
	},
	"InvokeStarted": func(f *fields) journal.Event {
		return journal.InvokeStarted{Promise: f.id("promise_id"), Attempt: f.attempt("attempt")}
	},
	"InvokeCompleted": func(f *fields) journal.Event {
		return journal.InvokeCompleted{Promise: f.id("promise_id"), Result: f.bytes("result"), Attempt: f.attempt("attempt")}
	},
	"InvokeRetrying": func(f *fields) journal.Event {
		return journal.InvokeRetrying{Promise: f.id("promise_id"), FailedAttempt: f.attempt("failed_attempt"),
			Error: f.bytes("error"), RetryAt: f.integer("retry_at")}
	},
	"RandomGenerated": func(f *fields) journal.Event {
		return journal.RandomGenerated{Promise: f.id("promise_id"), Value: f.bytes("value")}
	},
	"TimeRecorded": func(f *fields) journal.Event {
		return journal.TimeRecorded{Promise: f.id("promise_id"), Time: f.integer("time")}
	},
	"TimerScheduled": func(f *fields) journal.Event {
		return journal.TimerScheduled{Promise: f.id("promise_id"), Duration: f.integer("duration"), FireAt: f.integer("fire_at")}
	},
	"TimerFired": func(f *fields) journal.Event {
		return journal.TimerFired{Promise: f.id("promise_id")}
	},
	"SignalDelivered": func(f *fields) journal.Event {
		return journal.SignalDelivered{Name: f.text("signal_name"), Payload: f.bytes("payload"), DeliveryID: f.unsigned("delivery_id", 64)}
	},
	"SignalReceived": func(f *fields) journal.Event {
		return journal.SignalReceived{Promise: f.id("promise_id"), Name: f.text("signal_name"),
			Payload: f.bytes("payload"), DeliveryID: f.unsigned("delivery_id", 64)}
	},
	"ExecutionAwaiting": readAwaiting,
	"ExecutionResumed":  func(*fields) journal.Event { return journal.ExecutionResumed{} },
	"JoinSetCreated": func(f *fields) journal.Event {
		return journal.JoinSetCreated{Set: journal.JoinSetID(f.id("join_set_id"))}
	},
	"JoinSetSubmitted": func(f *fields) journal.Event {
		return journal.JoinSetSubmitted{Set: journal.JoinSetID(f.id("join_set_id")), Promise: f.id("promise_id")}
	},
	"JoinSetAwaited": func(f *fields) journal.Event {
		return journal.JoinSetAwaited{Set: journal.JoinSetID(f.id("join_set_id")), Promise: f.id("promise_id"), Result: f.bytes("result")}
	},
}

func (f *fields) attempt(name string) uint32 { return uint32(f.unsigned(name, 32)) }

func (f *fields) invokeKind(name string) journal.InvokeKind {
	text := f.text(name)
	for k := journal.InvokeKind(1); k.Valid(); k++ {
		if k.String() == text {
			return k
		}
	}
	f.fail(name, errUnknown)
	return 0
}

// readAwaiting reads a wait. The members are a set, so their order in the line has no meaning; the event
// wants them ascending. A signal wait names its promise a second time in its kind. If the set is not exactly
// that promise (CF-4), the decoded event has none or several, which the guard refuses.
func readAwaiting(f *fields) journal.Event {
	e := journal.ExecutionAwaiting{On: f.ids("waiting_on")}
	kind := f.object("kind")
	name := kind.text("type")
	for k := journal.AwaitSingle; k <= journal.AwaitSignal; k++ { // the published kinds
		if k.String() == name {
			e.Wait = k
		}
	}
	if !e.Wait.Valid() {
		f.fail("kind", errUnknown)
	}
	if e.Wait == journal.AwaitSignal {
		e.Signal = kind.text("name")
		if p := kind.id("promise_id"); len(e.On) == 1 && e.On[0] != p {
			e.On = append(e.On, p)
		}
	}
	if kind.problem != nil {
		f.fail("kind", kind.problem)
	}
	slices.SortFunc(e.On, byNumber)
	e.On = slices.Compact(e.On)
	return e
}

// byNumber orders siblings by child number; other identifiers, which no guard admits, by their text.
func byNumber(a, b id.PromiseID) int {
	first, _ := a.Last()
	second, _ := b.Last()
	return cmp.Or(cmp.Compare(first, second), cmp.Compare(a, b))
}
