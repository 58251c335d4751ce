package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
)

// outboundProblemDelay is the delay of a task's next delivery after its result was refused.
const outboundProblemDelay = 10 * time.Second

// outboundCall is one task and its HTTP call.
type outboundCall struct {
	o       *Outbound
	session *outboundSession
	task    *perdurev1.Task
	key     string
	// ctx ends with a cause when the task is lost, cancelled, or the node stops.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// confirmed is a moment from which the lease surely held for its whole length, the zero time if none is known;
	// begun: the service may have been called. Both are guarded by the lock of o.
	confirmed time.Time
	begun     bool
}

func callKey(t *perdurev1.TaskToken) string { return t.Namespace + "\x00" + t.Id }

func (c *outboundCall) is(t *perdurev1.TaskToken) bool { return proto.Equal(c.task.Token, t) }

// run performs the call and commits its result.
func (c *outboundCall) run() {
	if c.task.Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		c.commit(cancelledEvent())
		return
	}
	input, err := c.input()
	if err != nil {
		if c.ctx.Err() == nil {
			c.release("its input cannot be read: "+err.Error(), outboundProblemDelay)
		} else if errors.Is(context.Cause(c.ctx), errCallStopped) {
			c.release("", 0)
		}
		return
	}
	c.secureLease()
	result, failed := callService(c.ctx, c.o.client, &c.o.cfg.Policy, c.o.agent, input)
	switch cause := context.Cause(c.ctx); {
	case errors.Is(cause, errCallLost):
	case failed != nil:
		c.commit(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: failed}}})
	case result != nil:
		c.commit(&perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: result}}})
	case errors.Is(cause, errCallCancelled):
		c.commit(cancelledEvent())
	case errors.Is(cause, errCallStopped):
		c.release("", 0)
	}
}

// sinceEither is the time since a moment, by the clock on which more has passed. The monotonic clock pauses
// in a suspended machine; the wall clock may be set back.
func sinceEither(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

// secureLease blocks until the service may be called: the lease surely holds, and an eighth of it is left. It
// asks the partition while that is unknown: this process may have been paused, or the node may have lost its
// leadership. It also returns when the call's context has ended; then nothing is called.
func (c *outboundCall) secureLease() {
	o := c.o
	for pause := 5 * time.Millisecond; c.ctx.Err() == nil; pause = min(2*pause, 500*time.Millisecond) {
		now := time.Now()
		o.mu.Lock()
		c.begun = !c.confirmed.IsZero() && sinceEither(c.confirmed, now) < o.cfg.Lease-o.cfg.Lease/8
		begun := c.begun
		o.mu.Unlock()
		if begun {
			return
		}
		o.heartbeat(c.session, o.router.PartitionOf(c.task.Token.Namespace, c.task.Token.Id), []*perdurev1.TaskToken{c.task.Token})
		o.mu.Lock()
		extended := !c.confirmed.Before(now)
		o.mu.Unlock()
		if extended {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

func cancelledEvent() *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: "cancelled"}}}
}

// input is the input of the call's execution.
func (c *outboundCall) input() ([]byte, error) {
	entries := c.task.Entries
	if len(entries) == 0 {
		ctx, cancel := context.WithTimeout(c.ctx, writeTimeout)
		defer cancel()
		reply, _, err := c.o.router.Query(ctx, group.Linearizable, &commandv1.Query{Namespace: c.task.Token.Namespace, Id: c.task.Token.Id,
			Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{}}})
		if err != nil {
			return nil, err
		}
		entries = reply.GetJournal().Entries
	}
	if len(entries) == 0 || entries[0].GetEvent().GetExecutionStarted() == nil {
		return nil, errors.New("its journal does not begin with ExecutionStarted")
	}
	return entries[0].Event.GetExecutionStarted().Input, nil
}

// commit commits the call's end, and repeats that until the partition takes it, or refuses it because the
// task is not the node's any more. After any other refusal a further attempt would call the service for ever.
// So commit releases the task with the problem, and it is delivered again after outboundProblemDelay.
func (c *outboundCall) commit(end *perdurev1.Event) {
	rid, err := request(nil)
	if err != nil {
		c.o.log.Error("cannot read random bytes", "event", "http_commit_failed", "error", err)
		return
	}
	began := time.Now()
	err = c.persist(func(ctx context.Context) error {
		rid.AgeMs = uint64(time.Since(began).Milliseconds())
		_, err := c.o.router.Propose(ctx, &commandv1.Command{Request: proto.CloneOf(rid), Namespace: c.task.Token.Namespace, Id: c.task.Token.Id,
			Kind: &commandv1.Command_Commit{Commit: &perdurev1.Commit{Task: c.task.Token, KnownSeq: c.task.NextSeq, Events: []*perdurev1.Event{end}}}})
		return err
	})
	switch {
	case err == nil, c.notOurs(err):
	default:
		c.o.log.Warn("cannot commit HTTP call", "event", "http_commit_failed", "namespace", c.task.Token.Namespace,
			"id", c.task.Token.Id, "error", err)
		c.release(fmt.Sprintf("its end was not taken: %v", err), outboundProblemDelay)
	}
}

func (c *outboundCall) release(problem string, delay time.Duration) {
	err := c.persist(func(ctx context.Context) error {
		_, err := c.o.router.Propose(ctx, &commandv1.Command{Namespace: c.task.Token.Namespace, Id: c.task.Token.Id,
			Kind: &commandv1.Command_Release{Release: &perdurev1.Release{Task: c.task.Token, Problem: excerpt([]byte(problem)), DelayMs: delay.Milliseconds()}}})
		return err
	})
	if err != nil && !c.notOurs(err) {
		c.o.log.Warn("cannot release HTTP call", "event", "http_release_failed", "namespace", c.task.Token.Namespace,
			"id", c.task.Token.Id, "error", err)
	}
}

// notOurs reports whether a refusal says that the task is not the node's any more.
func (c *outboundCall) notOurs(err error) bool {
	return api.Is(err, perdurev1.Reason_REASON_STALE_TASK) || api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) ||
		api.Is(err, perdurev1.Reason_REASON_ALREADY_FINISHED) || errors.Is(context.Cause(c.ctx), errCallLost)
}

// persist repeats a request that was surely not applied, or may be applied twice, until it works, the task is
// lost or the node has stopped.
func (c *outboundCall) persist(try func(ctx context.Context) error) error {
	pause := 5 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(c.o.sends, writeTimeout)
		err := try(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case !isRetryable(err):
			return err
		}
		if errors.Is(context.Cause(c.ctx), errCallLost) || c.o.sends.Err() != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.o.sends.Done():
		}
		timer.Stop()
		pause = min(2*pause, 500*time.Millisecond)
	}
}

// beating sends heartbeats for the calls under way until the node has stopped.
func (o *Outbound) beating() {
	defer o.wg.Done()
	every := time.NewTicker(max(o.cfg.Lease/3, time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-every.C:
			o.beat()
		case <-o.sends.Done():
			return
		}
	}
}

// beat sends heartbeats to the partitions of all tasks under way. It does not wait for the answers.
func (o *Outbound) beat() {
	held := map[*outboundSession][]*perdurev1.TaskToken{}
	now := time.Now()
	o.mu.Lock()
	for _, c := range o.calls {
		if c.begun && sinceEither(c.confirmed, now) > o.cfg.Lease {
			c.cancel(errCallLost) // no answer has confirmed it for a whole lease
			continue
		}
		held[c.session] = append(held[c.session], c.task.Token)
	}
	o.mu.Unlock()
	for s, tokens := range held {
		for p, part := range o.router.ByPartition(tokens) {
			o.wg.Add(1)
			go func() {
				defer o.wg.Done()
				o.heartbeat(s, p, part)
			}()
		}
	}
}

// heartbeat sends one partition the tokens of a worker's tasks, and ends the calls that it reports as lost or
// cancelled.
func (o *Outbound) heartbeat(s *outboundSession, p uint32, tokens []*perdurev1.TaskToken) {
	ctx, cancel := context.WithTimeout(o.sends, o.cfg.Lease)
	defer cancel()
	sent := time.Now()
	reply, err := o.router.Deliver(ctx, p, &commandv1.Command{Kind: &commandv1.Command_Heartbeat{
		Heartbeat: &commandv1.Heartbeat{Worker: s.worker.ID, Tasks: tokens}}})
	if err != nil {
		return // the next one may come through
	}
	beat := reply.GetHeartbeat()
	for _, t := range beat.GetLost() {
		o.end(t, errCallLost)
	}
	for _, t := range beat.GetCancelling() {
		o.end(t, errCallCancelled)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range tokens {
		if c := o.calls[callKey(t)]; c != nil && c.is(t) && c.confirmed.Before(sent) {
			c.confirmed = sent
		}
	}
}
