package machine

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// commit is one commit of an execution during its apply.
type commit struct {
	t   *txn
	ex  *execution
	req *perdurev1.Commit
	// request is the id of the request.
	request []byte
	// first is the journal's length before the commit.
	first uint64
	// own are the sequence numbers of the worker's events, ascending. The answer carries all other entries
	// from first on.
	own []uint64
	// events are the worker's, as they were written.
	events []journal.Event
	// added are those of the other entries that the commit itself has written.
	added []*perdurev1.JournalEntry
	// over: an event that ends the activation was written; no event may follow.
	over bool
	// looked: alone has looked for promises below the execution's id.
	looked bool
	state  recovery.TaskState
	// next is the incarnation that follows, if the commit ended a child's attempt and another one is left.
	next *execution
}

// applyCommit applies one step of an execution: its worker's events and their consequences. The guard is the
// task's token and the number of child ids taken; entries that arrived meanwhile do not invalidate a commit.
// It applies whole or not at all.
func applyCommit(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetCommit(), cmd.Namespace
	ex, refused := t.held(ns, req.Task)
	if ex != nil && len(ex.h.LastCommit) > 0 && bytes.Equal(ex.h.LastCommit, cmd.GetRequest().GetId()) {
		if refused != nil && ex.h.LastState == recovery.TaskAcquired {
			// The commit was applied and the lease has ended since: the worker has no task to continue.
			return nil, refused
		}
		return t.commitAnswer(ex, req.KnownSeq, ex.h.LastState, nil), nil
	}
	if refused != nil {
		if reply := t.continued(ns, cmd); reply != nil {
			return reply, nil
		}
		return nil, refused
	}
	if have := ex.j.NextChild(); have != req.NextChild {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
			"execution %q has taken %d child ids, the commit expects %d", ex.h.ID, have, req.NextChild).
			With("namespace", ns).With("id", ex.h.ID).With("rule", "next_child")
	}
	if req.ContinueAsNew != nil {
		return t.continueAsNew(ex, cmd)
	}
	c := &t.m.committing
	*c = commit{t: t, ex: ex, req: req, request: cmd.GetRequest().GetId(), first: ex.j.NextSeq(), state: recovery.TaskAcquired, own: c.own[:0], events: c.events[:0]}
	if err := c.arm(); err != nil {
		return nil, err
	}
	for _, w := range req.Events {
		if c.over {
			return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
				"execution %q: an event follows one that ends the activation", ex.h.ID).With("namespace", ns).With("id", ex.h.ID)
		}
		ev, err := wire.DecodeEvent(w)
		if err == nil {
			err = c.event(ev)
		}
		if err != nil {
			return nil, ruleError(ns, err)
		}
	}
	if c.next != nil {
		return continuedReply(c.next), nil
	}
	if c.state == recovery.TaskSuspended {
		c.waits()
	}
	t.trimHeartbeats(ex)
	ex.h.LastCommit, ex.h.LastState = cmd.GetRequest().GetId(), c.state
	ex.h.Problem, ex.h.Releases = "", 0
	ex.dirty = true
	return t.commitAnswer(ex, req.KnownSeq, c.state, c), nil
}

// held finds the execution a token names and checks that the token is the current one. It returns the
// execution even with a refusal, if the incarnation is the token's.
func (t *txn) held(ns string, token *perdurev1.TaskToken) (*execution, *api.Error) {
	ex, ok := t.execution(ns, token.GetId())
	if !ok {
		return nil, staleTask(ns, token, "there is no such execution")
	}
	if token.Incarnation != ex.h.Incarnation {
		return nil, staleTask(ns, token, "the token is of another incarnation")
	}
	if _, err := recovery.Fence(t.store(ns), t.now, recovery.TaskRef{ID: token.Id, Incarnation: token.Incarnation, Version: token.Version}); err != nil {
		var why *recovery.Error
		if !errors.As(err, &why) {
			panic(state.Fault{Err: err})
		}
		return ex, staleTask(ns, token, why.Detail).With("rule", why.Rule)
	}
	return ex, nil
}

func staleTask(ns string, token *perdurev1.TaskToken, why string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_STALE_TASK, "task %q is no longer yours: %s", token.GetId(), why).
		With("namespace", ns).With("id", token.GetId())
}

// commitReply is the answer to a commit, in one piece of memory.
type commitReply struct {
	reply commandv1.Reply
	kind  commandv1.Reply_Commit
	msg   perdurev1.CommitReply
}

// commitAnswer is the answer from which the worker continues: the task's state, and the journal entries from
// known on that the worker did not write. For a repeated commit (c is nil) these are all entries from known
// on.
func (t *txn) commitAnswer(ex *execution, known uint64, left recovery.TaskState, c *commit) *commandv1.Reply {
	answer := t.m.commitReplies.Next()
	reply := &answer.msg
	reply.State, reply.Status = wire.EncodeTaskState(left), wire.EncodeStatus(ex.h.Status)
	reply.NextSeq, reply.NextChild = ex.h.Events, t.history(ex).NextChild()
	upper := ex.h.Events
	if c != nil {
		upper = c.first
	}
	fits := true
	if left == recovery.TaskAcquired && known < upper {
		reply.Entries, fits = t.entries(ex, known, upper, answerBytes)
	}
	if c != nil && left == recovery.TaskAcquired && fits {
		reply.Entries = append(reply.Entries, c.serverEntries()...)
	}
	if !fits {
		reply.Entries = nil // the worker reads the journal, which comes in pages
	}
	answer.kind.Commit, answer.reply.Kind = reply, &answer.kind
	return &answer.reply
}

// answerBytes bounds the journal entries that the answer to a commit carries. An answer without entries
// although the journal has grown makes the worker read the journal. The bound is no part of the state:
// replicas may differ in it.
const answerBytes = 8 << 20

// entries reads journal entries [from, to), and reports whether they take at most limit bytes as stored. It
// stops reading at the limit.
func (t *txn) entries(ex *execution, from, to uint64, limit int) (out []*perdurev1.JournalEntry, fits bool) {
	fits = true
	t.journalEntries(ex, from, to, func(key, value []byte) bool {
		if limit -= len(value); limit < 0 {
			fits = false
			return false
		}
		entry, err := journal.DecodeEntry(append([]byte(nil), value...))
		if err != nil {
			state.PanicCorrupt("journal", key, err)
		}
		out = append(out, wire.EncodeEntry(entry))
		return true
	})
	return out, fits
}

// append writes one of the worker's events.
func (c *commit) append(ev journal.Event) error {
	seq := c.ex.j.NextSeq()
	if err := c.t.append(c.ex, ev); err != nil {
		return err
	}
	c.own, c.events = append(c.own, seq), append(c.events, ev)
	return nil
}

// serverEntries lists the journal entries that the commit caused in addition to the worker's events.
func (c *commit) serverEntries() []*perdurev1.JournalEntry {
	next := c.ex.j.NextSeq()
	if next-c.first == uint64(len(c.own)+len(c.added)) {
		return c.added
	}
	// Consequences of the commit wrote more: an expired deadline, a signal to itself.
	var out []*perdurev1.JournalEntry
	entries, _ := c.t.entries(c.ex, c.first, next, math.MaxInt)
	for _, e := range entries {
		if !slices.Contains(c.own, e.Seq) {
			out = append(out, e)
		}
	}
	return out
}

// add writes an event of the server, which the answer carries to the worker.
func (c *commit) add(ev journal.Event) error {
	seq := c.ex.j.NextSeq()
	if err := c.t.append(c.ex, ev); err != nil {
		return err
	}
	c.added = append(c.added, wire.EncodeEntry(journal.Entry{Seq: seq, Time: c.t.now, Event: ev}))
	return nil
}

// event applies one event of a commit, with its consequences.
func (c *commit) event(ev journal.Event) error {
	if c.ex.h.Status.Terminal() {
		// The commit has ended its own execution, an attempt of a graph run: its message to the run has run
		// the run's expired deadline. The rest of the commit is void, as after any end.
		c.state = recovery.TaskFulfilled
		return nil
	}
	cancelling := c.ex.h.Status == journal.StatusCancelling
	switch e := ev.(type) {
	case journal.ExecutionCompleted:
		if cancelling {
			return c.end(journal.ExecutionCancelled{Reason: c.ex.endReason("cancelled")})
		}
		return c.end(ev)
	case journal.ExecutionFailed:
		if cancelling {
			return c.end(journal.ExecutionCancelled{Reason: c.ex.endReason("cancelled")})
		}
		if retried, err := c.retryChild(e, c.request); retried || err != nil {
			return err
		}
		return c.end(ev)
	case journal.ExecutionCancelled:
		return c.end(ev)
	}
	if cancelling {
		// A cancel was applied before this commit. Results of started attempts are facts and are recorded;
		// new work does not start. The answer's status notifies the worker.
		if done, ok := ev.(journal.InvokeCompleted); ok {
			if inv, known := c.ex.j.Invoke(done.Promise); known && inv.Open == done.Attempt && state.RunsLocally(inv.Kind) {
				return c.append(ev)
			}
		}
		return nil
	}
	switch e := ev.(type) {
	case journal.InvokeScheduled:
		return c.invoke(e, ev)
	case journal.InvokeStarted:
		return c.local(e.Promise, ev)
	case journal.InvokeCompleted:
		return c.local(e.Promise, ev)
	case journal.InvokeRetrying:
		return c.local(e.Promise, ev)
	case journal.TimerScheduled:
		return c.timer(e)
	case journal.ExecutionAwaiting:
		return c.await(e)
	case journal.SignalReceived:
		return c.received(e)
	case journal.RandomGenerated, journal.TimeRecorded,
		journal.JoinSetCreated, journal.JoinSetSubmitted, journal.JoinSetAwaited:
		return c.append(e)
	default:
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
			"execution %q: %s is written by the server, not by a worker", c.ex.h.ID, ev.Kind()).With("id", c.ex.h.ID)
	}
}

// local admits an event of an invocation that the worker itself runs.
func (c *commit) local(promise id.PromiseID, ev journal.Event) error {
	if inv, ok := c.ex.j.Invoke(promise); ok && !state.RunsLocally(inv.Kind) {
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
			"%s of %q is the server's to write: it is not a local step", ev.Kind(), promise).With("id", c.ex.h.ID)
	}
	return c.append(ev)
}

// invoke begins a side effect: a local step's record, a child execution, or a one-way operation. ev is e.
func (c *commit) invoke(e journal.InvokeScheduled, ev journal.Event) error {
	if e.Invoke == journal.InvokeSend {
		return c.send(e)
	}
	if err := c.append(ev); err != nil {
		return err
	}
	switch e.Invoke {
	case journal.InvokeStep, journal.InvokeHTTP:
		return nil
	case journal.InvokeSignal:
		return c.signalFuture(e)
	case journal.InvokeFunction:
		if c.t.m.feature < state.LevelFunctions {
			if err := c.add(journal.InvokeStarted{Promise: e.Promise, Attempt: 1}); err != nil {
				return err
			}
		}
		return c.child(e)
	default:
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN,
			"execution %q: a worker cannot schedule an invocation of kind %s", c.ex.h.ID, e.Invoke).With("id", c.ex.h.ID)
	}
}

// timer creates a timer's promise, which its deadline resolves.
func (c *commit) timer(e journal.TimerScheduled) error {
	if e.Duration < 0 || e.Duration >= state.Never-c.t.now {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "timer %q: a duration of %d ms", e.Promise, e.Duration).With("id", c.ex.h.ID)
	}
	e.FireAt = c.t.now + e.Duration
	if err := c.append(e); err != nil {
		return err
	}
	made, err := c.promise(recovery.CreateRequest{ID: string(e.Promise), Timer: true, TimeoutAt: e.FireAt})
	if err == nil && made.State != recovery.PromisePending {
		err = c.add(journal.TimerFired{Promise: e.Promise})
	}
	return err
}

// promise creates the promise of one of the execution's operations. Its id must be free.
func (c *commit) promise(req recovery.CreateRequest) (recovery.Promise, error) {
	req.Incarnation = c.ex.h.Incarnation
	made, _, err := recovery.Create(c.t.store(c.ex.ns), c.t.now, req, retryMS)
	if err == nil && !made.New {
		err = api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "id %q is taken", req.ID).With("namespace", c.ex.ns).With("id", c.ex.h.ID)
	}
	return made.Promise, err
}

// await ends the activation with a wait. A wait that is satisfied already is not recorded: the task stays
// with the worker, and the answer carries the awaited results.
func (c *commit) await(e journal.ExecutionAwaiting) error {
	c.over = true
	if err := c.mayAwait(e.On); err != nil {
		return err
	}
	switch err := c.append(e); {
	case needless(err):
		if e.Wait != journal.AwaitSignal {
			return nil
		}
		delivery, seq, _ := c.ex.j.NextReceipt(e.Signal)
		return c.add(journal.SignalReceived{Promise: e.On[0], Name: e.Signal, Payload: c.t.payload(c.ex, seq), DeliveryID: delivery})
	case err != nil:
		return err
	}
	if e.Wait == journal.AwaitSignal {
		timeout := c.t.deadline(c.req.WaitTimeoutMs)
		if timeout == 0 {
			timeout = state.Never
		}
		if _, err := c.promise(recovery.CreateRequest{ID: string(e.On[0]), External: true, TimeoutAt: timeout}); err != nil {
			return err
		}
	}
	expired, err := c.suspend(e)
	if err != nil || len(expired) == 0 {
		return err
	}
	// Some deadlines have expired before the tick: run the expirations, and continue at once if they satisfy
	// the wait.
	for _, p := range expired {
		c.t.timeout(c.ex.ns, p.ID)
	}
	switch {
	case c.ex.h.Status != journal.StatusBlocked:
		return nil // resumed through the callback of an earlier wait
	case c.ex.j.WaitSatisfied():
		return c.add(journal.ExecutionResumed{})
	}
	_, err = c.suspend(e)
	return err
}

// needless reports whether a wait was refused only because it is satisfied already.
func needless(err error) bool {
	v, ok := err.(*journal.Violation)
	return ok && v.Rule == journal.RuleNeedlessWait
}

// suspend suspends the task on the unresolved members of a wait. If the deadlines of some have expired, it
// returns these and the task stays with its worker.
func (c *commit) suspend(e journal.ExecutionAwaiting) (expired []recovery.Promise, err error) {
	awaited := make([]recovery.Ref, 0, len(e.On))
	for _, p := range e.On {
		if !c.ex.j.Resolved(p) {
			awaited = append(awaited, recovery.Ref{ID: string(p)})
		}
	}
	sus, err := recovery.Suspend(c.t.store(c.ex.ns), c.t.now,
		recovery.TaskRef{ID: c.ex.h.ID, Incarnation: c.ex.h.Incarnation, Version: c.req.Task.Version}, awaited, false)
	if err != nil {
		return nil, err
	}
	c.state = sus.Task.State
	return sus.Ready, nil
}

// end writes the execution's end and settles its promise (the ending table).
func (c *commit) end(ev journal.Event) error {
	if err := c.append(ev); err != nil {
		return err
	}
	c.over, c.state = true, recovery.TaskFulfilled
	switch e := ev.(type) {
	case journal.ExecutionCompleted:
		return c.t.finish(c.ex, recovery.PromiseResolved, recovery.AppendOutcome(nil, recovery.Outcome{Data: e.Result}))
	case journal.ExecutionFailed:
		return c.t.finish(c.ex, recovery.PromiseRejected, e.Error)
	case journal.ExecutionCancelled:
		return c.t.finish(c.ex, recovery.PromiseRejectedCanceled, state.EncodeFailure(state.FailureCancelled, e.Reason))
	}
	return nil
}
