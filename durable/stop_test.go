package durable

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// A worker that stops lets a running step finish and be recorded, and gives the rest back.
func TestStop(t *testing.T) {
	f := newFake(t)
	running, release := make(chan struct{}), make(chan struct{})
	var n counter
	f2 := NewFunction("f", func(ctx Context, _ string) (string, error) {
		if _, err := Run(ctx, "one", func(ctx context.Context) (int, error) {
			if n.hit("one") == 1 {
				close(running)
				<-release
			}
			return 1, ctx.Err()
		}); err != nil {
			return "", err
		}
		_, err := Run(ctx, "two", func(context.Context) (int, error) { n.hit("two"); return 2, nil })
		return "done", err
	})
	w, stop := f.worker(WorkerOptions{}, f2)
	f.start("x", "f", "")
	<-running
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	<-w.stopping
	close(release)
	<-stopped
	if r := f.released(1); r.GetProblem() != "" || r.GetDelayMs() != 0 || r.GetCredit() != 0 {
		t.Errorf("release %v", r)
	}
	if n.of("two") != 0 || kinds(f.journalOf("x")) != "[S s1 c1 " {
		t.Errorf("journal %s", kinds(f.journalOf("x")))
	}
	if err := w.Run(context.Background()); err == nil {
		t.Error("a worker was run twice")
	}
	f.worker(WorkerOptions{}, f2)
	f.finished("x")
	if n.of("one") != 1 || n.of("two") != 1 {
		t.Errorf("runs %v", n.runs)
	}
}

// A worker that stops releases nothing before it has withdrawn its capacity: no task is delivered to it
// again.
func TestStopWithdrawsItsCapacityFirst(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	var failing counter
	var seen events
	_, stop := f.worker(WorkerOptions{Clock: clock, Lease: time.Hour, OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			failing.hit("s")
			return "", errors.New("not yet")
		}, threeTries)
	}))
	const tasks = 40
	for n := range tasks {
		f.start(fmt.Sprintf("x%02d", n), "f", "")
	}
	until(t, "all tasks to pause", func() bool { return seen.count(EventAttempt) == tasks })
	stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := seen.count(EventTask); got != tasks || len(f.releases) != tasks {
		t.Errorf("%d tasks came %d times, and were released %d times", tasks, got, len(f.releases))
	}
	for _, ex := range f.execs {
		if ex.state != perdurev1.TaskState_TASK_STATE_PENDING {
			t.Errorf("%s is left %s to %q", ex.id, ex.state, ex.worker)
		}
	}
}

// A commit that is repeated when the worker stops does not announce the capacity of its first attempt.
func TestRepeatedCommitGrantsNoCreditAtTheStop(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	broken := make(chan struct{})
	f.onCommit = func(*fakeExec, *perdurev1.Commit) fault {
		select {
		case <-broken:
			return fault{}
		default:
			close(broken)
			return fault{before: true}
		}
	}
	var seen events
	w, stop := f.worker(WorkerOptions{Clock: clock, Lease: time.Hour, OnEvent: seen.on}, NewFunction("f", func(Context, string) (string, error) { return "done", nil }))
	f.start("x", "f", "")
	until(t, "the stream's end", func() bool { return seen.count(EventDisconnected) == 1 })
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	until(t, "the worker to begin to stop", w.leaving.Load)
	clock.pass(t, reconnectMin)
	<-stopped
	f.finished("x")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.commits) != 1 || f.commits[0].GetCredit() != 0 {
		t.Errorf("commits %v", f.commits)
	}
}

// Steps that outlive the grace get the end of their contexts; the worker leaves a step behind that does not
// heed it.
func TestStopGrace(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	running := make(chan struct{}, 2)
	free := make(chan struct{})
	defer close(free)
	w, stop := f.worker(WorkerOptions{Clock: clock, StopGrace: 4 * time.Second}, NewFunction("f", func(ctx Context, deaf bool) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			running <- struct{}{}
			if deaf {
				<-free
				return "", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
	}))
	f.start("hears", "f", "false")
	f.start("deaf", "f", "true")
	<-running
	<-running
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	<-w.stopping
	clock.pass(t, 4*time.Second)
	if r := f.released(1); r.GetTask().GetId() != "hears" || r.GetProblem() != "" {
		t.Errorf("released %v", r)
	}
	clock.pass(t, stepStopTimeout)
	<-stopped
	if r := f.released(2); r.GetTask().GetId() != "deaf" {
		t.Errorf("released %v", r)
	}
	for _, id := range []string{"hears", "deaf"} {
		if n := len(f.journalOf(id)); n != 1 {
			t.Errorf("%s has %d entries", id, n)
		}
	}
}

// A function that returns while the worker stops is finished, not released.
func TestStopRecordsTheEnd(t *testing.T) {
	f := newFake(t)
	running, release := make(chan struct{}), make(chan struct{})
	w, stop := f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			close(running)
			<-release
			return "done", ctx.Err()
		})
	}))
	f.start("x", "f", "")
	<-running
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	<-w.stopping
	close(release)
	<-stopped
	if o := f.finished("x"); string(o.GetValue()) != `"done"` || len(f.releases) != 0 {
		t.Errorf("%v, releases %v", o, f.releases)
	}
}
