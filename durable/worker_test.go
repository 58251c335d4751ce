package durable

import (
	"context"
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

// until waits for a state without a notification.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, testTimeout, what, cond, nil)
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
	want := `{"Info":{"ID":"x","Function":"f","Namespace":"default","Incarnation":1,"Created":"1970-01-01T00:00:01Z","Deadline":"0001-01-01T00:00:00Z","Tags":null,"Cleanup":""},"Outside":{"PromiseID":"","Attempt":0}}`
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

// TestEndUnderWay: a worker that runs one function at once runs the next one while the end of the former is not recorded.
func TestEndUnderWay(t *testing.T) {
	f := newFake(t)
	stuck := true
	f.onCommit = func(ex *fakeExec, c *perdurev1.Commit) fault {
		if ends := c.Events[len(c.Events)-1].GetExecutionCompleted() != nil; ends && ex.id == "x" && stuck {
			return fault{reason: perdurev1.Reason_REASON_TRY_LATER}
		}
		return fault{}
	}
	f.worker(WorkerOptions{Concurrency: 1}, NewFunction("f", func(Context, string) (int, error) { return 1, nil }))
	f.start("x", "f", `""`)
	f.start("y", "f", `""`)
	f.finished("y")
	f.mu.Lock()
	stuck = false
	f.mu.Unlock()
	f.finished("x")
}

// Each end gives the credit that its task has used out again, once, also when many end at once.
func TestEndsExtendCredit(t *testing.T) {
	const many = 300
	f := newFake(t)
	f.worker(WorkerOptions{Concurrency: 32}, NewFunction("f", func(Context, string) (int, error) { return 1, nil }))
	for i := range many {
		f.start(fmt.Sprint("x", i), "f", `""`)
	}
	f.wait("the ends", func() bool {
		for i := range many {
			if !f.execs[fmt.Sprint("x", i)].j.Status().Terminal() {
				return false
			}
		}
		return true
	})
	granted := func() int {
		sum := f.credits
		for _, c := range f.commits {
			sum += int(c.GetCredit())
		}
		return sum
	}
	f.wait("their credit", func() bool { return granted() >= many })
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := granted(); n != many {
		t.Errorf("%d units of credit were granted for %d ends", n, many)
	}
}
