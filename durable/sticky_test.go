package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// tally counts a worker's events.
type tally struct {
	mu sync.Mutex
	n  map[EventKind]int
}

func (c *tally) add(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[EventKind]int{}
	}
	c.n[e.Kind]++
}

func (c *tally) of(k EventKind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[k]
}

// suspended waits until an execution has waited n times, and waits.
func (f *fakeServer) suspended(eid string, n int) {
	f.t.Helper()
	f.wait(fmt.Sprintf("wait %d of %s", n, eid), func() bool {
		waits := 0
		for _, e := range f.execs[eid].entries {
			if e.GetEvent().GetExecutionAwaiting() != nil {
				waits++
			}
		}
		return waits >= n && f.execs[eid].state == perdurev1.TaskState_TASK_STATE_SUSPENDED
	})
}

// signal sends a signal to a waiting execution.
func (f *fakeServer) signal(eid, name, payload string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliver(f.execs[eid], name, value(payload))
	f.dispatch()
}

// stuck waits until a worker keeps n functions in memory.
func stuck(t *testing.T, w *Worker, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d functions in memory", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.sticky.order.Len() == n && len(w.sticky.byExec) == n
	})
}

// counting waits n times for a signal, and adds the payloads. runs counts its beginnings.
func counting(runs *atomic.Int32) *Function[int, int] {
	return NewFunction("counting", func(ctx Context, n int) (sum int, err error) {
		runs.Add(1)
		for range n {
			v, err := WaitSignal[int](ctx, "go")
			if err != nil {
				return 0, err
			}
			sum += v
		}
		return sum, nil
	})
}

// A function that waits continues where it was: it begins once, however often it waits.
func TestStickyContinues(t *testing.T) {
	testStickyContinues(t, false, false)
}

// A server that sends whole journals makes no other difference.
func TestStickyContinuesWholeJournals(t *testing.T) {
	testStickyContinues(t, true, false)
}

func testStickyContinues(t *testing.T, whole, late bool) {
	const waits = 50
	f := newFake(t)
	f.manual = true
	var runs atomic.Int32
	var events tally
	f.whole = whole
	f.onCommit = func(_ *fakeExec, c *perdurev1.Commit) fault { return fault{late: late && c.GetKeeps()} }
	w, _ := f.worker(WorkerOptions{OnEvent: events.add}, counting(&runs))
	f.start("x", "counting", fmt.Sprint(waits))
	for i := range waits {
		f.suspended("x", i+1)
		f.signal("x", "go", "2")
	}
	if o := f.finished("x"); string(o.GetValue()) != fmt.Sprint(2*waits) {
		t.Error(o)
	}
	if runs.Load() != 1 || events.of(EventContinued) != waits || events.of(EventDropped) != 0 || events.of(EventLost) != 0 {
		t.Errorf("the function began %d times, events %v", runs.Load(), events.n)
	}
	if short := map[bool]int{false: waits, true: 0}[whole]; f.short != short || f.pages != 0 {
		t.Errorf("%d tasks left entries out, not %d, and %d pages were read", f.short, short, f.pages)
	}
	stuck(t, w, 0)
	until(t, "the end of the activations", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 && w.busy == 0 })
	if events.of(EventTask) != events.of(EventActivationEnded) {
		t.Errorf("%d tasks came, %d left", events.of(EventTask), events.of(EventActivationEnded))
	}
}

// The next task of an execution may come before the answer to the commit that left its function waiting. The function
// continues in memory under it.
func TestStickyOvertaken(t *testing.T) {
	testStickyContinues(t, false, true)
}

// A commit comes after the end of its lease, and the task that the worker got next comes before the refusal. The function
// does not continue; the task is replayed.
func TestStickyOvertakenLost(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var runs atomic.Int32
	var events tally
	commits := 0
	f.onCommit = func(_ *fakeExec, c *perdurev1.Commit) fault {
		commits++
		return fault{late: commits == 1, lost: commits == 1}
	}
	w, _ := f.worker(WorkerOptions{OnEvent: events.add}, counting(&runs))
	f.start("x", "counting", "1")
	f.suspended("x", 1)
	f.signal("x", "go", "2")
	if o := f.finished("x"); string(o.GetValue()) != "2" {
		t.Error(o)
	}
	until(t, "the end of the activations", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 && w.busy == 0 })
	if runs.Load() != 2 || events.of(EventLost) != 1 || events.of(EventContinued) != 1 {
		t.Errorf("the function began %d times, events %v", runs.Load(), events.n)
	}
}

// The answer that a task has overtaken leaves the commit's task here: its lease had ended. The function unwinds before it does
// anything under that lease, and the task that came is replayed.
func TestStickyOvertakenHeld(t *testing.T) {
	f := newFake(t)
	w := NewWorker(f.client(client.Options{}), WorkerOptions{})
	w.base = t.Context()
	task := func(version uint64) *perdurev1.Task {
		return &perdurev1.Task{Token: &perdurev1.TaskToken{Id: "x", Incarnation: 1, Version: version}, Function: "f"}
	}
	for _, c := range []struct {
		state perdurev1.TaskState
		lost  bool
	}{
		{perdurev1.TaskState_TASK_STATE_SUSPENDED, false},
		{perdurev1.TaskState_TASK_STATE_ACQUIRED, true},
	} {
		s := &session{}
		h := newHold(w, task(1))
		a := newActivation(h, task(1))
		asked := &call{id: 7, t: h, via: s, reply: make(chan answer, 1)}
		w.mu.Lock()
		h.sticks = a
		w.held[h.key.exec()], w.calls[asked.id] = h, asked
		if w.overtakesLocked(&session{}, h, newHold(w, task(2)).key) {
			t.Error("a task of another stream overtook an answer")
		}
		if w.overtakesLocked(s, h, newHold(w, task(3)).key) {
			t.Error("a later task than the next overtook an answer")
		}
		if !w.overtakesLocked(s, h, newHold(w, task(2)).key) {
			t.Error("the next task did not overtake the answer")
		}
		if w.sticky.byExec[h.key.exec()] != a || w.held[h.key.exec()] != nil {
			t.Error("the function is not in memory without a hold")
		}
		w.sticky.remove(a)
		w.mu.Unlock()
		w.answer(s, &perdurev1.WorkResponse{CallId: 7, Kind: &perdurev1.WorkResponse_Commit{Commit: &perdurev1.CommitReply{State: c.state}}})
		if h.isLost() != c.lost {
			t.Errorf("%v: lost %t", c.state, h.isLost())
		}
	}
}

// A function in memory whose execution another worker has had meanwhile is dropped, and its task is replayed.
func TestStickyStaleAfterAnotherWorker(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var first, second tally
	var mine, other, steps atomic.Int32
	body := func(runs *atomic.Int32) *Function[int, []int] {
		return NewFunction("f", func(ctx Context, _ int) (out []int, err error) {
			runs.Add(1)
			for range 3 {
				v, err := WaitSignal[int](ctx, "go")
				if err != nil {
					return nil, err
				}
				n, err := Run(ctx, "step", func(context.Context) (int, error) { return int(steps.Add(1)), nil })
				if err != nil {
					return nil, err
				}
				out = append(out, v, n)
			}
			return out, nil
		})
	}
	w, _ := f.worker(WorkerOptions{Name: "first", OnEvent: first.add}, body(&mine))
	f.start("x", "f", "0")
	f.suspended("x", 1)
	stuck(t, w, 1)
	w2, stop := f.worker(WorkerOptions{Name: "second", OnEvent: second.add}, body(&other))
	f.mu.Lock()
	slices.Reverse(f.conns) // the second worker's turn
	f.mu.Unlock()
	f.signal("x", "go", "7")
	f.suspended("x", 2)
	stuck(t, w2, 1)
	stop()
	f.signal("x", "go", "8")
	f.suspended("x", 3)
	f.signal("x", "go", "9")
	if o := f.finished("x"); string(o.GetValue()) != "[7,1,8,2,9,3]" {
		t.Error(o)
	}
	until(t, "the drops", func() bool { return first.of(EventDropped) > 0 && second.of(EventDropped) > 0 }) // the goroutine of a dropped function reports it
	if mine.Load() != 2 || other.Load() != 1 || first.of(EventDropped) != 1 || first.of(EventContinued) != 1 || second.of(EventDropped) != 1 {
		t.Errorf("began %d and %d times, events %v and %v", mine.Load(), other.Load(), first.n, second.n)
	}
}

// A function in memory is replayed if its execution was acquired meanwhile, or if the journal is another one than it
// knows, as after the restore of a backup.
func TestStickyOtherHistory(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(entries []*perdurev1.JournalEntry)
		want   string
	}{
		{"version", nil, "11"},
		{"result", func(entries []*perdurev1.JournalEntry) {
			for _, e := range entries {
				if done := e.GetEvent().GetInvokeCompleted(); done != nil {
					e.Event = completed(done.GetPromiseId(), 1, value("5"))
				}
			}
		}, "15"},
		{"time", func(entries []*perdurev1.JournalEntry) {
			for _, e := range entries {
				if at := e.GetEvent().GetTimeRecorded(); at != nil {
					e.Event = &perdurev1.Event{Kind: &perdurev1.Event_TimeRecorded{TimeRecorded: &perdurev1.TimeRecorded{PromiseId: at.GetPromiseId(), TimeMs: 5}}}
				}
			}
		}, "16"},
	} {
		for _, whole := range []bool{false, true} {
			if !whole && c.name == "result" {
				continue // the worker does not read again what it read before its last commit
			}
			t.Run(fmt.Sprintf("%s, whole %t", c.name, whole), func(t *testing.T) {
				f := newFake(t)
				f.hold = unhurried // one commit, so that the worker reads the step and the time again
				f.manual, f.whole = true, whole
				var events tally
				w, _ := f.worker(WorkerOptions{OnEvent: events.add}, NewFunction("f", func(ctx Context, _ int) (int64, error) {
					n, err := Run(ctx, "step", func(context.Context) (int64, error) { return 1, nil })
					if err != nil {
						return 0, err
					}
					now, err := Now(ctx)
					if err != nil {
						return 0, err
					}
					if now.UnixMilli() != 5 {
						now = time.UnixMilli(0)
					}
					v, err := WaitSignal[int64](ctx, "go")
					return v + n + now.UnixMilli(), err
				}))
				f.start("x", "f", "0")
				f.suspended("x", 1)
				stuck(t, w, 1)
				f.mu.Lock()
				if c.change != nil {
					c.change(f.execs["x"].entries)
				} else {
					f.execs["x"].version++ // another worker had it, and did nothing
				}
				f.mu.Unlock()
				f.signal("x", "go", "10")
				f.wait("the end", func() bool { return f.execs["x"].j.Status().Terminal() })
				f.mu.Lock()
				got := string(outcomeOf(f.execs["x"]).GetValue())
				f.mu.Unlock()
				until(t, "the event of an activation", func() bool { return events.of(EventDropped)+events.of(EventContinued) > 0 })
				if got != c.want || events.of(EventContinued) != 0 || events.of(EventDropped) != 1 {
					t.Errorf("result %s, not %s; events %v", got, c.want, events.n)
				}
			})
		}
	}
}

// The task of a function in memory is lost while the function continues: the step that runs commits nothing,
// the function unwinds, and the next task is replayed.
func TestStickyLostAfterContinuing(t *testing.T) {
	f := newFake(t)
	f.manual = true
	running, goOn := make(chan struct{}, 2), make(chan struct{})
	var runs, after atomic.Int32
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ int) (int32, error) {
		runs.Add(1)
		if _, err := WaitSignal[int](ctx, "go"); err != nil {
			return 0, err
		}
		n, err := Run(ctx, "step", func(context.Context) (int32, error) {
			n := runs.Load()
			running <- struct{}{}
			if n == 1 {
				<-goOn // it ignores its context
			}
			return n, nil
		})
		after.Add(1)
		return n, err
	}))
	f.start("x", "f", "0")
	f.suspended("x", 1)
	f.signal("x", "go", "1")
	<-running
	f.mu.Lock()
	f.expire(f.execs["x"])
	f.dispatch()
	f.mu.Unlock()
	<-running
	close(goOn)
	if o := f.finished("x"); string(o.GetValue()) != "2" {
		t.Error(o)
	}
	until(t, "the end of both runs", func() bool { return after.Load() == 1 })
	if runs.Load() != 2 || f.stale > 1 {
		t.Errorf("the function began %d times, %d stale commits", runs.Load(), f.stale)
	}
}

// A cancelled execution continues in memory with ErrCancelled, its context ends, and its clean-up runs in an
// execution of its own.
func TestStickyCancel(t *testing.T) {
	for _, sticky := range []int{-1, 10} {
		f := newFake(t)
		f.manual = true
		var events tally
		var cleaned, ended atomic.Int32
		f.worker(WorkerOptions{StickyFunctions: sticky, OnEvent: events.add}, NewFunction("f", func(ctx Context, _ int) (int, error) {
			undo := 0
			Cleanup(ctx, func(ctx Context) error {
				_, err := Run(ctx, "undo", func(context.Context) (int, error) { cleaned.Add(int32(undo)); return 0, nil })
				return err
			})
			undo = 3
			_, err := WaitSignal[int](ctx, "go")
			if errors.Is(err, ErrCancelled) && Info(ctx).Cleanup == "" {
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), ErrCancelled) {
					ended.Add(1)
				}
			}
			return 0, err
		}))
		f.start("x", "f", "0")
		f.suspended("x", 1)
		f.cancel("x", "enough")
		f.finished("x")
		f.wait("the clean-up", func() bool { return len(f.execs) == 2 })
		f.finished(childID("x", 1<<32-1))
		continued := 0
		if sticky > 0 {
			continued = 1
		}
		if cleaned.Load() != 3 || ended.Load() != 1 || events.of(EventContinued) != continued {
			t.Errorf("sticky %d: undone %d, contexts ended %d, events %v", sticky, cleaned.Load(), ended.Load(), events.n)
		}
	}
}

// The cache drops the function that has waited longest, by number and by size, and runs its deferred functions.
func TestStickyBounds(t *testing.T) {
	for _, opts := range []WorkerOptions{{StickyFunctions: 3}, {StickyBytes: 3*stickyOverhead + 3*30_000 + 10_000}} {
		f := newFake(t)
		f.manual = true
		var events tally
		var deferred atomic.Int32
		opts.OnEvent = events.add
		w, _ := f.worker(opts, NewFunction("f", func(ctx Context, in string) (int, error) {
			defer deferred.Add(1)
			_, err := WaitSignal[int](ctx, "go")
			return len(in), err
		}))
		input := `"` + string(slices.Repeat([]byte("x"), 30_000)) + `"`
		for i := range 10 {
			f.start(fmt.Sprint("x", i), "f", input)
			f.suspended(fmt.Sprint("x", i), 1)
			stuck(t, w, min(i+1, 3))
		}
		until(t, "the drops", func() bool { return deferred.Load() == 7 && events.of(EventDropped) == 7 })
		f.mu.Lock()
		said := f.hellos[len(f.hellos)-1].GetKeeps()
		f.mu.Unlock()
		if want := cmp.Or(opts.StickyFunctions, defaultStickyFunctions); said != uint32(want) {
			t.Errorf("the worker says that it keeps %d functions, not %d", said, want)
		}
		w.mu.Lock()
		size := w.sticky.size
		for i := range 10 {
			if _, kept := w.sticky.byExec[execKey{"default", fmt.Sprint("x", i)}]; kept != (i >= 7) {
				t.Errorf("function %d of 10 is in memory: %t", i, kept)
			}
		}
		w.mu.Unlock()
		if size > w.sticky.bytes || size < 3*30_000 {
			t.Errorf("%d bytes for 3 functions", size)
		}
		for i := range 10 {
			f.signal(fmt.Sprint("x", i), "go", "1")
			f.finished(fmt.Sprint("x", i))
		}
		stuck(t, w, 0)
		if w.sticky.size != 0 || events.of(EventContinued) == 0 {
			t.Errorf("%d bytes for no function, events %v", w.sticky.size, events.n)
		}
	}
}

// Functions are dropped while their tasks arrive: each execution ends as it must.
func TestStickyDropsWhileTasksArrive(t *testing.T) {
	const executions, waits = 40, 8
	f := newFake(t)
	for range waits {
		f.signals["go"] = append(f.signals["go"], "1")
	}
	var runs atomic.Int32
	var events tally
	w, _ := f.worker(WorkerOptions{StickyFunctions: 2, Concurrency: 3, OnEvent: events.add}, counting(&runs))
	for i := range executions {
		f.start(fmt.Sprint("x", i), "counting", fmt.Sprint(waits))
	}
	for i := range executions {
		if o := f.finished(fmt.Sprint("x", i)); string(o.GetValue()) != fmt.Sprint(waits) {
			t.Error(o)
		}
	}
	until(t, "the end of the activations", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 && w.busy == 0 })
	if len(f.releases) > 0 {
		t.Errorf("released: %v", f.releases)
	}
	t.Logf("%d runs for %d executions, events %v", runs.Load(), executions, events.n)
}

// A worker that stops unwinds every function in memory, and is done when they are.
func TestStickyStop(t *testing.T) {
	const many = 1000
	f := newFake(t)
	f.manual = true
	var deferred atomic.Int32
	w, stop := f.worker(WorkerOptions{StickyFunctions: many}, NewFunction("f", func(ctx Context, _ int) (int, error) {
		defer deferred.Add(1)
		return WaitSignal[int](ctx, "go")
	}))
	for i := range many {
		f.start(fmt.Sprint("x", i), "f", "0")
	}
	stuck(t, w, many)
	if deferred.Load() != 0 {
		t.Errorf("%d functions were dropped", deferred.Load())
	}
	stop()
	if deferred.Load() != many || w.activations != 0 || w.sticky.size != 0 || len(w.held) != 0 {
		t.Errorf("%d of %d functions unwound, %d activations, %d bytes, %d held", deferred.Load(), many, w.activations, w.sticky.size, len(w.held))
	}
	if len(f.releases) != 0 {
		t.Errorf("%d releases of tasks that the worker did not hold", len(f.releases))
	}
}

// A function that panics after it continued releases its task, and is replayed.
func TestStickyPanic(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var runs atomic.Int32
	var events tally
	w, _ := f.worker(WorkerOptions{OnEvent: events.add}, NewFunction("f", func(ctx Context, _ int) (int, error) {
		n := runs.Add(1)
		v, err := WaitSignal[int](ctx, "go")
		if n == 1 {
			panic("once")
		}
		return v, err
	}))
	f.start("x", "f", "0")
	f.suspended("x", 1)
	f.signal("x", "go", "4")
	if r := f.released(1); r.GetProblem() != "panic: once" || r.GetTask().GetVersion() != 2 {
		t.Errorf("released with %v", r)
	}
	f.wake("x")
	if o := f.finished("x"); string(o.GetValue()) != "4" || runs.Load() != 2 || events.of(EventContinued) != 1 {
		t.Errorf("%v after %d runs, events %v", o, runs.Load(), events.n)
	}
	stuck(t, w, 0)
}

// A message to a hold that has ended does not reach the function that waits in memory.
func TestStickyFormerHold(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var runs atomic.Int32
	held := make(chan *hold, 1)
	w, _ := f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ int) (int, error) {
		runs.Add(1)
		held <- ctx.activation().hold
		v, err := WaitSignal[int](ctx, "go")
		if err == nil {
			err = ctx.Err()
		}
		return v, err
	}))
	f.start("x", "f", "0")
	f.suspended("x", 1)
	stuck(t, w, 1)
	former := <-held
	until(t, "the end of the hold", former.isLost)
	former.askCancel()
	former.endContext(errStopping)
	w.lose(former)
	f.signal("x", "go", "4")
	if o := f.finished("x"); string(o.GetValue()) != "4" || runs.Load() != 1 {
		t.Errorf("%v after %d runs", o, runs.Load())
	}
}

// A function in memory continues only under a lease that surely holds.
func TestStickyAsksForTheLease(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var runs atomic.Int32
	var events tally
	w, _ := f.worker(WorkerOptions{OnEvent: events.add}, counting(&runs))
	f.start("x", "counting", "1")
	f.suspended("x", 1)
	stuck(t, w, 1)
	f.mu.Lock()
	f.deaf, f.conns[0].stamp = true, 0 // the task does not say since when it is held
	f.mu.Unlock()
	f.signal("x", "go", "4")
	f.wait("a heartbeat", func() bool { return f.heartbeats > 0 })
	if n := events.of(EventTask) + events.of(EventContinued); n != 1 {
		t.Errorf("the function continued before its lease was confirmed: %v", events.n)
	}
	f.mu.Lock()
	f.deaf = false
	f.mu.Unlock()
	if o := f.finished("x"); string(o.GetValue()) != "4" || runs.Load() != 1 || events.of(EventContinued) != 1 {
		t.Errorf("%v after %d runs, events %v", o, runs.Load(), events.n)
	}
}

// acquired begins an execution whose task the worker holds by the server's state only.
func (f *fakeServer) acquired(eid, function, input string, w *Worker) *perdurev1.Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	ex := f.newExec(eid, function)
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: []byte(input)}}})
	ex.state, ex.worker, ex.version = perdurev1.TaskState_TASK_STATE_ACQUIRED, w.ID(), 1
	return f.task(ex, f.conns[0].stamp)
}

// A hold that was given to a function in memory, whose goroutine ends before it takes it, goes to a new activation.
func TestStickyHoldOutlivesTheFunction(t *testing.T) {
	f := newFake(t)
	var runs atomic.Int32
	w, _ := f.worker(WorkerOptions{}, counting(&runs))
	task := f.acquired("x", "counting", "0", w)
	h := newHold(w, task)
	w.mu.Lock()
	w.held[h.key.exec()] = h
	w.activations++
	former := &activation{hold: h, w: w, idle: true, cancel: func(error) {}, wait: stickyWait{next: h, task: task}}
	w.mu.Unlock()
	w.activationClosed(former)
	if o := f.finished("x"); string(o.GetValue()) != "0" || runs.Load() != 1 {
		t.Errorf("%v after %d runs", o, runs.Load())
	}
}

// Nothing is kept in memory for a task that was lost before the reply to its commit came, nor by a worker
// that stops, nor if the reply leaves the task here.
func TestStickyKeepsNothing(t *testing.T) {
	f := newFake(t)
	w := NewWorker(f.client(client.Options{}), WorkerOptions{})
	w.base = t.Context()
	task := &perdurev1.Task{Token: &perdurev1.TaskToken{Id: "x", Incarnation: 1, Version: 1}, Function: "f"}
	reply := func(state perdurev1.TaskState) *perdurev1.WorkResponse {
		return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Commit{Commit: &perdurev1.CommitReply{State: state}}}
	}
	keeps := func(held, sticks bool, state perdurev1.TaskState) bool {
		h := newHold(w, task)
		a := newActivation(h, task)
		w.mu.Lock()
		defer w.mu.Unlock()
		if held {
			w.held[h.key.exec()] = h
		}
		if sticks {
			h.sticks = a
		}
		w.keepLocked(h, reply(state))
		kept := w.sticky.byExec[h.key.exec()] == a
		w.sticky.remove(a)
		delete(w.held, h.key.exec())
		return kept
	}
	const suspended, acquired = perdurev1.TaskState_TASK_STATE_SUSPENDED, perdurev1.TaskState_TASK_STATE_ACQUIRED
	if !keeps(true, true, suspended) || keeps(false, true, suspended) || keeps(true, false, suspended) || keeps(true, true, acquired) {
		t.Error("kept a function of a task that was lost or is held still, or not that of one that waits")
	}
	close(w.stopping)
	if keeps(true, true, suspended) {
		t.Error("a worker that stops keeps a function in memory")
	}
}

// A journal continues another one if that is its beginning.
func TestJournalContinues(t *testing.T) {
	fold := func(entries []*perdurev1.JournalEntry) *history {
		r := &history{id: "x"}
		if err := r.ingest(entries); err != nil {
			t.Fatal(err)
		}
		return r
	}
	full := journalOfSteps("x", "a", "b")
	if !fold(full).continues(fold(full), 2) || !fold(full).continues(fold(full[:6]), 2) {
		t.Error("a journal does not continue its own beginning")
	}
	other := func(change func(r *history)) *history {
		r := fold(full)
		change(r)
		return r
	}
	for name, r := range map[string]*history{
		"fewer operations": fold(full[:4]),
		"shorter":          fold(full[:6]),
		"another input":    other(func(r *history) { r.input = []byte("2") }),
		"another name":     other(func(r *history) { r.ops[1].name = "c" }),
		"another kind":     other(func(r *history) { r.ops[1].kind = opHTTP }),
		"another policy":   other(func(r *history) { r.ops[1].policy = "attempts=5" }),
		"no result":        other(func(r *history) { r.ops[0].done = false }),
		"another result":   other(func(r *history) { r.ops[0].outcome = value("2") }),
		"a failure":        other(func(r *history) { r.ops[0].outcome = failure("x", "") }),
		"another order":    other(func(r *history) { r.ops[0].doneSeq++ }),
		"another time":     other(func(r *history) { r.ops[0].timeMs++ }),
	} {
		if r.continues(fold(full), 2) {
			t.Errorf("a journal with %s continues it", name)
		}
	}
	forgetful := fold(full)
	forgetful.forget(0)
	if !fold(full).continues(forgetful, 2) {
		t.Error("a journal does not continue its own beginning, of which an operation was forgotten")
	}
	for name, r := range map[string]*history{
		"no result":      other(func(r *history) { r.ops[0].done = false }),
		"another result": other(func(r *history) { r.ops[0].outcome = value("2") }),
		"a failure":      other(func(r *history) { r.ops[0].outcome = failure("x", "") }),
		"another name":   other(func(r *history) { r.ops[0].name = "c" }),
		"another order":  other(func(r *history) { r.ops[0].doneSeq++ }),
		"another time":   other(func(r *history) { r.ops[0].timeMs++ }),
	} {
		if r.continues(forgetful, 2) {
			t.Errorf("a journal with %s of a forgotten operation continues it", name)
		}
	}
	if fold(full).continues(fold(full), 1) || fold(full).continues(fold(full[:4]), 2) {
		t.Error("an operation that the function has not made continues it")
	}
}
