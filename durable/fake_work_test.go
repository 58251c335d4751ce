package durable

import (
	"errors"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/journal"
)

// Work is the stream of one worker.
func (f *fakeServer) Work(stream perdurev1.Tasks_WorkServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	c := &fakeConn{f: f, worker: hello.GetWorkerId(), functions: hello.GetFunctions(), cleanups: hello.GetCleanups(), credit: int(hello.GetCapacity()),
		stamp: first.GetTimestamp(), out: make(chan *perdurev1.WorkResponse, 1000), broken: make(chan struct{})}
	f.mu.Lock()
	f.hellos = append(f.hellos, hello)
	if f.hangs != nil && f.hangs(len(f.hellos)) {
		f.touch()
		f.mu.Unlock()
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	if f.refuse != nil {
		if err := f.refuse(len(f.hellos)); err != nil {
			f.touch()
			f.mu.Unlock()
			return err
		}
	}
	f.conns = slices.DeleteFunc(f.conns, func(o *fakeConn) bool { // an earlier stream's capacity ends with it
		if o.worker == c.worker {
			o.breakOff()
		}
		return o.worker == c.worker
	})
	welcome := &perdurev1.Welcome{NodeId: f.split.name(), LeaseMs: hello.GetLeaseMs()}
	held := map[tokenKey]bool{}
	for _, token := range hello.GetHeld() {
		switch {
		case f.split.owner(token) != nil: // that node answers for it
		case f.holds(token, c.worker):
			held[keyOf(token)] = true
		default:
			welcome.Lost = append(welcome.Lost, token)
		}
	}
	c.send(&perdurev1.WorkResponse{CallId: first.GetCallId(), Kind: &perdurev1.WorkResponse_Welcome{Welcome: welcome}})
	for _, ex := range f.execs {
		if ex.state == perdurev1.TaskState_TASK_STATE_ACQUIRED && ex.worker == c.worker && !held[keyOf(ex.token())] {
			f.hand(c, ex, 0)
		}
	}
	c.splits = hello.GetSplitsCredit()
	f.split.welcomed(c)
	f.conns = append(f.conns, c)
	f.dispatch()
	f.mu.Unlock()

	go func() {
		defer c.breakOff()
		for {
			m, err := stream.Recv()
			if err != nil {
				break
			}
			if f.split.forward(c, m) {
				continue
			}
			f.mu.Lock()
			c.stamp = max(c.stamp, m.GetTimestamp())
			f.handle(c, m)
			f.mu.Unlock()
		}
		f.mu.Lock()
		f.conns = slices.DeleteFunc(f.conns, func(o *fakeConn) bool { return o == c })
		f.touch()
		f.mu.Unlock()
	}()
	for {
		select {
		case m := <-c.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-c.broken:
			return status.Error(codes.Unavailable, "fake: stream broken")
		}
	}
}

func (f *fakeServer) holds(token *perdurev1.TaskToken, worker string) bool {
	ex := f.execs[token.GetId()]
	return ex != nil && ex.state == perdurev1.TaskState_TASK_STATE_ACQUIRED && ex.worker == worker && proto.Equal(ex.token(), token)
}

func (f *fakeServer) handle(c *fakeConn, m *perdurev1.WorkRequest) {
	reply := func(r *perdurev1.WorkResponse) {
		r.CallId = m.GetCallId()
		c.send(r)
	}
	refuse := func(reason perdurev1.Reason, text string) {
		reply(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Error{Error: &perdurev1.CallError{Reason: reason, Message: text}}})
	}
	switch k := m.GetKind().(type) {
	case *perdurev1.WorkRequest_Credit:
		f.credits += int(k.Credit.GetTasks())
		c.credit += int(k.Credit.GetTasks())
		f.dispatch()
	case *perdurev1.WorkRequest_RevokeCredit:
		n := min(c.credit, int(k.RevokeCredit.GetTasks()))
		c.credit -= n
		f.touch()
		c.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_CreditReturned{CreditReturned: &perdurev1.CreditReturned{Tasks: uint32(n)}}})
	case *perdurev1.WorkRequest_Heartbeat:
		f.heartbeats++
		f.beatSteps = append(f.beatSteps, len(k.Heartbeat.GetSteps()))
		defer f.touch()
		if f.deaf {
			return
		}
		r := &perdurev1.HeartbeatReply{}
		for _, token := range k.Heartbeat.GetTasks() {
			if f.split.owner(token) != nil {
				continue
			} else if f.unknown {
				r.Unknown = append(r.Unknown, token)
			} else if !f.holds(token, c.worker) {
				r.Lost = append(r.Lost, token)
			} else {
				f.report(token, k.Heartbeat.GetSteps())
				if f.execs[token.GetId()].j.Status() == journal.StatusCancelling {
					r.Cancelling = append(r.Cancelling, token)
				}
			}
		}
		reply(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Heartbeat{Heartbeat: r}})
	case *perdurev1.WorkRequest_ReadJournal:
		ex := f.execs[k.ReadJournal.GetId()]
		f.pages++
		page := &perdurev1.JournalPage{NextSeq: ex.j.NextSeq(), Entries: slices.Clone(ex.entries[k.ReadJournal.GetFromSeq():])}
		if f.page > 0 && len(page.Entries) > f.page {
			page.Entries = page.Entries[:f.page]
		}
		reply(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Journal{Journal: page}})
	case *perdurev1.WorkRequest_Release:
		r := k.Release
		if !f.holds(r.GetTask(), c.worker) {
			refuse(perdurev1.Reason_REASON_STALE_TASK, "stale")
			return
		}
		ex := f.execs[r.GetTask().GetId()]
		ex.state, ex.worker = perdurev1.TaskState_TASK_STATE_PENDING, ""
		f.report(r.GetTask(), r.GetSteps())
		ex.parked = r.GetProblem() != "" || r.GetDelayMs() > 0
		f.releases = append(f.releases, r)
		c.credit += int(r.GetCredit())
		f.touch()
		reply(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Release{Release: &perdurev1.ReleaseReply{}}})
		f.dispatch()
	case *perdurev1.WorkRequest_Commit:
		f.commit(c, k.Commit, reply, refuse)
	}
}

func (f *fakeServer) commit(c *fakeConn, m *perdurev1.Commit, reply func(*perdurev1.WorkResponse), refuse func(perdurev1.Reason, string)) {
	defer f.touch()
	rid := string(m.GetRequest().GetId())
	if len(rid) != 16 {
		f.t.Errorf("fake: request id of %d bytes", len(rid))
	}
	grant := func(r *perdurev1.CommitReply) {
		if r.GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED {
			c.credit += int(m.GetCredit())
		}
	}
	answer := func(r *perdurev1.CommitReply) {
		grant(r)
		f.touch() // before the worker learns of it, and grants the credit to another node
		reply(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Commit{Commit: r}})
	}
	if r := f.replies[rid]; r != nil {
		answer(r)
		f.dispatch()
		return
	}
	ex := f.execs[m.GetTask().GetId()]
	var fa fault
	if f.onCommit != nil && ex != nil {
		fa = f.onCommit(ex, m)
	}
	if fa.before {
		c.breakOff()
		return
	}
	if fa.reason != 0 {
		refuse(fa.reason, "fault")
		return
	}
	if fa.late && fa.lost { // its lease ends before it is applied
		f.stale++
		ex.late = func() { refuse(perdurev1.Reason_REASON_STALE_TASK, "stale") }
		ex.state, ex.worker = perdurev1.TaskState_TASK_STATE_PENDING, ""
		f.dispatch()
		return
	}
	if !f.holds(m.GetTask(), c.worker) {
		f.stale++
		f.touch()
		refuse(perdurev1.Reason_REASON_STALE_TASK, "stale")
		return
	}
	if m.GetNextChild() != ex.j.NextChild() {
		f.t.Errorf("fake: %s: next child %d, the commit says %d", ex.id, ex.j.NextChild(), m.GetNextChild())
		refuse(perdurev1.Reason_REASON_RULE_BROKEN, "next_child")
		return
	}
	f.commits = append(f.commits, m)
	if m.GetKeeps() && !f.whole {
		if c.kept == nil {
			c.kept = map[tokenKey]uint64{}
		}
		next := keyOf(m.GetTask())
		next.version++
		c.kept[next] = m.GetKnownSeq()
	}
	r := f.apply(ex, m)
	f.replies[rid] = r
	switch {
	case fa.after:
		c.breakOff()
	case fa.late:
		grant(r)
		ex.late = func() { reply(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Commit{Commit: r}}) }
	default:
		answer(r)
	}
	if fa.lost {
		f.expire(ex)
	}
	if r.GetState() == perdurev1.TaskState_TASK_STATE_FULFILLED {
		f.startCleanup(ex)
		f.tellParent(ex)
	}
	if ex.state == perdurev1.TaskState_TASK_STATE_SUSPENDED {
		f.world(ex)
	}
	f.dispatch()
}

// apply records a commit as the machine does, and builds its reply.
func (f *fakeServer) apply(ex *fakeExec, m *perdurev1.Commit) *perdurev1.CommitReply {
	r := &perdurev1.CommitReply{State: perdurev1.TaskState_TASK_STATE_ACQUIRED}
	r.Entries = append(r.Entries, ex.entries[m.GetKnownSeq():]...)
	add := func(ev *perdurev1.Event) {
		f.append(ex, ev)
		r.Entries = append(r.Entries, ex.entries[len(ex.entries)-1])
	}
	if ex.j.Status() != journal.StatusCancelling && m.GetCleanupMs() != 0 {
		ex.cleanupMS = max(m.GetCleanupMs(), 0)
	}
	for _, ev := range m.GetEvents() {
		if ex.j.Status() == journal.StatusCancelling {
			done := ev.GetInvokeCompleted()
			switch {
			case done != nil:
				if inv, ok := ex.j.Invoke(id.PromiseID(done.GetPromiseId())); ok && inv.Open == done.GetAttempt() {
					f.append(ex, ev)
				}
			case ev.GetExecutionCancelled() != nil:
				f.append(ex, ev)
				r.State = perdurev1.TaskState_TASK_STATE_FULFILLED
			}
			continue
		}
		if w := ev.GetExecutionAwaiting(); w != nil {
			var needless *journal.Violation
			if errors.As(ex.j.Check(ex.j.NextSeq(), toJournal(ev)), &needless) && needless.Rule == journal.RuleNeedlessWait {
				if w.GetKind() == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
					add(f.receipt(ex, w.GetWaitingOn()[0], w.GetSignalName()))
				}
				continue
			}
			r.State = perdurev1.TaskState_TASK_STATE_SUSPENDED
		}
		f.append(ex, ev)
		if s := ev.GetInvokeScheduled(); s != nil && s.GetKind() != perdurev1.InvokeKind_INVOKE_KIND_STEP && s.GetKind() != perdurev1.InvokeKind_INVOKE_KIND_HTTP {
			add(started(s.GetPromiseId(), 1))
			if s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SEND {
				at := slices.IndexFunc(m.GetSends(), func(x *perdurev1.Send) bool { return x.GetPromiseId() == s.GetPromiseId() })
				if at < 0 {
					f.t.Errorf("fake: nothing to send for %s", s.GetPromiseId())
				} else {
					f.sent = append(f.sent, m.GetSends()[at].GetSignal())
				}
				switch target := string(s.GetInput()); {
				case at >= 0 && f.openOperation(ex, s, m.GetSends()[at], add):
				case f.children[s.GetFunctionName()] != nil:
				case f.missing[target]:
					add(completed(s.GetPromiseId(), 1, failure(TypeTargetNotFound, "no execution "+target)))
				default:
					add(completed(s.GetPromiseId(), 1, &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{}}))
				}
			} else if s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SIGNAL {
				f.openOperation(ex, s, nil, add)
			} else if f.children[s.GetFunctionName()] == nil {
				f.begin(s.GetPromiseId(), s.GetFunctionName(), ex.id, s.GetInput())
			}
		}
		if ev.GetExecutionCompleted() != nil || ev.GetExecutionFailed() != nil {
			r.State = perdurev1.TaskState_TASK_STATE_FULFILLED
		}
	}
	if next := m.GetContinueAsNew(); next != nil {
		r.State, r.Entries = perdurev1.TaskState_TASK_STATE_PENDING, nil
		f.former[ex.id], ex.state, ex.worker = ex.entries, perdurev1.TaskState_TASK_STATE_FULFILLED, ""
		f.begin(ex.id, ex.function, "", next.GetInput())
		return r
	}
	ex.state = r.State
	r.Status, r.NextSeq, r.NextChild = perdurev1.ExecutionStatus(ex.j.Status()), ex.j.NextSeq(), ex.j.NextChild()
	if r.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		r.Entries = nil
		ex.worker = ""
	}
	return r
}

// startCleanup starts the clean-up of an execution that was cancelled.
func (f *fakeServer) startCleanup(ex *fakeExec) {
	if ex.j.Status() != journal.StatusCancelled || ex.cleanupMS == 0 {
		return
	}
	clean := f.newExec(string(id.PromiseID(ex.id).Child(math.MaxUint32)), ex.function)
	clean.cleanupOf = ex
	f.append(clean, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{ParentId: ex.id}}})
	clean.state = perdurev1.TaskState_TASK_STATE_PENDING
}

// endGrace ends a cancelling execution without its worker.
func (f *fakeServer) endGrace(executionID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ex := f.execs[executionID]
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: "grace"}}})
	ex.state, ex.worker = perdurev1.TaskState_TASK_STATE_FULFILLED, ""
	ex.version++
	f.startCleanup(ex)
	f.dispatch()
}

// tellParent hands a child's end to its parent.
func (f *fakeServer) tellParent(ex *fakeExec) {
	parent := f.execs[ex.entries[0].GetEvent().GetExecutionStarted().GetParentId()]
	if parent == nil || parent.j.Status().Terminal() {
		return
	}
	f.append(parent, completed(ex.id, 1, outcomeOf(ex)))
	f.resume(parent)
}

// outcomeOf is how a finished execution ended.
func outcomeOf(ex *fakeExec) *perdurev1.Outcome {
	switch k := ex.entries[len(ex.entries)-1].GetEvent().GetKind().(type) {
	case *perdurev1.Event_ExecutionCompleted:
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: k.ExecutionCompleted.GetResult()}}
	case *perdurev1.Event_ExecutionFailed:
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: k.ExecutionFailed.GetError()}}
	case *perdurev1.Event_ExecutionCancelled:
		return failure(TypeCancelled, k.ExecutionCancelled.GetReason())
	}
	return nil
}

// finished waits until an execution has ended, checks its whole journal, and returns how it ended.
func (f *fakeServer) finished(eid string) *perdurev1.Outcome {
	f.t.Helper()
	f.wait("the end of "+eid, func() bool { return f.execs[eid] != nil && f.execs[eid].j.Status().Terminal() })
	f.mu.Lock()
	defer f.mu.Unlock()
	ex := f.execs[eid]
	var entries []journal.Entry
	for _, e := range ex.entries {
		entries = append(entries, journal.Entry{Seq: e.GetSeq(), Event: toJournal(e.GetEvent())})
	}
	for _, v := range journal.Check(id.PromiseID(eid), entries, journal.WithRetryBound(func(policy string) int { return attemptsOf(policy, 4) - 1 })) {
		f.t.Errorf("journal of %s: %v", eid, v)
	}
	return outcomeOf(ex)
}

// journalOf is a copy of an execution's journal.
func (f *fakeServer) journalOf(eid string) []*perdurev1.JournalEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.execs[eid].entries)
}
