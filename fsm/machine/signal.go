package machine

import (
	"fmt"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// applySignal delivers a signal from outside.
func applySignal(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetSignal(), cmd.Namespace
	ex, ok := t.execution(ns, req.Id)
	if !ok {
		return nil, wire.NotFound(ns, req.Id)
	}
	if ex.h.Status.Terminal() {
		return nil, finished(ex)
	}
	delivery, err := t.deliverSignal(ex, req.Name, recovery.AppendOutcome(nil, recovery.Outcome{Data: req.Payload}))
	if err != nil {
		return nil, ruleError(ns, err)
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Signal{Signal: &perdurev1.SignalResponse{DeliveryId: delivery}}}, nil
}

// deliverSignal buffers a signal durably, and ends the execution's wait if it waits for that name.
func (t *txn) deliverSignal(ex *execution, name string, payload []byte) (uint64, error) {
	// A wait with an expired deadline has ended: this signal is for the next wait.
	if wait := signalWait(ex); wait != "" {
		t.timeout(ex.ns, wait)
	}
	if ex.h.Kind == state.KindGraph {
		return t.signalGraph(ex, name, payload)
	}
	delivery := ex.j.Deliveries(name) + 1
	if err := t.append(ex, journal.SignalDelivered{Name: name, Payload: payload, DeliveryID: delivery}); err != nil {
		return 0, err
	}
	kind, on, waited, blocked := ex.j.Wait()
	if !blocked || kind != journal.AwaitSignal || waited != name {
		return delivery, nil
	}
	id, seq, _ := ex.j.NextReceipt(name)
	buffered := payload
	if id != delivery {
		buffered = t.payload(ex, seq)
	}
	if err := t.append(ex, journal.SignalReceived{Promise: on[0], Name: name, Payload: buffered, DeliveryID: id}); err != nil {
		return 0, err
	}
	return delivery, t.settle(ex.ns, string(on[0]), recovery.PromiseResolved, buffered)
}

// payload reads the payload of a signal from the journal entry that brought it.
func (t *txn) payload(ex *execution, seq uint64) []byte {
	key := keys.JournalEntry(ex.ns, ex.h.ID, ex.h.Incarnation, seq)
	value, ok := t.get(key)
	if !ok {
		state.PanicCorrupt("journal", key, fmt.Errorf("entry %d, which brought a signal, is missing", seq))
	}
	entry, err := journal.DecodeEntry(append([]byte(nil), value...))
	if err != nil {
		state.PanicCorrupt("journal", key, err)
	}
	delivered, ok := entry.Event.(journal.SignalDelivered)
	if !ok {
		state.PanicCorrupt("journal", key, fmt.Errorf("entry %d is a %s, and should have brought a signal", seq, entry.Event.Kind()))
	}
	return delivered.Payload
}
