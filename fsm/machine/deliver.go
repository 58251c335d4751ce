package machine

import (
	"fmt"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// applyDeliver applies messages of another partition's outbox together with the inbox's high-water, so that
// each is applied exactly once and in order, despite repetitions and crashes. It leaves out a message of a cut that the
// partition has not entered, and those after it: the leader has the partition enter the cut first.
func applyDeliver(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req := cmd.GetDeliver()
	key := keys.Number(keys.Inbox, req.Source)
	ch := t.channel(key)
	switch {
	case req.Source >= t.m.cfg.Partitions || req.Source == t.m.cfg.Partition:
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "messages of partition %d, this is partition %d of %d",
			req.Source, t.m.cfg.Partition, t.m.cfg.Partitions)
	case req.Epoch < ch.Epoch:
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
			"messages of epoch %d of the channel from partition %d, which is at epoch %d", req.Epoch, req.Source, ch.Epoch)
	case req.Epoch > ch.Epoch:
		ch = state.Channel{Epoch: req.Epoch}
	}
	begun := true
	for _, msg := range req.Messages {
		if msg.Seq <= ch.Last {
			continue
		}
		if msg.Seq != ch.Last+1 {
			return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
				"message %d from partition %d follows %d: one is missing", msg.Seq, req.Source, ch.Last)
		}
		if !t.admits(msg.Cut) {
			begun = ch.Last > 0 // the sender's state of this cut may know nothing of the epoch
			break
		}
		if t.waitsForEntry(msg) {
			break
		}
		if err := t.receive(msg); err != nil {
			return nil, ruleError(msg.Namespace, err)
		}
		ch.Last = msg.Seq
	}
	if begun {
		t.put(key, ch.Encode())
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Deliver{Deliver: &commandv1.DeliverReply{Through: ch.Last, Full: t.fullEntities(req.Asked), Cut: uint64(t.m.cut)}}}, nil
}

// waitsForEntry reports whether a message can be applied only in a later entry: it starts a child again that
// has begun in this one, and two incarnations cannot have the same number, or whose former result has not reached all
// that wait for it. The sender repeats the message and those after it.
func (t *txn) waitsForEntry(msg *commandv1.Message) bool {
	w := msg.GetStartChild()
	if w == nil || !w.Again {
		return false
	}
	old, ok := t.execution(msg.Namespace, msg.ToId)
	if !ok || old.h.ParentPromise != w.PromiseId || old.h.ParentIncarnation == msg.FromIncarnation {
		return false
	}
	return old.h.Incarnation == t.index || t.notifying(msg.Namespace, msg.ToId) && !t.released(msg.Namespace, msg.ToId, nil)
}

// receive applies one message. It answers or drops a message that can no longer take effect and never refuses
// one: a refused message would block all that follow in its channel.
func (t *txn) receive(msg *commandv1.Message) error {
	switch w := msg.Kind.(type) {
	case *commandv1.Message_StartChild:
		return t.receiveStartChild(msg, w.StartChild)
	case *commandv1.Message_ChildDone:
		return t.receiveChildDone(msg, w.ChildDone)
	case *commandv1.Message_ChildStarted:
		t.receiveChildStarted(msg)
		return nil
	case *commandv1.Message_ChildRetrying:
		return t.receiveChildRetrying(msg, w.ChildRetrying)
	case *commandv1.Message_Signal:
		t.runExpirations(msg.Namespace, msg.ToId)
		ex, ok := t.execution(msg.Namespace, msg.ToId)
		if !ok || ex.h.Status.Terminal() {
			return nil
		}
		_, err := t.deliverSignal(ex, w.Signal.Name, recovery.AppendOutcome(nil, recovery.Outcome{Data: w.Signal.Payload}))
		return err
	case *commandv1.Message_Entity:
		return t.receiveEntityMessage(msg, w.Entity)
	case *commandv1.Message_SignalCall:
		return t.receiveSignalCall(msg, w.SignalCall)
	case *commandv1.Message_EndChild:
		return t.receiveEndChild(msg, w.EndChild)
	case *commandv1.Message_StartCall:
		return t.receiveStartCall(msg, w.StartCall)
	case *commandv1.Message_AwaitPromise:
		return t.receiveAwaitPromise(msg, w.AwaitPromise)
	case *commandv1.Message_PromiseDone:
		return t.receivePromiseDone(msg, w.PromiseDone)
	case *commandv1.Message_SignalDone:
		return t.receiveSignalDone(msg, w.SignalDone)
	case *commandv1.Message_Start:
		if _, taken := t.store(msg.Namespace).Promise(msg.ToId); taken {
			return nil
		}
		_, err := t.start(msg.Namespace, birth{
			id: msg.ToId, function: w.Start.Function, digest: t.digest(msg.Namespace, w.Start.Function, ""), input: w.Start.Input, tags: wire.DecodeTags(w.Start.Tags),
			deadlineMS: t.deadline(w.Start.TimeoutMs),
		})
		return err
	default:
		// Only a newer version sends an unknown message. A refusal would make this replica differ from newer
		// ones.
		panic(state.Fault{Err: fmt.Errorf("message %d from %q is of an unknown kind: written by a newer version; this replica must not guess", msg.Seq, msg.FromId)})
	}
}

func (t *txn) receiveStartChild(msg *commandv1.Message, w *commandv1.StartChild) error {
	ns := msg.Namespace
	if ex, ok := t.execution(ns, msg.ToId); ok && ex.h.ParentPromise == w.PromiseId && ex.h.ParentIncarnation == msg.FromIncarnation {
		return nil
	}
	if old, ok := t.execution(ns, msg.ToId); ok && w.Again && old.h.ParentPromise == w.PromiseId && old.h.Incarnation != t.index && !t.cleanupOpen(ns, &old.h) {
		t.succeed(old, succession{
			function: w.Function, digest: t.digest(ns, w.Function, w.ComponentDigest), input: w.Input, tags: wire.DecodeTags(w.Tags),
			deadlineMS: w.DeadlineMs, parentIncarnation: msg.FromIncarnation,
		})
		return nil
	}
	if _, taken := t.store(ns).Promise(msg.ToId); taken {
		return t.send(ns, msg.FromId, &commandv1.Message{
			FromId: msg.ToId, ToId: w.PromiseId, ToIncarnation: msg.FromIncarnation,
			Kind: &commandv1.Message_ChildDone{ChildDone: &commandv1.ChildDone{Outcome: &perdurev1.Outcome{
				Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: state.FailureConflict, Message: fmt.Sprintf("the child's id %q is taken", msg.ToId)}},
			}}},
		})
	}
	_, err := t.start(ns, birth{
		id: msg.ToId, function: w.Function, digest: t.digest(ns, w.Function, w.ComponentDigest), input: w.Input, tags: wire.DecodeTags(w.Tags),
		deadlineMS: w.DeadlineMs, startMS: w.StartAtMs, parent: msg.FromId, parentIncarnation: msg.FromIncarnation,
		parentPromise: w.PromiseId, key: w.IdempotencyKey, retry: retryFromWire(w.Retry, w.Attempts),
	})
	return err
}

// receiveChildDone settles the proxy promise of a child in another partition.
func (t *txn) receiveChildDone(msg *commandv1.Message, w *commandv1.ChildDone) error {
	p, ok := t.store(msg.Namespace).Promise(msg.ToId)
	if !ok || p.Incarnation != msg.ToIncarnation || p.Target != "" {
		return nil
	}
	t.timeout(msg.Namespace, msg.ToId)
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
