package machine

import (
	"fmt"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// signal sends a signal to another execution. The journal records the send as completed at the answer of the
// target's partition: in this commit if that is this partition, else when a SignalDone arrives. The sender
// does not wait for it, unless it awaits the promise of the send.
func (c *commit) signal(e journal.InvokeScheduled, msg *commandv1.Message, sig *perdurev1.SignalSend) error {
	t, ex := c.t, c.ex
	remote := state.PartitionOf(ex.ns, msg.ToId, t.m.cfg.Partitions) != t.m.cfg.Partition
	var target *execution
	var result []byte
	if !remote {
		// The target's expirations run first. They may end or cancel the sender, when it is the target's
		// child. The rest of the commit is void then.
		target, result = t.target(ex.ns, msg.ToId, sig.Name)
		if ex.h.Status.Terminal() {
			c.state = recovery.TaskFulfilled
			return nil
		}
		if ex.h.Status == journal.StatusCancelling {
			return nil
		}
	}
	if err := c.begun(e); err != nil {
		return err
	}
	if remote {
		if _, err := c.promise(recovery.CreateRequest{
			ID: string(e.Promise), Param: []byte(msg.ToId), External: true, TimeoutAt: state.Never,
		}); err != nil {
			return err
		}
		msg.Kind = &commandv1.Message_SignalCall{SignalCall: &commandv1.SignalCall{Signal: sig, PromiseId: string(e.Promise)}}
		return t.send(ex.ns, msg.ToId, msg)
	}
	// Recorded before the delivery, which may end the sender.
	if err := c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: result}); err != nil || target == nil {
		return err
	}
	if _, err := t.deliverSignal(target, sig.Name, recovery.AppendOutcome(nil, recovery.Outcome{Data: sig.Payload})); err != nil {
		return err
	}
	if ex.h.Status.Terminal() {
		c.state = recovery.TaskFulfilled
	}
	return nil
}

// target runs the expirations of a signal's target, then returns its execution. It also returns the result
// that the sender records; the execution is nil if that is a failure.
func (t *txn) target(ns, objectID, name string) (*execution, []byte) {
	t.runExpirations(ns, objectID)
	ex, ok := t.execution(ns, objectID)
	if !ok {
		t.fx.Undelivered++
		return nil, state.EncodeFailure(state.FailureTargetNotFound, fmt.Sprintf("no execution %q in namespace %q", objectID, ns))
	}
	if !ex.h.Status.Terminal() && ex.h.Kind == state.KindGraph {
		t.expireWaits(ex, name)
	}
	if ex.h.Status.Terminal() {
		t.fx.Undelivered++
		return nil, state.EncodeFailure(state.FailureTargetFinished, fmt.Sprintf("execution %q has ended: %s", objectID, ex.h.Status))
	}
	return ex, recovery.AppendOutcome(nil, recovery.Outcome{})
}

// receiveSignalCall delivers a signal of another partition and answers it. The inbox's high-water skips a
// repeated SignalCall, and the outbox keeps the answer until the sender's partition has applied it: each
// signal is answered once, by its target's state at its arrival.
func (t *txn) receiveSignalCall(msg *commandv1.Message, w *commandv1.SignalCall) error {
	t.level = max(t.level, state.LevelAnswers)
	target, result := t.target(msg.Namespace, msg.ToId, w.Signal.GetName())
	if target != nil {
		payload := recovery.AppendOutcome(nil, recovery.Outcome{Data: w.Signal.GetPayload()})
		if _, err := t.deliverSignal(target, w.Signal.GetName(), payload); err != nil {
			return err
		}
	}
	return t.answerSend(msg, w.PromiseId, result)
}

// receiveSignalDone settles the promise of a send, and so completes the send in its sender's journal. An answer for a
// sender that has ended settles the promise alone; one for another incarnation, or a second one, changes nothing.
func (t *txn) receiveSignalDone(msg *commandv1.Message, w *commandv1.SignalDone) error {
	t.level = max(t.level, state.LevelAnswers)
	p, ok := t.store(msg.Namespace).Promise(msg.ToId)
	if !ok || p.Incarnation != msg.ToIncarnation || !state.OfSend(p) || p.State.Settled() {
		return nil
	}
	value, refused := wire.DecodeOutcome(w.Outcome)
	if refused != nil {
		return refused
	}
	to := recovery.PromiseResolved
	if w.Outcome.GetFailure() != nil {
		to = recovery.PromiseRejected
	}
	return t.settle(msg.Namespace, msg.ToId, to, value)
}

// applyRaiseLevel raises the state's feature level. It is idempotent and never lowers the level.
func applyRaiseLevel(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	level := cmd.GetRaiseLevel().Level
	if level > state.FeatureLevel {
		panic(state.Fault{Err: fmt.Errorf("the feature level is raised: %w", &state.LevelError{What: "the cluster", Level: level, Known: state.FeatureLevel})})
	}
	t.level = level
	return &commandv1.Reply{Kind: &commandv1.Reply_RaiseLevel{RaiseLevel: &commandv1.RaiseLevelReply{Level: max(level, t.m.feature, state.LevelFirst)}}}, nil
}
