package client

import (
	"context"
	"errors"
	"iter"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// pollWait is how long a server is asked to hold back the answer of one long poll.
const pollWait = 20 * time.Second

// StartOptions describes the execution to start.
type StartOptions struct {
	// ID names the execution and is its idempotency key: 1 to 1,024 bytes, no ':' and no NUL.
	ID string
	// Function is the name a worker registered.
	Function string
	// Input is given to the function as it is; at most 4 MiB.
	Input []byte
	// Timeout, if positive, cancels the execution with "timed out" when it has not finished by then.
	// Counted in milliseconds, rounded up.
	Timeout time.Duration
	// Tags are for people and searches; at most 64.
	Tags map[string]string
	// Digest is recorded as the component digest of the code that is expected to run it.
	Digest string
	// AllowUnknownFunction starts it even if no worker ever registered the function; it then waits for one.
	AllowUnknownFunction bool
	// Reuse says which ended execution of the same id is replaced by a new incarnation; none by default.
	Reuse Reuse
}

// Reuse says which ended executions a start replaces. The records of the previous incarnation are deleted.
type Reuse = perdurev1.Reuse

// The policies of reuse.
const (
	ReuseReject   = perdurev1.Reuse_REUSE_REJECT    // none
	ReuseIfFailed = perdurev1.Reuse_REUSE_IF_FAILED // one that has failed or was cancelled
	ReuseAlways   = perdurev1.Reuse_REUSE_ALWAYS    // any that has ended
)

// Started is the answer of Start.
type Started struct {
	ID          string
	Incarnation uint64
	// Created is false when the same start had been made before.
	Created bool
	Status  Status
}

// Start starts an execution, and does not wait for it. Starting the same function with the same input
// under the same id again answers with what exists. Errors: *api.Error with ID_CONFLICT (the id was
// started differently), FUNCTION_UNKNOWN, BAD_ID and others; ErrOutcomeUnknown; ErrUnavailable.
func (c *Client) Start(ctx context.Context, o StartOptions) (Started, error) {
	resp, err := c.start(ctx, o, 0)
	if err != nil {
		return Started{}, err
	}
	return Started{ID: resp.GetId(), Incarnation: resp.GetIncarnation(), Created: resp.GetCreated(), Status: resp.GetStatus()}, nil
}

func (c *Client) start(ctx context.Context, o StartOptions, wait time.Duration) (*perdurev1.StartResponse, error) {
	r := c.NewRequest()
	var resp *perdurev1.StartResponse
	err := c.call(ctx, "start", o.ID, true, wait, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Start(ctx, &perdurev1.StartRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: o.ID, Function: o.Function, Input: o.Input,
			TimeoutMs: Millis(o.Timeout), Tags: o.Tags, ComponentDigest: o.Digest,
			AllowUnknownFunction: o.AllowUnknownFunction, Reuse: o.Reuse, WaitMs: Millis(wait),
		})
		return err
	})
	return resp, err
}

// Run starts an execution, waits until it has finished or ctx ends, and returns its result: Start and
// ResultOf in one call to the cluster. Errors are those of Start, then those of Result. With ctx's error the
// execution may have been started and goes on; a Run with the same options waits for the same execution.
func (c *Client) Run(ctx context.Context, o StartOptions) ([]byte, error) {
	resp, err := c.start(ctx, o, max(c.held(ctx, pollWait), time.Millisecond))
	if err != nil {
		return nil, err
	}
	if done := resp.GetResult(); done.GetDone() {
		return Outcome(o.ID, done.GetStatus(), done.GetOutcome())
	}
	return c.result(ctx, o.ID, resp.GetIncarnation())
}

// Result waits until the execution has finished or ctx ends, and returns its result. An execution that
// failed or was cancelled is an *ExecutionError. Otherwise the error is *api.Error (EXECUTION_NOT_FOUND),
// the context's, or ErrUnavailable when no node answered for longer than Options.Timeout.
func (c *Client) Result(ctx context.Context, id string) ([]byte, error) { return c.result(ctx, id, 0) }

// ResultOf is Result for what Start has answered. If the id was started again since, the result may be that of either
// incarnation. It costs less than Result, since the cluster need not confirm what cannot change.
func (c *Client) ResultOf(ctx context.Context, s Started) ([]byte, error) {
	return c.result(ctx, s.ID, s.Incarnation)
}

func (c *Client) result(ctx context.Context, id string, incarnation uint64) ([]byte, error) {
	for {
		asked := c.clock.Now()
		resp, err := c.poll(ctx, id, incarnation, pollWait)
		if err != nil {
			return nil, err
		}
		if resp.GetDone() {
			return Outcome(id, resp.GetStatus(), resp.GetOutcome())
		}
		c.breathe(ctx, asked)
	}
}

// pollPause is the least time between two polls of one call.
const pollPause = 50 * time.Millisecond

// breathe spaces polls that are answered at once (by a node that stops, say).
func (c *Client) breathe(ctx context.Context, asked time.Time) {
	if c.clock.Now().Sub(asked) >= pollPause {
		return
	}
	select {
	case <-c.clock.After(pollPause):
	case <-ctx.Done():
	}
}

// PollResult asks once whether the execution has finished, holding the question open for at most wait
// (up to a minute). done is false when it has not; result and err are as with Result.
func (c *Client) PollResult(ctx context.Context, id string, wait time.Duration) (result []byte, done bool, err error) {
	resp, err := c.poll(ctx, id, 0, wait)
	if err != nil || !resp.GetDone() {
		return nil, false, err
	}
	result, err = Outcome(id, resp.GetStatus(), resp.GetOutcome())
	return result, true, err
}

func (c *Client) poll(ctx context.Context, id string, incarnation uint64, wait time.Duration) (*perdurev1.ResultResponse, error) {
	var resp *perdurev1.ResultResponse
	wait = c.held(ctx, wait)
	err := c.call(ctx, "result", id, false, wait, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Result(ctx, &perdurev1.ResultRequest{
			Namespace: c.opts.Namespace, Id: id, Incarnation: incarnation, WaitMs: Millis(wait)})
		return err
	})
	return resp, err
}

// held is how long a server may hold back an answer: wait, but less than the time left in ctx.
func (c *Client) held(ctx context.Context, wait time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return max(0, min(wait, time.Minute))
}

// Outcome turns a finished execution's status and outcome into the results of Result.
func Outcome(id string, status Status, o *perdurev1.Outcome) ([]byte, error) {
	if status == perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED && o.GetFailure() == nil {
		return o.GetValue(), nil
	}
	f := o.GetFailure()
	if f == nil {
		f = &perdurev1.Failure{Type: "failed"}
		if status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
			f.Type = "cancelled"
		}
	}
	return nil, &ExecutionError{ID: id, Status: status, Failure: f}
}

// ReadOption changes how a read is made.
type ReadOption func(*readOptions)

type readOptions struct {
	level perdurev1.ReadLevel
	from  uint64
	wait  time.Duration
}

// Stale lets any replica answer from its own state: cheaper, and possibly behind. The default is
// linearizable.
func Stale() ReadOption {
	return func(o *readOptions) { o.level = perdurev1.ReadLevel_READ_LEVEL_STALE }
}

// FromSeq makes Journal begin at this sequence number.
func FromSeq(seq uint64) ReadOption { return func(o *readOptions) { o.from = seq } }

// Follow makes Journal continue after the last entry: it asks for new entries at this interval until the
// execution has finished.
func Follow(every time.Duration) ReadOption {
	return func(o *readOptions) { o.wait = max(every, time.Millisecond) }
}

func readOpts(opts []ReadOption) (o readOptions) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Describe reports everything about an execution except its journal.
func (c *Client) Describe(ctx context.Context, id string, opts ...ReadOption) (*perdurev1.Execution, error) {
	o := readOpts(opts)
	var resp *perdurev1.DescribeResponse
	err := c.call(ctx, "describe", id, false, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Describe(ctx, &perdurev1.DescribeRequest{
			Namespace: c.opts.Namespace, Id: id, Level: o.level})
		return err
	})
	return resp.GetExecution(), err
}

// Journal yields the entries of an execution's journal in order, page by page, as of when the last page
// is read. When a new incarnation begins meanwhile, its journal follows from its first entry, at sequence 0. An
// error is yielded once and ends it.
func (c *Client) Journal(ctx context.Context, id string, opts ...ReadOption) iter.Seq2[*perdurev1.JournalEntry, error] {
	o := readOpts(opts)
	return func(yield func(*perdurev1.JournalEntry, error) bool) {
		incarnation := uint64(0)
		for next := o.from; ; {
			var resp *perdurev1.JournalResponse
			err := c.call(ctx, "journal", id, false, 0, func(ctx context.Context, n *node) (err error) {
				resp, err = n.executions.Journal(ctx, &perdurev1.JournalRequest{
					Namespace: c.opts.Namespace, Id: id, FromSeq: next, Level: o.level})
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			if got := resp.GetIncarnation(); got != incarnation {
				if incarnation != 0 { // a new incarnation has begun: its journal from the start
					incarnation, next = got, 0
					continue
				}
				incarnation = got
			}
			ended := false
			for _, e := range resp.GetEntries() {
				next = e.GetSeq() + 1
				ended = ended || ends(e.GetEvent())
				if !yield(e, nil) {
					return
				}
			}
			switch {
			case ended:
				return
			case len(resp.GetEntries()) > 0 && next < resp.GetNextSeq():
			case o.wait == 0:
				return
			default:
				select {
				case <-c.clock.After(o.wait):
				case <-ctx.Done():
					yield(nil, ctx.Err())
					return
				}
			}
		}
	}
}

// ends reports whether nothing can follow this event in a journal.
func ends(e *perdurev1.Event) bool {
	switch e.GetKind().(type) {
	case *perdurev1.Event_ExecutionCompleted, *perdurev1.Event_ExecutionFailed, *perdurev1.Event_ExecutionCancelled:
		return true
	}
	return false
}

// ListOptions selects executions; the zero value selects all.
type ListOptions struct {
	// Status: any of these; none means every status.
	Status []Status
	// Function: exactly this name.
	Function string
	// IDPrefix: ids that begin so.
	IDPrefix string
	// Problem: only open executions whose worker gave the task back with a problem since their last commit, such as
	// code that does not fit the journal.
	Problem bool
	// Limit ends the listing after so many; 0 means no limit.
	Limit int
	// PageSize is how many one request fetches, at most 1,000; 0 leaves it to the server.
	PageSize int
	// Stale lets any replica answer.
	Stale bool
}

// List yields executions, newest first. An error is yielded once and ends it.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[*perdurev1.ExecutionSummary, error] {
	return func(yield func(*perdurev1.ExecutionSummary, error) bool) {
		req := &perdurev1.ListRequest{
			Namespace: c.opts.Namespace, Status: o.Status, Function: o.Function, IdPrefix: o.IDPrefix, Problem: o.Problem,
			Limit: uint32(max(0, min(o.PageSize, 1000))),
		}
		if o.Stale {
			req.Level = perdurev1.ReadLevel_READ_LEVEL_STALE
		}
		if o.Limit > 0 && o.PageSize == 0 {
			req.Limit = uint32(min(o.Limit, 1000))
		}
		for count := 0; ; {
			var resp *perdurev1.ListResponse
			err := c.call(ctx, "list", "", false, 0, func(ctx context.Context, n *node) (err error) {
				resp, err = n.executions.List(ctx, req)
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range resp.GetExecutions() {
				if count++; !yield(e, nil) || count == o.Limit {
					return
				}
			}
			if req.Cursor = resp.GetCursor(); len(req.Cursor) == 0 {
				return
			}
		}
	}
}

// Signal delivers a named value to an execution. It is buffered until the execution asks for it, first
// in first out by name. The payload is opaque here; package durable reads JSON by default.
func (c *Client) Signal(ctx context.Context, id, name string, payload []byte) error {
	r := c.NewRequest()
	return c.call(ctx, "signal", id, true, 0, func(ctx context.Context, n *node) error {
		_, err := n.executions.Signal(ctx, &perdurev1.SignalRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Name: name, Payload: payload})
		return err
	})
}

// SignalWithStart is Signal that starts the execution o.ID, in one change, if there is none, or if o.Reuse
// replaces the one that has ended. An open execution of the same function gets the signal, whatever its
// input. started reports whether this signal has started it. Errors are those of Start and Signal:
// ALREADY_FINISHED if it has ended and is not replaced, ID_CONFLICT if it runs another function.
func (c *Client) SignalWithStart(ctx context.Context, o StartOptions, name string, payload []byte) (started bool, err error) {
	r := c.NewRequest()
	var resp *perdurev1.SignalResponse
	err = c.call(ctx, "signal", o.ID, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Signal(ctx, &perdurev1.SignalRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: o.ID, Name: name, Payload: payload,
			Start: &perdurev1.StartRequest{Function: o.Function, Input: o.Input, TimeoutMs: Millis(o.Timeout), Tags: o.Tags,
				ComponentDigest: o.Digest, AllowUnknownFunction: o.AllowUnknownFunction, Reuse: o.Reuse}})
		return err
	})
	return resp.GetStarted(), err
}

// Cancel asks an execution to stop. Its worker may clean up for as long as grace (0: the server's 30 s);
// then it is ended. The status is the one after the request: CANCELLING, or the final one.
func (c *Client) Cancel(ctx context.Context, id, reason string, grace time.Duration) (Status, error) {
	r := c.NewRequest()
	var resp *perdurev1.CancelResponse
	err := c.call(ctx, "cancel", id, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Cancel(ctx, &perdurev1.CancelRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Reason: reason, GraceMs: Millis(grace)})
		return err
	})
	return resp.GetStatus(), err
}

// Cancelled is how an execution has ended after a cancel.
type Cancelled struct {
	// Status is CANCELLED, or what the execution had come to before the request.
	Status Status
	// CleanupID is the execution that has cleaned up after it; empty when there was none.
	CleanupID string
}

// CancelWait is Cancel that waits for the execution's end and then for that of its clean-up, until ctx ends.
// The error is an *ExecutionError if the clean-up has not completed.
func (c *Client) CancelWait(ctx context.Context, id, reason string, grace time.Duration) (out Cancelled, err error) {
	if _, err := c.Cancel(ctx, id, reason, grace); err != nil {
		return out, err
	}
	for {
		asked := c.clock.Now()
		resp, err := c.poll(ctx, id, 0, pollWait)
		if err != nil {
			return out, err
		}
		if resp.GetDone() {
			out = Cancelled{Status: resp.GetStatus(), CleanupID: resp.GetCleanupId()}
			break
		}
		c.breathe(ctx, asked)
	}
	if out.CleanupID != "" {
		_, err = c.Result(ctx, out.CleanupID)
	}
	return out, err
}

// Terminate ends an execution at once; its worker is not asked.
func (c *Client) Terminate(ctx context.Context, id, reason string) (Status, error) {
	r := c.NewRequest()
	var resp *perdurev1.TerminateResponse
	err := c.call(ctx, "terminate", id, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Terminate(ctx, &perdurev1.TerminateRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Reason: reason})
		return err
	})
	return resp.GetStatus(), err
}

// RestartOptions says what a new incarnation keeps; the zero value keeps the input alone.
type RestartOptions struct {
	// FromEvent, if positive, keeps the journal's entries before this one. A cut within a wait moves back to its
	// beginning.
	FromEvent uint64
	// FromFailure keeps the entries before the operation that failed last begins. The execution must have
	// failed or be stuck. With a Digest it may be any open one, which keeps all entries.
	FromFailure bool
	// NewChildren starts children again that are open at the cut; otherwise they continue, with their results.
	NewChildren bool
	// Digest is the new incarnation's component digest; empty keeps the previous incarnation's.
	Digest string
}

// Restarted is the answer of Restart.
type Restarted struct {
	Incarnation, Former uint64
	// Kept is how many entries of the journal are kept.
	Kept uint64
}

// Restart begins a new incarnation of an execution of a function, open or ended, under the same id. A caller that
// waits for an open execution's result gets the new incarnation's. Errors: *api.Error with RULE_BROKEN when
// the execution is part of another one, or its journal cannot be cut there.
func (c *Client) Restart(ctx context.Context, id string, o RestartOptions) (Restarted, error) {
	r := c.NewRequest()
	from := perdurev1.RestartFrom_RESTART_FROM_START
	switch {
	case o.FromFailure:
		from = perdurev1.RestartFrom_RESTART_FROM_FAILURE
	case o.FromEvent > 0:
		from = perdurev1.RestartFrom_RESTART_FROM_EVENT
	}
	var resp *perdurev1.RestartResponse
	err := c.call(ctx, "restart", id, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Restart(ctx, &perdurev1.RestartRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, From: from, Event: o.FromEvent,
			NewChildren: o.NewChildren, ComponentDigest: o.Digest})
		return err
	})
	return Restarted{Incarnation: resp.GetIncarnation(), Former: resp.GetFormerIncarnation(), Kept: resp.GetKeptEvents()}, err
}

// Millis is d in whole milliseconds as the wire counts them, rounded up; 0 for nothing or less.
func Millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Unavailable reports whether err means that no node could be reached or could serve, as opposed to a refusal: the
// cause is the cluster's state, not the request.
func Unavailable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown)
}
