package durable

import (
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
)

// ContinueAsNew ends this incarnation of the execution and begins the next one, under the same id and with in as its
// input, which the function's own input type must be able to decode: an *Error of type TypeEncoding otherwise. The
// journal begins again, so a function that runs for ever stays small. Signals that were not received are carried over.
// A caller that awaits the execution gets the result of the last incarnation; its deadline stays. Other operations end
// with the incarnation: a child that still runs is ended (a spread child runs on without a caller), so await what
// matters before.
//
// ContinueAsNew does not return, unless the execution is cancelled: then it returns ErrCancelled. So a
// function calls it as its last operation, in its return statement. A clean-up function must not call it.
func ContinueAsNew[In any](ctx Context, in In) error {
	t, err := enter(ctx, "ContinueAsNew")
	if err != nil {
		return err
	}
	if t.cleanups.running {
		t.failTask(&MisuseError{ID: t.info.ID, What: "ContinueAsNew", Why: "was called by a clean-up function"})
	}
	// A replay refuses as the first run did, whatever the function recorded after the refusal.
	if t.section != nil {
		return entityError("a critical section does not continue as new")
	}
	input, err := encode(t.codec, "the input of the next incarnation", "", in)
	if err != nil {
		return err
	}
	if err := t.takesInput(input); err != nil {
		return err
	}
	if int(t.next) < len(t.journal.ops) {
		rec := t.journal.ops[t.next]
		t.failTask(&MismatchError{ID: t.child(t.next), Journal: rec.kind.describe(rec.name), Code: "the code continues as new before it"})
	}
	if t.cancelling() {
		return ErrCancelled
	}
	t.background.stop()
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.commit(commit{mayEnd: true, next: &perdurev1.ContinueAsNew{Input: input}}); err != nil {
		return err
	}
	t.failTask(fmt.Errorf("durable: the task of %s is still held after it continued as new", t.info.ID))
	return nil
}
