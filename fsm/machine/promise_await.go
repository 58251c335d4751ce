package machine

import (
	"fmt"
	"strconv"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// sendPromise makes a promise that clients settle, or asks for the value of any promise.
func (c *commit) sendPromise(e journal.InvokeScheduled, s *perdurev1.Send) error {
	t, ex := c.t, c.ex
	if t.m.feature < state.LevelFunctions {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "operation %q needs feature level %d, the partition is at %d",
			e.Promise, state.LevelFunctions, t.m.feature).With("id", ex.h.ID)
	}
	if w := s.GetNewPromise(); w != nil {
		if n := len(e.Input); n != 0 && n != id.PromiseSecretBytes {
			return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "promise %q has a secret of %d bytes, must be %d", e.Promise, n, id.PromiseSecretBytes).
				With("namespace", ex.ns).With("id", ex.h.ID)
		}
		timeout := t.deadline(w.TimeoutMs)
		if timeout == 0 {
			timeout = state.Never
		}
		if err := c.begun(e); err != nil {
			return err
		}
		_, err := c.promise(recovery.CreateRequest{ID: string(e.Promise), Tags: state.NewPromiseTags(e.Input), External: true, TimeoutAt: timeout})
		return err
	}
	target := s.GetAwaitedPromise().GetId()
	if err := id.Validate(target); err != nil {
		return badID(ex.ns, err)
	}
	if err := c.begun(e); err != nil {
		return err
	}
	if _, err := c.promise(recovery.CreateRequest{ID: string(e.Promise), Param: []byte(target), Tags: state.AwaitTags(), External: true, TimeoutAt: state.Never}); err != nil {
		return err
	}
	err := t.askFor(ex, target, string(e.Promise))
	if ex.h.Status.Terminal() {
		c.state = recovery.TaskFulfilled // the target's expired deadline has ended its child, the sender
	}
	return err
}

// askFor asks for the value of any promise, which settles an operation's own.
func (t *txn) askFor(ex *execution, target, promise string) error {
	return t.send(ex.ns, target, &commandv1.Message{FromId: ex.h.ID, FromIncarnation: ex.h.Incarnation, ToId: target,
		Kind: &commandv1.Message_AwaitPromise{AwaitPromise: &commandv1.AwaitPromise{PromiseId: promise}}})
}

// asker is an operation that awaits a promise of another object: the value settles the operation's promise.
type asker struct {
	promise     string
	incarnation uint64
}

// askerScheme begins the listener address of an asker. No other address begins so.
const askerScheme = "perdure:operation "

func (a asker) address() string {
	return askerScheme + strconv.FormatUint(a.incarnation, 10) + " " + a.promise
}

// answerAwaiting sends a promise's outcome to the asker that an address names. ok is false for other addresses.
func (t *txn) answerAwaiting(ns, address, promise string, outcome []byte) (ok bool) {
	text, ok := strings.CutPrefix(address, askerScheme)
	if !ok {
		return false
	}
	number, operation, _ := strings.Cut(text, " ")
	incarnation, err := strconv.ParseUint(number, 10, 64)
	if err == nil {
		err = t.answerPromise(ns, promise, asker{operation, incarnation}, outcome)
	}
	if err != nil {
		panic(state.Fault{Err: fmt.Errorf("promise %q has the listener %q: %w", promise, address, err)})
	}
	return true
}

func (t *txn) answerPromise(ns, from string, to asker, outcome []byte) error {
	execution, ok := state.ParentOf(to.promise)
	if !ok {
		return fmt.Errorf("%q is not an operation's id", to.promise)
	}
	return t.send(ns, execution, &commandv1.Message{FromId: from, ToId: to.promise, ToIncarnation: to.incarnation,
		Kind: &commandv1.Message_PromiseDone{PromiseDone: &commandv1.PromiseDone{Outcome: wire.EncodeOutcome(outcome)}}})
}

// receivePromiseDone settles the promise of the operation that awaits another one. An answer for another
// incarnation, or a second one, changes nothing.
func (t *txn) receivePromiseDone(msg *commandv1.Message, w *commandv1.PromiseDone) error {
	t.level = max(t.level, state.LevelFunctions)
	p, ok := t.store(msg.Namespace).Promise(msg.ToId)
	if !ok || p.Incarnation != msg.ToIncarnation || !state.OfAwait(p) || p.State.Settled() {
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
