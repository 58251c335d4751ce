package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

// DefaultCleanupTime is how long the clean-up of a cancelled execution may take, unless CleanupWithin says otherwise.
const DefaultCleanupTime = time.Hour

// CleanupOption is an option of Cleanup and NewSaga.
type CleanupOption func(*cleanupOptions)

type cleanupOptions struct {
	within time.Duration
	retry  RetryPolicy
}

// CleanupWithin bounds the clean-up of a cancelled execution; the longest bound of all that is registered counts.
func CleanupWithin(d time.Duration) CleanupOption {
	return func(o *cleanupOptions) { o.within = d }
}

// UndoRetry sets the retry policy of a saga's undos. Default: 1,000 attempts, 100 ms to 30 s apart.
func UndoRetry(p RetryPolicy) CleanupOption { return func(o *cleanupOptions) { o.retry = p } }

func cleanupOptionsOf(opts []CleanupOption) cleanupOptions {
	o := cleanupOptions{within: DefaultCleanupTime, retry: RetryPolicy{MaxAttempts: 1000, Max: 30 * time.Second}}
	for _, opt := range opts {
		opt(&o)
	}
	if o.within <= 0 {
		o.within = DefaultCleanupTime
	}
	return o
}

// Cleanup registers a function that runs if the execution does not succeed. Registered functions run in reverse order,
// each once, and may use every operation:
//
//   - when the durable function returns an error: in line, before the execution fails;
//   - when the execution is cancelled or misses its deadline: in an execution of its own, which the cluster starts as it
//     records the end, whether or not a worker is connected. Its id is Info(ctx).Cleanup, and perdure describe names
//     it. It has a journal of its own, and CleanupWithin bounds it. Its worker first replays the cancelled execution,
//     so that the function's variables have their values.
//
// A clean-up execution begins operations of its own. A future that the cancelled function has made is a
// *MisuseError there: keep its result in a variable.
//
// perdure terminate runs no clean-up. A clean-up function that a cancel interrupts in line runs again from
// its beginning in the clean-up execution. Register the function before the operation that it undoes: a crash
// may come after any of them. Saga does that.
func Cleanup(ctx Context, fn func(ctx Context) error, opts ...CleanupOption) {
	t, err := enter(ctx, "Cleanup")
	if err != nil {
		return // recorded as a misuse; the next operation ends the activation
	}
	t.register(fn, cleanupOptionsOf(opts))
}

// cleanups holds the clean-ups that a function has registered, and the state of a clean-up execution.
type cleanups struct {
	stack []*cleanup
	// count is how many were ever registered; armed is what the cluster knows of it, in ms, 0 for nothing.
	count int
	armed int64
	// interrupted: an operation has returned ErrCancelled, so nothing later is recorded.
	interrupted bool
	// running: clean-up functions run, and may register none.
	running bool

	// of is set in a clean-up execution. While replaying is true the activation's journal is that of the cancelled
	// execution, and own its own; else own is nil. end ends the function's context.
	of        *perdurev1.CleanupOf
	replaying bool
	own       *history
	end       context.CancelCauseFunc
}

type cleanup struct {
	fn     func(ctx Context) error
	within time.Duration
}

func (t *activation) register(fn func(ctx Context) error, o cleanupOptions) *cleanup {
	if t.cleanups.running {
		t.failTask(&MisuseError{ID: t.info.ID, What: "Cleanup", Why: "was called by a clean-up function"})
	}
	c := &cleanup{fn: fn, within: o.within}
	t.cleanups.stack = append(t.cleanups.stack, c)
	t.cleanups.count++
	return c
}

// unregister removes a clean-up that has run or is not needed.
func (t *activation) unregister(c *cleanup) {
	kept := t.cleanups.stack[:0:0]
	for _, other := range t.cleanups.stack {
		if other != c {
			kept = append(kept, other)
		}
	}
	t.cleanups.stack = kept
}

// arming is Commit.cleanup_ms of the next commit: 0 if the cluster knows what is registered.
func (t *activation) arming() int64 {
	if t.cleanups.of != nil {
		return 0
	}
	want := int64(0)
	for _, c := range t.cleanups.stack {
		want = max(want, client.Millis(c.within))
	}
	switch {
	case want == t.cleanups.armed:
		return 0
	case want == 0:
		return -1
	}
	return want
}

// cleaning reports whether a clean-up execution has replayed the cancelled function and runs what that registered.
func (t *activation) cleaning() bool { return t.cleanups.of != nil && !t.cleanups.replaying }

// cancelling reports whether operations that are not recorded must return ErrCancelled.
func (t *activation) cancelling() bool {
	if !t.cleanups.replaying && !t.cancelAsked.Load() {
		return false
	}
	t.cleanups.interrupted = true
	return true
}

// runCleanup runs one registered function, and unregisters it unless a cancel has interrupted it.
func (t *activation) runCleanup(ctx Context, c *cleanup) error {
	t.cleanups.running = true
	err := c.fn(ctx)
	t.cleanups.running = false
	if t.cleanups.interrupted {
		return ErrCancelled
	}
	t.unregister(c)
	return err
}

// runCleanups runs the registered functions, the last one first, until a cancel interrupts them.
func (t *activation) runCleanups(ctx Context) error {
	var failed []error
	for len(t.cleanups.stack) > 0 {
		err := t.runCleanup(ctx, t.cleanups.stack[len(t.cleanups.stack)-1])
		if t.cleanups.interrupted {
			return err
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// afterError runs the clean-ups in line after the function has failed. The execution fails with the function's error.
func (t *activation) afterError(ctx Context, err error) error {
	if t.cleanups.interrupted || len(t.cleanups.stack) == 0 {
		return err
	}
	if undo := t.runCleanups(ctx); undo != nil && !t.cleanups.interrupted {
		return &cleanupError{err, undo}
	}
	return err
}

// cleanupError is an error of a function whose clean-up failed too. Its type is the function's error's.
type cleanupError struct{ err, cleanup error }

// Error has both messages.
func (e *cleanupError) Error() string {
	return fmt.Sprintf("%v (clean-up failed: %v)", e.err, e.cleanup)
}

// Unwrap returns the function's own error.
func (e *cleanupError) Unwrap() error { return e.err }

// loadCancelled reads the journal of the execution to clean up after. The activation replays it until cleanUp.
func (t *activation) loadCancelled() {
	c, of := &t.cleanups, t.cleanups.of
	past := history{id: id.PromiseID(of.GetId())}
	for past.next < of.GetNextSeq() {
		before := past.next
		if err := past.ingest(t.readPageOf(of.GetId(), of.GetIncarnation(), past.next)); err != nil {
			t.failTask(err)
		}
		if past.next == before {
			t.failTask(fmt.Errorf("durable: the journal of %s ends at %d, before its length %d", of.GetId(), before, of.GetNextSeq()))
		}
	}
	own := t.journal
	c.own, t.journal, c.replaying = &own, past, true
}

// cleanUp runs, in a clean-up execution whose function was replayed, the registered clean-ups that are not done. They
// have a journal and child numbers of their own. err is the function's error.
func (t *activation) cleanUp(ctx Context, err error) error {
	c := &t.cleanups
	if err != nil {
		// The function failed by itself, and the cancel came during its clean-up in line: what that has done is done.
		_ = t.afterError(ctx, err)
	}
	if !c.interrupted && int(t.next) < len(t.journal.ops) {
		rec := t.journal.ops[t.next]
		t.failTask(&MismatchError{ID: t.child(t.next), Journal: rec.kind.describe(rec.name), Code: "the code returns before it"})
	}
	if c.count == 0 {
		t.failTask(fmt.Errorf("durable: the code of %q registers no clean-up, and the cancelled execution %s had one", t.info.Function, t.info.ID))
	}
	c.end(ErrCancelled)
	t.journal, c.own = *c.own, nil
	c.replaying, c.interrupted, t.next = false, false, 0
	t.section = nil // it was released when the execution was cancelled
	t.goLiveIfReplayed()
	return t.runCleanups(execContext{t.ctx, t})
}

// functionContext is the context of the function: the activation's, or in a clean-up one that ends with the replay.
func (t *activation) functionContext() context.Context {
	if t.cleanups.of == nil {
		return t.ctx
	}
	ctx, end := context.WithCancelCause(t.ctx)
	t.cleanups.end = end
	return ctx
}
