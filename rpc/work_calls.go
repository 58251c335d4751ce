package rpc

import (
	"context"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/partition/group"
)

func (w *session) call(in *perdurev1.WorkRequest) (*perdurev1.WorkResponse, error) {
	ctx, cancel := context.WithTimeout(w.ctx, writeTimeout)
	defer cancel()
	switch k := in.Kind.(type) {
	case *perdurev1.WorkRequest_Heartbeat:
		return w.heartbeat(ctx, k.Heartbeat)
	case *perdurev1.WorkRequest_ReadJournal:
		return w.readJournal(ctx, k.ReadJournal)
	case *perdurev1.WorkRequest_Hello:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "Hello is not the first message")
	default:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "unknown kind of message")
	}
}

// creditOf is the credit that a call grants when it ends its task's activation.
func creditOf(in *perdurev1.WorkRequest) uint32 {
	switch k := in.Kind.(type) {
	case *perdurev1.WorkRequest_Commit:
		return k.Commit.GetCredit()
	case *perdurev1.WorkRequest_CommitEntity:
		return k.CommitEntity.GetCredit()
	case *perdurev1.WorkRequest_Release:
		return k.Release.GetCredit()
	}
	return 0
}

// endsActivation reports whether the answer to a call ends its task's activation.
func endsActivation(out *perdurev1.WorkResponse) bool {
	switch k := out.Kind.(type) {
	case *perdurev1.WorkResponse_Commit:
		return k.Commit.GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED
	case *perdurev1.WorkResponse_CommitEntity:
		return k.CommitEntity.GetNext() == nil
	case *perdurev1.WorkResponse_Release:
		return true
	}
	return false
}

// own checks that a token is of the stream's namespace.
func (w *session) own(t *perdurev1.TaskToken) error {
	if t == nil {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the task token is missing")
	}
	if t.Namespace == "" {
		t.Namespace = w.ns
	}
	if t.Namespace != w.ns {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the task is of namespace %q, the stream of %q", t.Namespace, w.ns).With("id", short(t.Id))
	}
	if entity, ok := id.EntityOfTask(t.Id); ok {
		return entityID(entity)
	}
	return anyID(t.Id)
}

// commit checks a commit and returns its command.
func (w *session) commit(c *perdurev1.Commit) (*commandv1.Command, error) {
	rid, err := request(c.Request)
	if err := firstError(err, w.own(c.Task), commitForm(c)); err != nil {
		return nil, err
	}
	if c.Keeps { // before the task of the next version can come
		w.worker.Keeps(c.Task, c.KnownSeq)
	}
	c.Request, c.Credit, c.Keeps = nil, 0, false
	return &commandv1.Command{Request: rid, Namespace: c.Task.Namespace, Id: c.Task.Id, Kind: &commandv1.Command_Commit{Commit: c}}, nil
}

// refused records a task as no longer the worker's if the call failed for that.
func (w *session) refused(t *perdurev1.TaskToken, err error) {
	if api.Is(err, perdurev1.Reason_REASON_STALE_TASK) {
		w.worker.Finished(t)
	}
}

// commitForm checks the sizes and names in a commit.
func commitForm(c *perdurev1.Commit) error {
	if n := max(len(c.Events), len(c.Sends), len(c.Children)); n > id.MaxCommitItems {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "commit of %d events exceeds %d", n, id.MaxCommitItems).With("id", c.Task.GetId())
	}
	total := 0
	counted := func(n int) error {
		total += n
		return commitBytes(c.Task.GetId(), total)
	}
	sized := func(what, promise string, b []byte) error {
		if len(b) > id.MaxPayloadBytes {
			return payload(what+" of "+short(promise), b)
		}
		return counted(len(b))
	}
	failed := func(promise string, f *perdurev1.Failure) error {
		if f == nil {
			return nil
		}
		return firstError(failure("failure of "+short(promise), f), counted(failureBytes(f)))
	}
	for _, ev := range c.Events {
		var err error
		switch k := ev.Kind.(type) {
		case *perdurev1.Event_InvokeScheduled:
			e := k.InvokeScheduled
			err = firstError(function(e.FunctionName), sized("input", e.PromiseId, e.Input), anyID(e.PromiseId),
				text("retry policy", e.RetryPolicy, maxPolicyBytes))
		case *perdurev1.Event_InvokeCompleted:
			e := k.InvokeCompleted
			err = firstError(sized("result", e.PromiseId, e.Result.GetValue()), failed(e.PromiseId, e.Result.GetFailure()))
		case *perdurev1.Event_InvokeRetrying:
			err = failed(k.InvokeRetrying.PromiseId, k.InvokeRetrying.Error)
		case *perdurev1.Event_RandomGenerated:
			err = sized("value", k.RandomGenerated.PromiseId, k.RandomGenerated.Value)
		case *perdurev1.Event_ExecutionCompleted:
			err = sized("result", c.Task.GetId(), k.ExecutionCompleted.Result)
		case *perdurev1.Event_ExecutionFailed:
			err = failed(c.Task.GetId(), k.ExecutionFailed.Error)
		case *perdurev1.Event_ExecutionCancelled:
			err = reason(k.ExecutionCancelled.Reason)
		case *perdurev1.Event_ExecutionAwaiting:
			if k.ExecutionAwaiting.Kind == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
				err = name("signal", k.ExecutionAwaiting.SignalName)
			}
		case *perdurev1.Event_SignalReceived:
			e := k.SignalReceived
			err = firstError(name("signal", e.Name), sized("signal", e.PromiseId, e.Payload.GetValue()), failed(e.PromiseId, e.Payload.GetFailure()))
		}
		if err != nil {
			return err
		}
	}
	if next := c.ContinueAsNew; next != nil {
		if err := sized("input", c.Task.GetId(), next.Input); err != nil {
			return err
		}
	}
	for _, o := range c.Children {
		if err := firstError(tags(o.Tags), duration("timeout", o.TimeoutMs), duration("delay", o.DelayMs), optional(rootID, o.Id)); err != nil {
			return err
		}
	}
	for _, s := range c.Sends {
		var err error
		switch k := s.What.(type) {
		case *perdurev1.Send_Signal:
			err = firstError(anyID(k.Signal.Id), name("signal", k.Signal.Name), sized("signal", s.PromiseId, k.Signal.Payload))
		case *perdurev1.Send_Start:
			err = firstError(rootID(k.Start.Id), function(k.Start.Function), sized("input", s.PromiseId, k.Start.Input), tags(k.Start.Tags),
				duration("timeout", k.Start.TimeoutMs), duration("delay", k.Start.DelayMs))
		case *perdurev1.Send_EntityCall:
			err = firstError(entityID(k.EntityCall.Id), name("operation", k.EntityCall.Operation), sized("input", s.PromiseId, k.EntityCall.Input))
		case *perdurev1.Send_EntitySignal:
			err = firstError(entitySignal(k.EntitySignal), counted(len(k.EntitySignal.GetInput())))
		case *perdurev1.Send_EntityLocks:
			err = entityLocks(k.EntityLocks)
		}
		if err != nil {
			return err
		}
	}
	return duration("wait", c.WaitTimeoutMs)
}

// heartbeat extends the leases of the named tasks, with what their steps report, in all partitions
// concurrently. Tasks whose partition has not answered within a quarter of the lease are unknown in the
// reply; the request continues until the lease would expire.
func (w *session) heartbeat(_ context.Context, h *perdurev1.Heartbeat) (*perdurev1.WorkResponse, error) {
	if len(h.Tasks) > maxBeatTasks {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "heartbeat of %d tasks exceeds %d", len(h.Tasks), maxBeatTasks)
	}
	size := 0
	for _, t := range h.Tasks {
		if err := w.own(t); err != nil {
			return nil, err
		}
		size += len(t.Namespace) + len(t.Id)
	}
	if size > maxBeatBytes {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a heartbeat with %d bytes of ids exceeds %d", size, maxBeatBytes)
	}
	if err := stepHeartbeats(h.Steps, h.Tasks...); err != nil {
		return nil, err
	}
	steps := w.stepsByPartition(h.Steps)
	type answer struct {
		partition uint32
		reply     *commandv1.HeartbeatReply
	}
	asked := w.s.router.ByPartition(h.Tasks)
	answers := make(chan answer, len(asked))
	waiting := 0
	for p, tokens := range asked {
		select {
		case w.beats <- struct{}{}:
		default:
			continue // lateBeats requests are unanswered
		}
		waiting++
		go func() {
			defer func() { <-w.beats }()
			ctx, cancel := context.WithTimeout(w.ctx, w.lease)
			defer cancel()
			reply, err := w.s.router.Deliver(ctx, p, &commandv1.Command{Kind: &commandv1.Command_Heartbeat{
				Heartbeat: &commandv1.Heartbeat{Worker: w.worker.ID, Tasks: tokens, Steps: steps[p]}}})
			if err != nil {
				reply = nil
			}
			answers <- answer{p, reply.GetHeartbeat()}
		}()
	}
	timeout := time.NewTimer(w.lease / 4)
	defer timeout.Stop()
	out := &perdurev1.HeartbeatReply{}
	for late := false; waiting > 0 && !late; {
		select {
		case a := <-answers:
			waiting--
			if a.reply != nil {
				out.Lost = append(out.Lost, a.reply.Lost...)
				out.Cancelling = append(out.Cancelling, a.reply.Cancelling...)
				delete(asked, a.partition)
			}
		case <-timeout.C:
			late = true
		case <-w.ctx.Done():
			return nil, w.ctx.Err()
		}
	}
	for _, tokens := range asked {
		out.Unknown = append(out.Unknown, tokens...)
	}
	w.worker.Finished(out.Lost...)
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Heartbeat{Heartbeat: out}}, nil
}

// release checks a release and returns its command.
func (w *session) release(r *perdurev1.Release) (*commandv1.Command, error) {
	if err := firstError(w.own(r.Task), duration("delay", r.DelayMs), stepHeartbeats(r.Steps, r.Task)); err != nil {
		return nil, err
	}
	r.Credit, r.Code = 0, w.code
	return &commandv1.Command{Namespace: r.Task.Namespace, Id: r.Task.Id, Kind: &commandv1.Command_Release{Release: r}}, nil
}

func (w *session) readJournal(ctx context.Context, r *perdurev1.ReadJournal) (*perdurev1.WorkResponse, error) {
	if err := anyID(r.Id); err != nil {
		return nil, err
	}
	reply, _, err := w.s.router.Query(ctx, group.Linearizable, &commandv1.Query{Namespace: w.ns, Id: r.Id, Kind: &commandv1.Query_Journal{
		Journal: &perdurev1.JournalRequest{FromSeq: r.FromSeq}}})
	if err != nil {
		return nil, err
	}
	page := reply.GetJournal()
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Journal{Journal: &perdurev1.JournalPage{Entries: page.Entries, NextSeq: page.NextSeq}}}, nil
}

// commitBytes checks the size of all payloads of a commit.
func commitBytes(task string, total int) error {
	if total > id.MaxCommitBytes {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "commit payloads of %d bytes exceed %d", total, id.MaxCommitBytes).With("id", task)
	}
	return nil
}
