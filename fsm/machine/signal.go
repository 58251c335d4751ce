package machine

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// applySignal delivers a signal from outside, and starts its target if the signal brings a start. It is
// idempotent by its stored reply.
func applySignal(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetSignal(), cmd.Namespace
	ex, ok := t.execution(ns, req.Id)
	began := false
	if start := req.GetStart(); start != nil {
		switch {
		case !ok || replaces(start.Reuse, ex):
			if refused := t.startForSignal(cmd); refused != nil {
				return nil, refused
			}
			ex, ok = t.execution(ns, req.Id)
			began = true
		case ex.h.Function != start.Function && !ex.h.Status.Terminal():
			return nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "execution %q runs function %s, not %s", req.Id, ex.h.Function, start.Function).
				With("namespace", ns).With("id", req.Id)
		}
	}
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
	return &commandv1.Reply{Kind: &commandv1.Reply_Signal{Signal: &perdurev1.SignalResponse{DeliveryId: delivery, Started: began}}}, nil
}

// startForSignal starts the execution that a signal brings with it.
func (t *txn) startForSignal(cmd *commandv1.Command) *api.Error {
	start := proto.CloneOf(cmd.GetSignal().GetStart())
	start.Id = cmd.GetSignal().Id
	_, refused := applyStart(t, &commandv1.Command{Request: cmd.Request, Namespace: cmd.Namespace, Id: cmd.Id, Kind: &commandv1.Command_Start{Start: start}})
	return refused
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
		t.signalArrived(ex)
		t.announceSignal(ex, name, payload, delivery)
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

// announceSignal has the leader tell the worker that holds the execution's task of a signal, unless its payload is large. Below
// the level of commit.received, a commit cannot have what the worker would write.
func (t *txn) announceSignal(ex *execution, name string, payload []byte, delivery uint64) {
	if t.m.feature < state.LevelFunctions || len(payload) > firstBytes {
		return
	}
	if task, ok := t.store(ex.ns).Task(ex.h.ID); ok && task.State == recovery.TaskAcquired {
		t.fx.Arrived = append(t.fx.Arrived, SignalArrival{
			Worker: task.PID, Token: wire.Token(ex.ns, task), Name: name, Payload: payload, DeliveryID: delivery})
	}
}

// received consumes a signal that the worker knows to have arrived. The journal's rules admit only the oldest one of the name
// that is not consumed yet, with its payload.
func (c *commit) received(e journal.SignalReceived) error {
	if c.t.m.feature < state.LevelFunctions {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "a commit that receives signal %q needs feature level %d, the partition is at %d",
			e.Name, state.LevelFunctions, c.t.m.feature).With("id", c.ex.h.ID)
	}
	return c.append(e)
}

// payload reads the payload of a signal from the journal entry that brought it.
func (t *txn) payload(ex *execution, seq uint64) []byte {
	key := keys.JournalEntry(ex.ns, ex.h.ID, ex.h.Incarnation, seq)
	value, ok := state.Must{From: t}.Entry(ex.ns, &ex.h, seq)
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
