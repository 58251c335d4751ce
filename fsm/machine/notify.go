package machine

import (
	"fmt"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// Bounds of what one entry sends to listeners, each of which gets its own copy of a promise's value. One listener
// always gets its copy, however large.
const (
	notifyListeners = 256
	notifyBytes     = 1 << 20
)

// notifyBudget is how many listeners, and how many bytes of values, an entry may still notify. It is part of the rules:
// all replicas apply the same entries.
type notifyBudget struct {
	listeners, bytes int
	// begun: the entry has notified a listener.
	begun bool
}

// room is how many listeners may get a value of so many bytes now.
func (b *notifyBudget) room(size int) int {
	n := min(b.listeners, b.bytes/max(size, 1))
	if n < 1 && !b.begun {
		n = 1
	}
	return n
}

// take reserves room for so many listeners.
func (b *notifyBudget) take(n, size int) {
	b.listeners -= n
	b.bytes -= n * size
	b.begun = b.begun || n > 0
}

// notifyFirst notifies the first listeners of a promise that was just settled, as many as the entry's budget allows.
// The deadline index leads to the others.
func (t *txn) notifyFirst(ns string, p recovery.Promise) {
	if !t.none(t.of(keys.Listener, ns, p.ID)) {
		t.notifyFrom(ns, p, state.OutcomeOf(p), "")
	}
}

// notifyMore notifies the next listeners of a settled promise whose deadline for it has expired.
func (t *txn) notifyMore(ns, objectID string) {
	rest, ok := t.notification(ns, objectID)
	if !ok || rest.AtMS > t.now {
		return
	}
	p, _ := t.store(ns).Promise(objectID)
	if !p.State.Settled() {
		panic(state.Fault{Err: fmt.Errorf("promise %q is %s, and its listeners are to be notified", objectID, p.State)})
	}
	if outcome := state.OutcomeOf(p); t.m.notified.room(len(outcome)) > 0 {
		t.notifyFrom(ns, p, outcome, rest.From)
	}
}

// notifyFrom notifies the listeners of a promise from an address on, as many as the budget allows, with an outcome. It
// reports whether some are left. Those of a settled promise have a deadline that has expired, so that the cost of an
// entry does not depend on their number.
func (t *txn) notifyFrom(ns string, p recovery.Promise, outcome []byte, from string) (left bool) {
	room := t.m.notified.room(len(outcome))
	next, rest := t.listeners(ns, p.ID, from, room)
	t.m.notified.take(len(next), len(outcome))
	for _, address := range next {
		t.remove(keys.Of(keys.Listener, ns, p.ID, address))
	}
	if rest == "" && from != "" {
		_, rest = t.listeners(ns, p.ID, "", 0) // registered since, before from
	}
	t.dropNotification(ns, p.ID)
	if rest != "" && p.State.Settled() {
		t.notifyLater(ns, p.ID, rest)
	}
	for _, address := range next {
		if !t.answerAwaiting(ns, address, p.ID, outcome) {
			t.unblock(ns, address, p)
		}
	}
	return rest != ""
}

// listeners lists the listeners of a promise from an address on, at most so many, and the one after them; "" if there
// is none.
func (t *txn) listeners(ns, objectID, from string, most int) (next []string, rest string) {
	prefix := keys.Of(keys.Listener, ns, objectID)
	lower := prefix
	if from != "" {
		lower = keys.Of(keys.Listener, ns, objectID, from)
	}
	t.scan(lower, keys.After(prefix), func(key, _ []byte) bool {
		address, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt("listener", key, err)
		}
		if len(next) == most {
			rest = address
			return false
		}
		next = append(next, address)
		return true
	})
	return next, rest
}

// notifyLater has the listeners of a settled promise from an address on notified by the next tick.
func (t *txn) notifyLater(ns, objectID, from string) {
	t.put(keys.Of(keys.Notify, ns, objectID), state.Notification{AtMS: t.now, From: from}.Encode())
	t.put(keys.DeadlineOf(keys.DeadlineNotify, t.now, ns, objectID), []byte{})
	t.fx.expiration(t.now)
}

// dropNotification removes what leads to the rest of a promise's listeners.
func (t *txn) dropNotification(ns, objectID string) {
	if n, ok := t.notification(ns, objectID); ok {
		t.remove(keys.DeadlineOf(keys.DeadlineNotify, n.AtMS, ns, objectID))
		t.remove(keys.Of(keys.Notify, ns, objectID))
	}
}

// notification reads what is left of a settled promise's listeners.
func (t *txn) notification(ns, objectID string) (state.Notification, bool) {
	if t.none(t.of(keys.Notify, ns, objectID)) {
		return state.Notification{}, false
	}
	n, ok, err := state.ReadNotification(t, ns, objectID)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	return n, ok
}

// notifying reports whether listeners of a promise are left that get its settled value.
func (t *txn) notifying(ns, objectID string) bool {
	_, ok := t.notification(ns, objectID)
	return ok
}

// notifyingOperations reports the same of an execution's own promise or that of any of its operations.
func (t *txn) notifyingOperations(ns, objectID string) (found bool) {
	prefix := keys.Of(keys.Notify, ns, operations(objectID))
	prefix = prefix[:len(prefix)-2] // without the string's terminator: every id with this prefix
	t.scan(prefix, keys.After(prefix), func(_, _ []byte) bool {
		found = true
		return false
	})
	return found || t.notifying(ns, objectID)
}

// errNotifying refuses a new incarnation of an id whose former value has not reached all that wait for it.
func errNotifying(ns, objectID string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "the value of %q has not reached all that wait for it", objectID).
		With("namespace", ns).With("id", objectID)
}

// released notifies the next listeners of a promise that is to be deleted, and reports whether none is left. Those of
// a pending one get a failure.
func (t *txn) released(ns, objectID string, failure []byte) bool {
	if t.none(t.of(keys.Listener, ns, objectID)) {
		return true
	}
	p, ok := t.store(ns).Promise(objectID)
	if !ok {
		return true
	}
	from, outcome := "", failure
	if at := p.At(t.now); at.State.Settled() {
		n, _ := t.notification(ns, objectID)
		from, outcome = n.From, state.OutcomeOf(at)
	}
	return !t.notifyFrom(ns, p, outcome, from)
}

// receiveAwaitPromise answers with the value of a promise, or registers the asker for it.
func (t *txn) receiveAwaitPromise(msg *commandv1.Message, w *commandv1.AwaitPromise) error {
	t.level = max(t.level, state.LevelFunctions)
	ns := msg.Namespace
	t.runExpirations(ns, msg.ToId)
	p, ok := t.store(ns).Promise(msg.ToId)
	from := asker{w.PromiseId, msg.FromIncarnation}
	if _, internal := id.EntityOfTask(msg.ToId); !ok || internal {
		return t.answerPromise(ns, msg.ToId, from,
			state.EncodeFailure(state.FailureTargetNotFound, fmt.Sprintf("no promise %q in namespace %q", msg.ToId, ns)))
	}
	if !p.State.Settled() {
		t.store(ns).AddListener(msg.ToId, from.address())
		return nil
	}
	outcome := state.OutcomeOf(p)
	if t.m.notified.room(len(outcome)) == 0 {
		t.store(ns).AddListener(msg.ToId, from.address())
		if !t.notifying(ns, msg.ToId) {
			t.notifyLater(ns, msg.ToId, from.address())
		}
		return nil
	}
	t.m.notified.take(1, len(outcome))
	return t.answerPromise(ns, msg.ToId, from, outcome)
}
