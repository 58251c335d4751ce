package wire

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/journal"
)

// DecodeEntry is the inverse of EntryToWire, for checks of journals outside the server. It returns outcomes
// in their canonical encoding. The error says that this program does not know the kind of the entry's event.
func DecodeEntry(w *perdurev1.JournalEntry) (journal.Entry, error) {
	ev, err := decodeRecorded(w.GetEvent())
	return journal.Entry{Seq: w.GetSeq(), Time: w.GetTimeMs(), Event: ev}, err
}

// decodeRecorded reads an event as a journal has it: those that only the server writes too, and with what
// the server has added.
func decodeRecorded(w *perdurev1.Event) (journal.Event, error) {
	switch k := w.GetKind().(type) {
	case *perdurev1.Event_ExecutionStarted:
		e := k.ExecutionStarted
		return journal.ExecutionStarted{ComponentDigest: e.GetComponentDigest(), Input: e.GetInput(),
			Parent: id.PromiseID(e.GetParentId()), IdempotencyKey: e.GetIdempotencyKey()}, nil
	case *perdurev1.Event_CancelRequested:
		return journal.CancelRequested{Reason: k.CancelRequested.GetReason()}, nil
	case *perdurev1.Event_TimerScheduled:
		e := k.TimerScheduled
		return journal.TimerScheduled{Promise: id.PromiseID(e.GetPromiseId()), Duration: e.GetDurationMs(), FireAt: e.GetFireAtMs()}, nil
	case *perdurev1.Event_TimerFired:
		return journal.TimerFired{Promise: id.PromiseID(k.TimerFired.GetPromiseId())}, nil
	case *perdurev1.Event_SignalDelivered:
		e := k.SignalDelivered
		payload, err := DecodeOutcome(e.GetPayload())
		if err != nil {
			return nil, err
		}
		return journal.SignalDelivered{Name: e.GetName(), Payload: payload, DeliveryID: e.GetDeliveryId()}, nil
	case *perdurev1.Event_ExecutionResumed:
		return journal.ExecutionResumed{}, nil
	case nil:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "event has an unknown kind")
	default:
		return DecodeEvent(w)
	}
}
