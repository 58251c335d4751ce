package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/testkit"
)

// events collects what a worker reports.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) on(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) count(kind EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

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

// until waits for a state without a notification.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, testTimeout, what, cond, nil)
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
	for i := range maxSilent {
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

// The Welcome shows what happened while the stream was broken: the lost task ends without effect, and its
// unanswered commit is not sent again.
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
	if asked != 1 || len(f.commits) != 0 {
		t.Errorf("%d commits arrived", asked)
	}
	f.mu.Unlock()
	f.wake("x")
	if o := f.finished("x"); string(o.GetValue()) != `"attempt 1"` || n.of("s") != 2 {
		t.Errorf("%v after %d runs", o, n.of("s"))
	}
}

// A task that is sent again is not run twice; one that was acquired again replaces the older.
func TestTaskSentAgain(t *testing.T) {
	f := newFake(t)
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
	if len(f.commits) != 2 || f.commits[0].GetTask().GetVersion() != 2 {
		t.Errorf("commits %v", f.commits)
	}
}

// No more functions run than the capacity allows, all tasks get their activation, and capacity never runs
// out.
func TestCapacity(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var running, most atomic.Int32
	f.worker(WorkerOptions{Concurrency: 3}, NewFunction("f", func(ctx Context, n int) (int, error) {
		v, err := Run(ctx, "s", func(context.Context) (int, error) {
			now := running.Add(1)
			defer running.Add(-1)
			for {
				old := most.Load()
				if now <= old || most.CompareAndSwap(old, now) {
					break
				}
			}
			runtime.Gosched()
			return n, nil
		})
		switch n % 4 {
		case 1:
			panic("a problem")
		case 2:
			return v, Sleep(ctx, time.Hour)
		case 3:
			_, err = WaitSignal[string](ctx, "go")
		}
		return v, err
	}))
	const tasks = 40
	for n := range tasks {
		f.start(fmt.Sprintf("x%02d", n), "f", fmt.Sprint(n))
	}
	f.wait("all tasks to end or wait", func() bool {
		for _, ex := range f.execs {
			if ex.state == perdurev1.TaskState_TASK_STATE_ACQUIRED || (ex.state == perdurev1.TaskState_TASK_STATE_PENDING && !ex.parked) {
				return false
			}
		}
		return true
	})
	if most.Load() > 3 {
		t.Errorf("%d ran at once", most.Load())
	}
	f.wait("all the credit", func() bool { return f.conns[0].credit == 3 })
	if len(f.releases) != tasks/4 {
		t.Errorf("%d releases", len(f.releases))
	}
}

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

// Deferred functions run when the function gives its activation up; operations in them do nothing, and no error
// or panic is seen.
func TestUnwinding(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var defers, saw, after atomic.Int32
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (out string, err error) {
		defer func() {
			defers.Add(1)
			if recover() != nil || err != nil {
				saw.Add(1)
			}
		}()
		done := false
		defer func() {
			if done {
				return
			}
			_, _ = Run(ctx, "in a defer", func(context.Context) (int, error) { after.Add(1); return 0, nil })
			after.Add(1)
		}()
		defer func() {
			if !done {
				_ = Sleep(ctx, time.Second)
				after.Add(1)
			}
		}()
		_, err = WaitSignal[string](ctx, "go")
		done = true
		return "done", err
	}))
	f.start("x", "f", "")
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.mu.Lock()
	f.deliver(f.execs["x"], "go", value(`"x"`))
	f.dispatch()
	f.mu.Unlock()
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
	f.wait("the ends of both activations", func() bool { return defers.Load() == 2 })
	if defers.Load() != 2 || saw.Load() != 0 || after.Load() != 0 {
		t.Errorf("%d defers ran, %d saw something, %d went on", defers.Load(), saw.Load(), after.Load())
	}
}

// A panic in a deferred function while unwinding is the function's fault, and does not take the process.
func TestPanicWhileUnwinding(t *testing.T) {
	f := newFake(t)
	f.manual = true
	once := sync.OnceFunc(func() { panic("in a defer") })
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		done := false
		defer func() {
			if !done {
				once()
			}
		}()
		err := Sleep(ctx, time.Hour)
		done = true
		return "done", err
	}))
	f.start("x", "f", "")
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.mu.Lock()
	f.manual = false
	f.world(f.execs["x"])
	f.dispatch()
	f.mu.Unlock()
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
}

// Parents and children of one worker, several levels deep, with one slot: waiting takes none.
func TestChildren(t *testing.T) {
	f := newFake(t)
	var fib *Function[int, int]
	fib = NewFunction("fib", func(ctx Context, n int) (int, error) {
		if n < 2 {
			return n, nil
		}
		a, err := Go(ctx, fib, n-1)
		if err != nil {
			return 0, err
		}
		b, err := Call(ctx, fib, n-2)
		if err != nil {
			return 0, err
		}
		c, err := a.Get(ctx)
		return b + c, err
	})
	f.worker(WorkerOptions{Concurrency: 1}, fib)
	c := f.client(client.Options{})
	h, err := fib.Start(t.Context(), c, "fib", 7, StartTags(map[string]string{"a": "b"}))
	if err != nil || !h.Started().Created || h.ID() != "fib" {
		t.Fatal(h, err)
	}
	if n, err := h.Result(t.Context()); n != 13 || err != nil {
		t.Error(n, err)
	}
	again, err := fib.Start(t.Context(), c, "fib", 7)
	if err != nil || again.Started().Created {
		t.Error(again, err)
	}
	for id := range f.execs {
		f.finished(id)
	}
}

// A failure crosses from step to child to parent to the caller that asked for the result.
func TestFailureCrosses(t *testing.T) {
	f := newFake(t)
	inner := NewFunction("inner", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			return "", &Error{Type: "broke", Message: "no money", Details: []byte{1, 2}, NonRetryable: true}
		})
	})
	outer := NewFunction("outer", func(ctx Context, in string) (string, error) {
		fs := []Awaitable{}
		for range 2 {
			future, err := Go(ctx, inner, in)
			if err != nil {
				return "", err
			}
			fs = append(fs, future)
		}
		return "", AwaitAll(ctx, fs...)
	})
	f.worker(WorkerOptions{}, inner, outer)
	h, err := outer.Start(t.Context(), f.client(client.Options{}), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Result(t.Context())
	var e *Error
	var ended *client.ExecutionError
	if !errors.As(err, &e) || e.Type != "broke" || e.Message != "no money" || string(e.Details) != "\x01\x02" {
		t.Errorf("%#v", e)
	}
	if !errors.As(err, &ended) || ended.ID != "x" || !strings.Contains(err.Error(), "no money") {
		t.Errorf("%v", err)
	}
	if _, err := outer.Attach(f.client(client.Options{}), "nobody").Result(t.Context()); err == nil {
		t.Error("a result of nothing")
	}
}

// Operations that need no answer travel with the next commit, unless the buffer is full.
func TestBuffer(t *testing.T) {
	f := everythingServer(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, n int) (int, error) {
		var fs []Awaitable
		for i := range n {
			if _, err := Random(ctx); err != nil {
				return 0, err
			}
			future, err := Go(ctx, echo, fmt.Sprint(i), Spread(), CallTimeout(time.Minute))
			if err != nil {
				return 0, err
			}
			fs = append(fs, future)
		}
		return n, AwaitAll(ctx, fs...)
	}))
	for n, commits := range map[int]int{10: 2, 300: 4} {
		f.mu.Lock()
		f.commits = nil
		f.mu.Unlock()
		id := fmt.Sprint("x", n)
		f.start(id, "f", fmt.Sprint(n))
		f.finished(id)
		if len(f.commits) != commits {
			t.Errorf("%d children took %d commits, want %d", n, len(f.commits), commits)
		}
		options := 0
		for _, m := range f.commits {
			for _, o := range m.GetChildren() {
				if !o.GetSpread() || o.GetTimeoutMs() != 60_000 {
					t.Errorf("options %v", o)
				}
				options++
			}
		}
		if options != n {
			t.Errorf("%d options", options)
		}
	}
}

// Operations whose results a step could act upon are recorded before it runs.
func TestBufferIsCommittedBeforeAStep(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (bool, error) {
		r, err := Random(ctx)
		if err != nil {
			return false, err
		}
		return Run(ctx, "s", func(context.Context) (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			last := f.execs["x"].entries[len(f.execs["x"].entries)-1].GetEvent().GetRandomGenerated()
			return last != nil && fmt.Sprintf("%016x", r) == fmt.Sprintf("%x", last.GetValue()), nil
		})
	}))
	f.start("x", "f", "")
	if o := f.finished("x"); string(o.GetValue()) != "true" {
		t.Error(o)
	}
}

// A refusal that repeating cannot help is a problem; after one that stays unknown the task is released too.
func TestCommitRefused(t *testing.T) {
	for _, reason := range []perdurev1.Reason{perdurev1.Reason_REASON_BAD_REQUEST, perdurev1.Reason_REASON_RULE_BROKEN, perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE} {
		f := newFake(t)
		refuse := true
		f.onCommit = func(*fakeExec, *perdurev1.Commit) fault {
			if refuse {
				refuse = false
				return fault{reason: reason}
			}
			return fault{}
		}
		var n counter
		f.worker(WorkerOptions{}, flaky(&n, 0))
		f.start("x", "flaky", "")
		if r := f.released(1); !strings.HasPrefix(r.GetProblem(), "durable: a commit of x was refused: fault") {
			t.Errorf("released with %q", r.GetProblem())
		}
		f.wake("x")
		f.finished("x")
	}
	f := newFake(t)
	clock := newFakeClock()
	asked := 0
	f.onCommit = func(*fakeExec, *perdurev1.Commit) fault {
		if asked++; asked <= maxUnknown {
			return fault{reason: perdurev1.Reason_REASON_OUTCOME_UNKNOWN}
		}
		return fault{}
	}
	var n counter
	f.worker(WorkerOptions{Clock: clock, Lease: time.Hour}, flaky(&n, 0))
	f.start("x", "flaky", "")
	pause := askBackoffMin
	for range maxUnknown - 1 {
		clock.pass(t, pause)
		pause = min(2*pause, askBackoffMax)
	}
	if r := f.released(1); !strings.Contains(r.GetProblem(), "OUTCOME_UNKNOWN") {
		t.Errorf("released with %q", r.GetProblem())
	}
}

func TestInfo(t *testing.T) {
	f := newFake(t)
	type got struct {
		Info    ExecutionInfo
		Outside Step
	}
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (got, error) {
		return Run(ctx, "s", func(context.Context) (got, error) { return got{Info(ctx), StepInfo(ctx)}, nil })
	}))
	f.start("x", "f", "")
	o := f.finished("x")
	want := `{"Info":{"ID":"x","Function":"f","Namespace":"default","Incarnation":1,"Created":"1970-01-01T00:00:01Z","Deadline":"0001-01-01T00:00:00Z","Tags":null},"Outside":{"PromiseID":"","Attempt":0}}`
	if string(o.GetValue()) != want {
		t.Errorf("got  %s\nwant %s", o.GetValue(), want)
	}
}

func TestRegister(t *testing.T) {
	f := newFake(t)
	w := NewWorker(f.client(client.Options{}), WorkerOptions{Name: "n"})
	if !strings.HasPrefix(w.ID(), "n-") {
		t.Error(w.ID())
	}
	w.Register(echo)
	defer func() {
		if p := recover(); fmt.Sprint(p) != `durable: function "echo" is registered twice` {
			t.Errorf("panic %v", p)
		}
	}()
	w.Register(echo)
}

// A cluster that cannot serve a worker now is asked again; one that never will ends Run.
func TestRefusedWorker(t *testing.T) {
	f := newFake(t)
	f.refuse = func(n int) error {
		if n < 3 {
			return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "no leader")
		}
		return nil
	}
	f.worker(WorkerOptions{}, echo)
	f.start("x", "echo", `"hi"`)
	if o := f.finished("x"); string(o.GetValue()) != `"echo hi"` {
		t.Error(o)
	}
	f = newFake(t)
	f.refuse = func(int) error { return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "no functions") }
	err := NewWorker(f.client(client.Options{}), WorkerOptions{}).Run(t.Context())
	if !api.Is(err, perdurev1.Reason_REASON_BAD_REQUEST) || len(f.hellos) != 1 {
		t.Errorf("%v after %d attempts", err, len(f.hellos))
	}
}

// A node that stops sends a drain and ends the stream; the worker continues at the next node.
func TestDrain(t *testing.T) {
	f := newFake(t)
	var seen events
	running, release := make(chan struct{}), make(chan struct{})
	f.worker(WorkerOptions{OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			close(running)
			<-release
			return "done", ctx.Err()
		})
	}))
	f.start("x", "f", "")
	<-running
	f.mu.Lock()
	f.conns[0].send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Drain{Drain: &perdurev1.Drain{}}})
	f.mu.Unlock()
	until(t, "the announcement", func() bool { return seen.count(EventDraining) == 1 })
	f.mu.Lock()
	f.breakStreams()
	f.mu.Unlock()
	f.wait("another stream", func() bool { return len(f.conns) == 1 })
	close(release)
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
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
