package durable

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// beats lets a third of the lease pass, and waits until the heartbeat was sent and answered.
func beats(t *testing.T, f *fakeServer, w *Worker, clock *fakeClock, third time.Duration) {
	t.Helper()
	f.mu.Lock()
	n := f.heartbeats
	f.mu.Unlock()
	clock.pass(t, third)
	f.wait("a heartbeat", func() bool { return f.heartbeats > n })
	until(t, "its answer", func() bool { return w.session().silent.Load() == 0 })
}

func TestHeartbeats(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	release := make(chan struct{})
	ended := make(chan error, 2)
	var seen events
	var running atomic.Int32
	w, _ := f.worker(WorkerOptions{Clock: clock, Lease: 9 * time.Second, OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			running.Add(1)
			select {
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return "", ctx.Err()
			case <-release:
				return "done", nil
			}
		})
	}))
	f.start("x", "f", "")
	f.start("y", "f", "")
	until(t, "both steps", func() bool { return running.Load() == 2 })
	for range 3 {
		beats(t, f, w, clock, 3*time.Second)
	}
	if seen.count(EventLost) != 0 {
		t.Error("a task was lost although heartbeats were sent")
	}
	// The lease of one ends (say the worker was stopped for a while): its step's context ends, nothing is
	// committed for it, and its capacity is announced again.
	f.mu.Lock()
	f.expire(f.execs["x"])
	f.execs["x"].parked = true
	f.mu.Unlock()
	clock.pass(t, 3*time.Second)
	select {
	case err := <-ended:
		if !errors.Is(err, errLost) {
			t.Errorf("the step ended by %v", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("the lost step was not cancelled")
	}
	f.wait("the credit", func() bool { return f.credits == 1 })
	close(release)
	if o := f.finished("y"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
	if n := len(f.journalOf("x")); n != 1 || len(f.releases) != 0 {
		t.Errorf("the lost execution has %d entries, %d releases", n, len(f.releases))
	}
	f.wake("x")
	f.finished("x")
	if got := seen.count(EventLost); got != 1 {
		t.Errorf("%d lost", got)
	}
}

// A node that answers no heartbeat is left, and what is held is kept.
func TestUnansweredHeartbeat(t *testing.T) {
	f := newFake(t)
	f.deaf = true
	clock := newFakeClock()
	release := make(chan struct{})
	running := make(chan struct{})
	f.worker(WorkerOptions{Clock: clock, Lease: 9 * time.Second}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			close(running)
			<-release
			return "done", ctx.Err()
		})
	}))
	f.start("x", "f", "")
	<-running
	for i := range maxUnansweredBeats {
		clock.pass(t, 3*time.Second)
		f.wait("a heartbeat", func() bool { return f.heartbeats == i+1 })
	}
	clock.pass(t, 3*time.Second)
	clock.pass(t, reconnectMin)
	f.wait("another stream", func() bool { return len(f.hellos) == 2 })
	f.mu.Lock()
	f.deaf = false
	f.mu.Unlock()
	if held := f.hellos[1].GetHeld(); len(held) != 1 || held[0].GetId() != "x" || held[0].GetVersion() != 1 {
		t.Errorf("held %v", held)
	}
	close(release)
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
}

// A task that was lost while the stream was broken ends without effect. The worker repeats its unanswered commit, which
// the server refuses.
func TestLostWhileDisconnected(t *testing.T) {
	f := newFake(t)
	var seen events
	var n counter
	asked := 0
	f.onCommit = func(ex *fakeExec, _ *perdurev1.Commit) fault {
		asked++
		if asked > 1 {
			return fault{}
		}
		f.expire(ex)
		ex.parked = true
		return fault{before: true}
	}
	f.worker(WorkerOptions{OnEvent: seen.on}, flaky(&n, 0))
	f.start("x", "flaky", "")
	f.wait("the second stream", func() bool { return len(f.hellos) == 2 })
	until(t, "the activation's end", func() bool { return seen.count(EventActivationEnded) > 0 })
	f.mu.Lock()
	if asked != 2 || f.stale != 1 || len(f.commits) != 0 {
		t.Errorf("%d commits arrived, %d were stale", asked, f.stale)
	}
	f.mu.Unlock()
	f.wake("x")
	if o := f.finished("x"); string(o.GetValue()) != `"attempt 1"` || n.of("s") != 2 {
		t.Errorf("%v after %d runs", o, n.of("s"))
	}
}

// A heartbeat's answer may overtake that of the commit which has ended the task. The task is not lost then.
func TestEndedBeforeHeartbeat(t *testing.T) {
	f := newFake(t)
	var seen events
	running, release := make(chan struct{}), make(chan struct{})
	w, _ := f.worker(WorkerOptions{OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			close(running)
			<-release
			return "done", nil
		})
	}))
	f.start("x", "f", "")
	<-running
	h := w.listed()[0]
	over := &perdurev1.HeartbeatReply{Lost: []*perdurev1.TaskToken{h.key.token()}}
	w.mu.Lock()
	h.asks++
	w.mu.Unlock()
	w.heartbeatReply(over)
	if h.isLost() {
		t.Error("the task is lost while a call has no answer")
	}
	w.mu.Lock()
	h.asks--
	w.mu.Unlock()
	w.heartbeatReply(over)
	if !h.isLost() || seen.count(EventLost) != 1 {
		t.Error("the task is not lost")
	}
	close(release)
}

// A commit that ended its task may be without an answer when its stream breaks. The next Welcome has the task among the lost
// ones, and the commit, sent again, is answered: nothing was lost.
func TestEndedBeforeWelcome(t *testing.T) {
	f := newFake(t)
	var seen events
	ends := 0
	f.onCommit = func(_ *fakeExec, c *perdurev1.Commit) fault {
		if c.GetEvents()[len(c.GetEvents())-1].GetExecutionCompleted() == nil {
			return fault{}
		}
		ends++
		return fault{after: ends == 1}
	}
	f.worker(WorkerOptions{OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) { return "done", nil })
	}))
	f.start("x", "f", "")
	f.wait("the second stream", func() bool { return len(f.hellos) == 2 })
	until(t, "the activation's end", func() bool { return seen.count(EventActivationEnded) > 0 })
	if n := seen.count(EventLost); n != 0 {
		t.Errorf("%d tasks are lost", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if held := f.hellos[1].GetHeld(); len(held) != 1 || f.stale != 0 {
		t.Errorf("held %v, %d stale commits", held, f.stale)
	}
}

// A task that is sent again is not run twice; one that was acquired again replaces the older.
func TestTaskSentAgain(t *testing.T) {
	f := newFake(t)
	f.hold = unhurried
	release := make(chan struct{})
	var running, starts atomic.Int32
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (int, error) {
		return Run(ctx, "s", func(ctx context.Context) (int, error) {
			starts.Add(1)
			running.Add(1)
			defer running.Add(-1)
			select {
			case <-release:
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
	}))
	ex := f.start("x", "f", "")
	until(t, "the step", func() bool { return running.Load() == 1 })
	f.mu.Lock()
	f.hand(f.conns[0], ex, 0)
	ex.version++ // the lease ended unnoticed, and the task came back to the same worker
	f.hand(f.conns[0], ex, 0)
	f.mu.Unlock()
	until(t, "the newer activation alone", func() bool { return starts.Load() == 2 && running.Load() == 1 })
	close(release)
	f.finished("x")
	if len(f.commits) != 1 || f.commits[0].GetTask().GetVersion() != 2 {
		t.Errorf("commits %v", f.commits)
	}
}

// A worker that slept past its lease between two steps does not run the second one before it knows that
// the task is still its own: another may have finished it meanwhile.
func TestSleptPastTheLease(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	var second counter
	var once sync.Once
	var seen events
	f.worker(WorkerOptions{Clock: clock, Lease: 9 * time.Second, OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		if _, err := Run(ctx, "first", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return "", err
		}
		once.Do(func() { // the process is stopped here, and continued after its lease
			f.mu.Lock()
			f.expire(f.execs["x"])
			f.execs["x"].parked = true
			f.mu.Unlock()
			clock.mu.Lock()
			clock.now = clock.now.Add(10 * time.Second)
			clock.mu.Unlock()
		})
		return Run(ctx, "second", func(context.Context) (string, error) {
			second.hit("s")
			return "done", nil
		})
	}))
	f.start("x", "f", "")
	until(t, "the worker to learn of it", func() bool { return seen.count(EventLost) == 1 })
	if n := second.of("s"); n != 0 {
		t.Errorf("the second step ran %d times without the task", n)
	}
	f.wake("x")
	if o := f.finished("x"); string(o.GetValue()) != `"done"` || second.of("s") != 1 {
		t.Errorf("%v after %d runs of the second step", o, second.of("s"))
	}
}
