package machine

import (
	"strconv"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// options finds a child's options in the commit, which are separate from its InvokeScheduled.
func (c *commit) options(promise id.PromiseID) *perdurev1.ChildOptions {
	for _, o := range c.req.Children {
		if o.PromiseId == string(promise) {
			return o
		}
	}
	return &perdurev1.ChildOptions{}
}

// child starts the child execution of an invocation: in this partition under the promise's own id, or under a
// root id of its own. Such a child has a proxy promise here, which a message settles at the child's end.
func (c *commit) child(e journal.InvokeScheduled) error {
	t, ex, opts := c.t, c.ex, c.options(e.Promise)
	if e.Function == "" {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "child %q names no function", e.Promise).With("id", ex.h.ID)
	}
	if err := reserved(e.Function); err != nil {
		return err.With("id", ex.h.ID)
	}
	if err := c.mayStartChild(); err != nil {
		return err
	}
	retry, err := c.retryOf(e, opts.Retry)
	if err != nil {
		return err
	}
	at, refused := c.placementOf(opts)
	if refused != nil {
		return refused
	}
	at.retry, at.tags = retry, wire.DecodeTags(opts.Tags)
	if at.ownID != "" || at.spread {
		return t.startElsewhere(ex, e, at, false)
	}
	if c.alone() {
		t.noPromise(ex.ns, string(e.Promise))
	}
	if _, taken := t.store(ex.ns).Promise(string(e.Promise)); taken {
		return api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "child id %q is taken", e.Promise).With("id", ex.h.ID)
	}
	_, err = t.start(ex.ns, birth{
		id: string(e.Promise), function: e.Function, digest: t.digest(ex.ns, e.Function, ex.h.Digest), input: e.Input,
		tags: at.tags, deadlineMS: at.deadlineMS, startMS: at.startMS, policy: at.policy,
		parent: ex.h.ID, parentIncarnation: ex.h.Incarnation, parentPromise: string(e.Promise), retry: retry,
	})
	return err
}

// severalChildren is from how many children of a commit on one scan costs less than a read for each.
const severalChildren = 4

// alone reports that no promise below the execution's id is another's. Then an operation's id, which the journal takes
// once, needs no read to see that it is free.
func (c *commit) alone() bool {
	ex := c.ex
	if ex.alone == ex.h.Incarnation {
		return true
	}
	if c.looked {
		return false
	}
	c.looked = true
	children := 0
	for _, w := range c.req.Events {
		if w.GetInvokeScheduled().GetKind() == perdurev1.InvokeKind_INVOKE_KIND_FUNCTION {
			children++
		}
	}
	// A filter that is ready saves the reads for less than a scan costs.
	if children >= severalChildren && !c.t.m.reads.absences.ready() && c.t.noneBelow(ex.ns, ex.h.ID) {
		ex.alone = ex.h.Incarnation
	}
	return ex.alone == ex.h.Incarnation
}

// startElsewhere asks the partition of a child's root id to start it. The id of a spread child depends on its parent's
// incarnation. again: a former incarnation of the parent had started it.
func (t *txn) startElsewhere(ex *execution, e journal.InvokeScheduled, at placement, again bool) error {
	key := string(e.Promise) + "#" + strconv.FormatUint(ex.h.Incarnation, 10)
	root := at.ownID
	if root == "" {
		root = id.SpreadRoot(ex.h.Digest, ex.h.ID, key)
	}
	if err := t.proxy(ex, string(e.Promise), root, at); err != nil {
		return err
	}
	return t.send(ex.ns, root, &commandv1.Message{
		FromId: ex.h.ID, FromIncarnation: ex.h.Incarnation, ToId: root,
		Kind: &commandv1.Message_StartChild{StartChild: &commandv1.StartChild{
			Function: e.Function, Input: e.Input, PromiseId: string(e.Promise), DeadlineMs: at.deadlineMS, StartAtMs: at.startMS,
			Tags: wire.EncodeTags(at.tags), ComponentDigest: ex.h.Digest, IdempotencyKey: key, Again: again,
			Retry: retryToWire(at.retry), Attempts: at.retry.Attempts,
		}},
	})
}

// send performs a one-way operation. A message to this partition is received at once and may end the sender,
// so the journal records the operation first.
func (c *commit) send(e journal.InvokeScheduled) error {
	if _, unlocks := c.content(e.Promise).GetWhat().(*perdurev1.Send_EntityUnlock); unlocks != namedUnlock(e) {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "one-way operation %q is named %q with %d bytes of input: that is the name of an entity_unlock, and of nothing else without input",
			e.Promise, e.Function, len(e.Input)).With("id", c.ex.h.ID)
	}
	if s := c.content(e.Promise); ofEntities(s) {
		return c.sendEntity(e, s)
	}
	if s := c.content(e.Promise); s.GetNewPromise() != nil || s.GetAwaitedPromise() != nil {
		return c.sendPromise(e, s)
	}
	if w := c.content(e.Promise).GetCancel(); w != nil {
		return c.cancelOperation(e, w)
	}
	msg, err := c.message(e)
	if err != nil {
		return err
	}
	if sig := msg.GetSignal(); sig != nil && c.t.m.feature >= state.LevelAnswers {
		return c.signal(e, msg, sig)
	}
	if start := msg.GetStart(); start != nil && c.t.m.feature >= state.LevelFunctions {
		return c.startDetached(e, msg, start)
	}
	if err := c.begun(e); err != nil {
		return err
	}
	if err := c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: recovery.AppendOutcome(nil, recovery.Outcome{})}); err != nil {
		return err
	}
	return c.t.send(c.ex.ns, msg.ToId, msg)
}

// namedUnlock reports whether a one-way operation's name says that it ends a critical section. The journal has no other
// sign of that end, and a restart needs one.
func namedUnlock(e journal.InvokeScheduled) bool { return e.Function == "unlock" && len(e.Input) == 0 }

// begun records that a one-way operation has begun.
func (c *commit) begun(e journal.InvokeScheduled) error {
	if err := c.append(e); err != nil {
		return err
	}
	return c.add(journal.InvokeStarted{Promise: e.Promise, Attempt: 1})
}

// message builds the message of a one-way operation.
func (c *commit) message(e journal.InvokeScheduled) (*commandv1.Message, error) {
	if s := c.content(e.Promise); s != nil {
		msg := &commandv1.Message{FromId: c.ex.h.ID, FromIncarnation: c.ex.h.Incarnation}
		switch w := s.What.(type) {
		case *perdurev1.Send_Signal:
			if err := id.Validate(w.Signal.Id); err != nil {
				return nil, badID(c.ex.ns, err)
			}
			msg.ToId, msg.Kind = w.Signal.Id, &commandv1.Message_Signal{Signal: w.Signal}
		case *perdurev1.Send_Start:
			if err := id.ValidateRoot(w.Start.Id); err != nil {
				return nil, badID(c.ex.ns, err)
			}
			if w.Start.Function == "" {
				return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "one-way operation %q names no function", e.Promise).With("id", c.ex.h.ID)
			}
			if err := reserved(w.Start.Function); err != nil {
				return nil, err.With("id", c.ex.h.ID)
			}
			msg.ToId, msg.Kind = w.Start.Id, &commandv1.Message_Start{Start: w.Start}
		default:
			return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "one-way operation %q says nothing", e.Promise).With("id", c.ex.h.ID)
		}
		return msg, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the commit has no content for one-way operation %q", e.Promise).With("id", c.ex.h.ID)
}
