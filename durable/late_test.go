package durable

import (
	"context"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// lateWorker is a worker of one function with one step, which counts its runs, and the fake clock it goes by.
func lateWorker(t *testing.T, f *fakeServer, seen *events) (runs *counter, clock *fakeClock, w *Worker) {
	runs, clock = &counter{}, newFakeClock()
	w, _ = f.worker(WorkerOptions{Clock: clock, Lease: 8 * time.Second, OnEvent: seen.on}, NewFunction("f", func(ctx Context, in string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			runs.hit(in)
			return "done", nil
		})
	}))
	return runs, clock, w
}

// sleep advances the clock without running timers: the process is paused, or a message is under way.
func (c *fakeClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// message is a task as a leader made it, on its way.
func (f *fakeServer) message(ex *fakeExec, after uint64) *perdurev1.WorkResponse {
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Task{Task: f.task(ex, after)}}
}

// acquire gives a pending task to a worker whose message about it is delivered by the test.
func (f *fakeServer) acquire(c *fakeConn, ex *fakeExec) *perdurev1.WorkResponse {
	ex.parked, ex.state, ex.worker = false, perdurev1.TaskState_TASK_STATE_ACQUIRED, c.worker
	ex.version++
	return f.message(ex, c.stamp)
}

// park begins an execution that is delivered to no worker.
func (f *fakeServer) park(id string) *fakeExec {
	ex := f.newExec(id, "f")
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: []byte(`"` + id + `"`)}}})
	ex.state, ex.parked = perdurev1.TaskState_TASK_STATE_PENDING, true
	return ex
}

// A worker does not begin a task whose message was under way for longer than its lease, and which another
// worker has continued. The same holds for a paused process: it cannot tell the two cases apart.
func TestLateTaskIsNotBegun(t *testing.T) {
	f := newFake(t)
	var seen events
	runs, clock, w := lateWorker(t, f, &seen)
	f.mu.Lock()
	c := f.conns[0]
	ex := f.park("x")
	late := f.acquire(c, ex)
	f.expire(ex) // the lease ended, and another worker has the next version
	ex.parked, ex.state, ex.worker = false, perdurev1.TaskState_TASK_STATE_ACQUIRED, "another"
	ex.version++
	f.mu.Unlock()
	clock.sleep(8 * time.Second)
	c.send(late)
	f.wait("the question whether it is still ours", func() bool { return f.heartbeats >= 1 })
	until(t, "the answer", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 && len(w.held) == 0 })
	if n := runs.of("x"); n != 0 {
		t.Errorf("the step ran %d times without the task", n)
	}
	if seen.count(EventTask)+seen.count(EventLost)+seen.count(EventActivationEnded) != 0 {
		t.Errorf("the function was called for a task that was not the worker's: %v", seen.all)
	}
	f.wait("its credit", func() bool { return f.credits == 1 })
}

// A task that came late and is still the worker's is begun, with what its journal has by then.
func TestLateTaskIsConfirmed(t *testing.T) {
	f := newFake(t)
	var seen events
	runs, clock, _ := lateWorker(t, f, &seen)
	f.mu.Lock()
	c := f.conns[0]
	late := f.acquire(c, f.park("x"))
	f.mu.Unlock()
	clock.sleep(7 * time.Second) // in the margin
	c.send(late)
	if o := f.finished("x"); string(o.GetValue()) != `"done"` || runs.of("x") != 1 {
		t.Errorf("%v after %d runs", o, runs.of("x"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heartbeats == 0 {
		t.Error("it was begun although its lease was in doubt")
	}
}

// A task that arrives while its lease surely holds is begun at once.
func TestTaskInTimeIsNotAskedFor(t *testing.T) {
	f := newFake(t)
	var seen events
	_, clock, _ := lateWorker(t, f, &seen)
	f.mu.Lock()
	c := f.conns[0]
	late := f.acquire(c, f.park("x"))
	f.mu.Unlock()
	clock.sleep(6 * time.Second)
	c.send(late)
	f.finished("x")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heartbeats != 0 {
		t.Errorf("%d heartbeats", f.heartbeats)
	}
}

// A second message about a task that the worker has finished begins nothing, however fresh it looks: an earlier
// leader's, which waited behind a network cut while the new leader delivered the task too.
func TestFinishedTaskIsNotBegunAgain(t *testing.T) {
	f := newFake(t)
	var seen events
	runs, _, w := lateWorker(t, f, &seen)
	f.mu.Lock()
	c := f.conns[0]
	ex := f.park("x")
	first := f.acquire(c, ex)
	second := f.message(ex, c.stamp)
	f.mu.Unlock()
	c.send(first)
	f.finished("x")
	until(t, "the activation to end", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 })
	c.send(second)
	f.start("y", "f", `"y"`) // comes behind it
	f.finished("y")
	if n := runs.of("x"); n != 1 {
		t.Errorf("the step ran %d times", n)
	}
	if got := seen.count(EventTask); got != 2 {
		t.Errorf("the function was called for %d tasks", got)
	}
}

// An earlier version that comes while a later one is held, or was, begins nothing.
func TestEarlierVersionIsNotBegun(t *testing.T) {
	f := newFake(t)
	var seen events
	runs, _, w := lateWorker(t, f, &seen)
	f.mu.Lock()
	c := f.conns[0]
	ex := f.park("x")
	earlier := f.acquire(c, ex)
	f.expire(ex)
	later := f.acquire(c, ex)
	f.mu.Unlock()
	c.send(later)
	c.send(earlier)
	f.finished("x")
	until(t, "the activations to end", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 })
	c.send(earlier)
	f.start("y", "f", `"y"`)
	f.finished("y")
	if n := runs.of("x"); n != 1 {
		t.Errorf("the step ran %d times", n)
	}
}

// A process that is paused after it got a slot, and before its step is called, asks again: the check is the
// last thing before the step.
func TestLeaseEndsBeforeTheStep(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	var runs counter
	var seen events
	stopped := false
	f.onCommit = func(ex *fakeExec, c *perdurev1.Commit) fault {
		if !stopped && ex.id == "x" { // the intent is recorded, and its answer takes longer than the lease
			stopped = true
			clock.sleep(9 * time.Second)
		}
		return fault{}
	}
	f.worker(WorkerOptions{Clock: clock, Lease: 8 * time.Second, OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.heartbeats == 0 {
				t.Error("the step was called with a lease that is over")
			}
			runs.hit("x")
			return "done", nil
		}, WithIntent())
	}))
	f.start("x", "f", "")
	f.finished("x")
	if n := runs.of("x"); n != 1 {
		t.Errorf("the step ran %d times", n)
	}
}

// A heartbeat that the node could not pass on to a task's partition extends nothing, though it is answered.
func TestUnknownLeaseIsNotExtended(t *testing.T) {
	f := newFake(t)
	f.unknown = true
	var seen events
	runs, clock, w := lateWorker(t, f, &seen)
	f.mu.Lock()
	c := f.conns[0]
	late := f.acquire(c, f.park("x"))
	f.mu.Unlock()
	clock.sleep(7 * time.Second) // in the margin
	c.send(late)
	f.wait("a heartbeat", func() bool { return f.heartbeats >= 1 })
	token := late.GetTask().GetToken()
	held := w.holdOf(token)
	if held == nil {
		t.Fatal("the task has ended, or was given up, while nothing was known of its lease")
	}
	// One more answer, which is taken before the call returns.
	s, again := w.session(), uint64(1<<60)
	s.beatsMu.Lock()
	s.beats[again] = heartbeat{clock.Now(), []*hold{held}, nil}
	s.beatsMu.Unlock()
	s.beatAnswered(again, &perdurev1.HeartbeatReply{Unknown: []*perdurev1.TaskToken{token}})
	if left := held.leaseLeft(clock.Now()); left > 0 {
		t.Errorf("%v are left of a lease of which nothing was known", left)
	}
	if n := runs.of("x"); n != 0 {
		t.Errorf("the step ran %d times under a lease of which nothing was known", n)
	}
	f.mu.Lock()
	f.unknown = false
	f.mu.Unlock()
	clock.pass(t, 8*time.Second/3)
	if f.finished("x"); runs.of("x") != 1 {
		t.Errorf("the step ran %d times", runs.of("x"))
	}
}

// A node that does not extend leases is left a quarter of a lease after it was asked to, and one that hangs a quarter
// after that: the rest is for the way to a third node.
func TestNodesThatExtendNothingAreLeft(t *testing.T) {
	const lease, third = 8 * time.Second, 8 * time.Second / 3
	f := newFake(t)
	f.others = 2
	f.hangs = func(n int) bool { return n == 2 }
	clock := newFakeClock()
	release := make(chan struct{})
	w, _ := f.worker(WorkerOptions{Clock: clock, Lease: lease}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			<-release
			return "done", nil
		})
	}))
	f.start("x", "f", "")
	until(t, "the task to be held", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.held) == 1 })
	beats(t, f, w, clock, third)
	until(t, "the lease to be extended", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, activation := range w.held {
			if !activation.askedAt.IsZero() {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	f.unknown = true
	f.mu.Unlock()
	beats(t, f, w, clock, third) // says nothing of the lease, of which a third is over
	at := clock.Now().Add(lease / 4)
	clock.reach(t, at)
	at = at.Add(reconnectMin)
	clock.reach(t, at)
	f.wait("a second stream", func() bool { return len(f.hellos) == 2 })
	at = at.Add(lease / 4)
	clock.reach(t, at)
	clock.reach(t, at.Add(2*reconnectMin))
	f.wait("a third stream", func() bool { return len(f.hellos) == 3 && len(f.hellos[2].Held) == 1 })
	close(release)
	f.finished("x")
}
