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

// startDetached starts an execution that has no parent. The journal records the send as completed at the answer of the
// id's partition: in this commit if that is this partition, else when a SignalDone arrives.
func (c *commit) startDetached(e journal.InvokeScheduled, msg *commandv1.Message, start *perdurev1.StartSend) error {
	t, ex := c.t, c.ex
	if start.DelayMs < 0 || start.DelayMs >= state.Never-t.now {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "start of %q after %d ms", start.Id, start.DelayMs).With("id", ex.h.ID)
	}
	if err := c.begun(e); err != nil {
		return err
	}
	if state.PartitionOf(ex.ns, msg.ToId, t.m.cfg.Partitions) == t.m.cfg.Partition {
		result, err := t.startFor(ex.ns, start)
		if err != nil {
			return err
		}
		return c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: result})
	}
	if _, err := c.promise(recovery.CreateRequest{
		ID: string(e.Promise), Param: []byte(msg.ToId), External: true, TimeoutAt: state.Never,
	}); err != nil {
		return err
	}
	msg.Kind = &commandv1.Message_StartCall{StartCall: &commandv1.StartCall{Start: start, PromiseId: string(e.Promise)}}
	return t.send(ex.ns, msg.ToId, msg)
}

// startFor starts an execution for a function that is not its parent, and returns what that one's journal records. The
// same start again is a success.
func (t *txn) startFor(ns string, start *perdurev1.StartSend) (result []byte, err error) {
	done := recovery.AppendOutcome(nil, recovery.Outcome{})
	conflict := func(message string) []byte { return state.EncodeFailure(state.FailureConflict, message) }
	if ex, ok := t.execution(ns, start.Id); ok {
		if refused := t.sameStart(ex, &perdurev1.StartRequest{Function: start.Function, Input: start.Input}); refused != nil {
			return conflict(refused.Message), nil //nolint:nilerr // the refusal is the answer
		}
		return done, nil
	}
	if _, taken := t.store(ns).Promise(start.Id); taken {
		return conflict(fmt.Sprintf("id %q is a promise already", start.Id)), nil
	}
	b := birth{id: start.Id, function: start.Function, digest: t.digest(ns, start.Function, ""), input: start.Input, tags: wire.DecodeTags(start.Tags), deadlineMS: t.deadline(start.TimeoutMs)}
	if start.DelayMs > 0 {
		b.startMS = t.now + start.DelayMs
		if b.deadlineMS != 0 {
			b.deadlineMS = min(b.deadlineMS+start.DelayMs, state.Never-1)
		}
	}
	_, err = t.start(ns, b)
	return done, err
}

// receiveStartCall starts an execution for a function of another partition and answers.
func (t *txn) receiveStartCall(msg *commandv1.Message, w *commandv1.StartCall) error {
	t.level = max(t.level, state.LevelFunctions)
	result, err := t.startFor(msg.Namespace, w.Start)
	if err != nil {
		return err
	}
	return t.answerSend(msg, w.PromiseId, result)
}

// answerSend completes a send of another partition.
func (t *txn) answerSend(msg *commandv1.Message, promise string, result []byte) error {
	return t.send(msg.Namespace, msg.FromId, &commandv1.Message{
		FromId: msg.ToId, ToId: promise, ToIncarnation: msg.FromIncarnation,
		Kind: &commandv1.Message_SignalDone{SignalDone: &commandv1.SignalDone{Outcome: wire.EncodeOutcome(result)}},
	})
}
