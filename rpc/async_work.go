package rpc

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream/async"
	"perdure/partition"
)

// write is a call of a worker that puts one command into the log: a commit, a release. It needs no goroutine while the
// command is in the log of a partition that this node leads.
type write struct {
	async.Call
	w        *session
	in       *perdurev1.WorkRequest
	began    time.Time
	proposal partition.Proposal
	// task is the one that the command is about; answered makes the response of the reply.
	task     *perdurev1.TaskToken
	answered func(*session, *perdurev1.TaskToken, *commandv1.Reply) *perdurev1.WorkResponse
	pending  pendingAnswer
}

// pendingAnswer is a response to a call on its way to the worker.
type pendingAnswer struct {
	out *perdurev1.WorkResponse
	// credit is what the call grants if its answer ends the activation.
	credit uint32
	// release gives the request's bytes back.
	release func()
}

// isWrite reports whether a message is a call that puts one command into the log.
func isWrite(in *perdurev1.WorkRequest) bool {
	switch in.Kind.(type) {
	case *perdurev1.WorkRequest_Commit, *perdurev1.WorkRequest_CommitEntity, *perdurev1.WorkRequest_Release:
		return true
	}
	return false
}

// command checks a write and returns its command.
func (c *write) command() (*commandv1.Command, error) {
	switch k := c.in.Kind.(type) {
	case *perdurev1.WorkRequest_Commit:
		c.task, c.answered = k.Commit.Task, (*session).committed
		return c.w.commit(k.Commit)
	case *perdurev1.WorkRequest_CommitEntity:
		c.task, c.answered = k.CommitEntity.Task, (*session).committedEntity
		return c.w.commitEntity(k.CommitEntity)
	default:
		c.task, c.answered = c.in.GetRelease().GetTask(), (*session).released
		return c.w.release(c.in.GetRelease())
	}
}

// beginWrite begins a write. It does not block.
func (w *session) beginWrite(in *perdurev1.WorkRequest, release func()) {
	c := &write{w: w, in: in, began: time.Now(), pending: pendingAnswer{credit: creditOf(in), release: release}}
	c.Calls = w.async
	cmd, err := c.command()
	if err != nil {
		c.queue(nil, err)
		w.signal()
		return
	}
	c.proposal.Begin(w.s.router, cmd, c.began, c)
	if c.Begin(c, c.began, c.began.Add(writeTimeout)) {
		w.expire.Reset(async.ExpireEvery)
	}
}

// Step implements async.Handler.
func (c *write) Step() async.Next {
	reply, next, err := c.proposal.Outcome()
	if next == async.Done {
		c.queue(reply, err)
	}
	return next
}

// Block implements async.Handler.
func (c *write) Block() {
	ctx, cancel := context.WithDeadline(c.w.ctx, c.began.Add(writeTimeout))
	defer cancel()
	c.queue(c.proposal.Wait(ctx))
	c.w.signal()
}

// queue queues the answer to a write for the stream's writer.
func (c *write) queue(reply *commandv1.Reply, err error) {
	if err == nil {
		c.pending.out = c.answered(c.w, c.task, reply)
	} else {
		c.w.refused(c.task, err)
		c.pending.out = errorResponse(err)
	}
	c.pending.out.CallId = c.in.CallId
	c.w.queue(c.pending)
}

func errorResponse(err error) *perdurev1.WorkResponse {
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Error{Error: callError(err)}}
}

// queue queues an answer for the stream's writer.
func (w *session) queue(a pendingAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, a)
}

func (w *session) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// write runs the steps of the calls and sends their answers, until the stream ends.
func (w *session) write() {
	for {
		runtime.Gosched() // calls that one entry has ended are answered together
		w.async.Process()
		w.flush()
		select {
		case <-w.wake:
		case now := <-w.expire.C:
			if w.async.Expire(now) {
				w.expire.Reset(async.ExpireEvery)
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// flush sends the answers that are queued.
func (w *session) flush() {
	w.mu.Lock()
	answers := w.answers
	w.answers, w.spare = w.spare[:0], nil
	w.mu.Unlock()
	credit := 0
	for _, a := range answers {
		w.out = append(w.out, a.out)
		if endsActivation(a.out) {
			credit += int(min(a.credit, maxCapacity))
		}
	}
	_ = w.sendAll(w.out) // a broken stream ends the receive loop
	clear(w.out)
	w.out = w.out[:0]
	if credit > 0 {
		w.worker.AddCapacity(credit) // no task that uses it overtakes the answers
	}
	for _, a := range answers {
		w.ended(a.release)
	}
	clear(answers)
	w.mu.Lock()
	w.spare = answers
	w.mu.Unlock()
}

// ended ends a call.
func (w *session) ended(release func()) {
	<-w.calls
	w.under.end()
	release()
}

// committed makes the response to a commit.
func (w *session) committed(task *perdurev1.TaskToken, reply *commandv1.Reply) *perdurev1.WorkResponse {
	out := reply.GetCommit()
	if out.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		w.worker.Finished(task)
	}
	if len(out.Entries) > 0 && proto.Size(out) > maxReplyBytes {
		// Without entries the worker reads the journal, in pages.
		out = &perdurev1.CommitReply{State: out.State, Status: out.Status, NextSeq: out.NextSeq, NextChild: out.NextChild}
	}
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Commit{Commit: out}}
}

// committedEntity makes the response to a commit of an entity.
func (w *session) committedEntity(task *perdurev1.TaskToken, reply *commandv1.Reply) *perdurev1.WorkResponse {
	out := reply.GetCommitEntity()
	if out.Next == nil {
		w.worker.Finished(task)
	}
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_CommitEntity{CommitEntity: out}}
}

// released makes the response to a release.
func (w *session) released(task *perdurev1.TaskToken, _ *commandv1.Reply) *perdurev1.WorkResponse {
	w.worker.Finished(task)
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Release{Release: &perdurev1.ReleaseReply{}}}
}
