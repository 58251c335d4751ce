package durable

import (
	"slices"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// arrive sends a signal to an execution, and tells its worker of it if told.
func (f *fakeServer) arrive(eid, name, payload string, told bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ex := f.execs[eid]
	n := ex.j.Deliveries(name) + 1
	token, worker := ex.token(), ex.worker
	f.deliver(ex, name, value(payload))
	for _, c := range f.conns {
		if told && c.worker == worker {
			c.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_SignalArrived{SignalArrived: &perdurev1.SignalArrived{
				Task: token, Name: name, Payload: value(payload), DeliveryId: n}}})
		}
	}
	f.dispatch()
}

// known waits until a worker knows of n signals for an execution.
func known(t *testing.T, w *Worker, eid string, n int) {
	t.Helper()
	until(t, "the arrival of the signals", func() bool {
		w.mu.Lock()
		h := w.held[execKey{"default", eid}]
		w.mu.Unlock()
		if h == nil {
			return false
		}
		h.arrived.mu.Lock()
		defer h.arrived.mu.Unlock()
		return len(h.arrived.signals) == n
	})
}

// receiving waits for n signals and returns their sum, a digit each, when it has been told to begin.
func receiving(began, begin chan struct{}) *Function[int, int] {
	return NewFunction("receiving", func(ctx Context, n int) (all int, err error) {
		began <- struct{}{}
		<-begin
		for range n {
			v, err := WaitSignal[int](ctx, "go")
			if err != nil {
				return 0, err
			}
			all = 10*all + v
		}
		return all, nil
	})
}

// kindsOf lists the events of an execution after its start.
func (f *fakeServer) kindsOf(eid string) (kinds []string) {
	for _, e := range f.journalOf(eid)[1:] {
		kinds = append(kinds, toJournal(e.GetEvent()).Kind().String())
	}
	return kinds
}

// Signals that arrive while the function runs are received in one commit with its end, in their order. One that the worker
// was not told of is received by a wait, and those behind it keep their places.
func TestSignalsArrive(t *testing.T) {
	for _, c := range []struct {
		told    []bool
		commits int
	}{
		{[]bool{true}, 1},
		{[]bool{true, true, true}, 1},
		{[]bool{false, true}, 2},
		{[]bool{true, false, true}, 2},
		{[]bool{false, false}, 3},
	} {
		f := newFake(t)
		f.manual = true
		began, begin := make(chan struct{}, 1), make(chan struct{})
		w, _ := f.worker(WorkerOptions{}, receiving(began, begin))
		f.start("x", "receiving", string(rune('0'+len(c.told))))
		<-began
		n, want := 0, ""
		for i, told := range c.told {
			f.arrive("x", "go", string(rune('1'+i)), told)
			want += string(rune('1' + i))
			if told {
				n++
			}
		}
		known(t, w, "x", n)
		close(begin)
		if !f.endsUnreleased("x") {
			t.Fatalf("%v: released with %q", c.told, f.released(1).GetProblem())
		}
		if o := f.finished("x"); string(o.GetValue()) != want {
			t.Errorf("%v: the result is %v, not %s", c.told, o, want)
		}
		if len(f.commits) != c.commits {
			t.Errorf("%v: %d commits, not %d: %v", c.told, len(f.commits), c.commits, f.commits)
		}
		if f.mu.Lock(); len(f.releases) != 0 {
			t.Errorf("%v: %v", c.told, f.releases)
		}
		f.mu.Unlock()
	}
}

// A function whose signals come soon lingers before it waits: the signal that arrives then is received without a wait, and a wait
// is committed when none does.
func TestLinger(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		f := newFake(t)
		f.manual = true
		clock := newFakeClock()
		began, begin := make(chan struct{}, 1), make(chan struct{})
		w, _ := f.worker(WorkerOptions{Clock: clock}, receiving(began, begin))
		w.lingers.pushed.Store(true)
		for range soon {
			w.lingers.waited("receiving", 0)
		}
		f.start("x", "receiving", "1")
		<-began
		close(begin)
		if arrives {
			f.arrive("x", "other", "0", true)
			f.arrive("x", "go", "7", true)
		} else {
			clock.pass(t, lingerTime)
			f.suspended("x", 1)
			if w.lingers.expects("receiving") {
				t.Error("a function lingers whose last signal did not come soon")
			}
			f.signal("x", "go", "7")
		}
		if o := f.finished("x"); string(o.GetValue()) != "7" {
			t.Error(o)
		}
		want := []string{"ExecutionAwaiting", "SignalDelivered", "SignalReceived", "ExecutionResumed", "ExecutionCompleted"}
		if arrives {
			want = []string{"SignalDelivered", "SignalDelivered", "SignalReceived", "ExecutionCompleted"}
		}
		if got := f.kindsOf("x"); !slices.Equal(got, want) {
			t.Errorf("the journal is %v, not %v", got, want)
		}
	}
}

// A function does not linger for a signal that came before its task: the journal has it.
func TestNoLingerForADeliveredSignal(t *testing.T) {
	f := newFake(t)
	f.manual = true
	began, begin := make(chan struct{}, 1), make(chan struct{})
	w, _ := f.worker(WorkerOptions{Clock: newFakeClock()}, receiving(began, begin))
	w.lingers.pushed.Store(true)
	for range soon {
		w.lingers.waited("receiving", 0)
	}
	close(begin)
	f.mu.Lock()
	ex := f.newExec("x", "receiving")
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: []byte("1")}}})
	f.deliver(ex, "go", value("7"))
	ex.state = perdurev1.TaskState_TASK_STATE_PENDING
	f.dispatch()
	f.mu.Unlock()
	if o := f.finished("x"); string(o.GetValue()) != "7" { // the clock stands still: it would linger for ever
		t.Error(o)
	}
}

// A cancel, the loss of the task and the stop of the worker end a function that lingers.
func TestLingerEnds(t *testing.T) {
	for _, how := range []string{"cancel", "lost", "stop"} {
		f := newFake(t)
		f.manual = true
		began, begin := make(chan struct{}, 2), make(chan struct{})
		w, stop := f.worker(WorkerOptions{Clock: newFakeClock()}, receiving(began, begin))
		w.lingers.pushed.Store(true)
		for range soon {
			w.lingers.waited("receiving", 0)
		}
		f.start("x", "receiving", "1")
		<-began
		close(begin)
		until(t, "the function to linger", func() bool {
			h := w.listed()
			if len(h) != 1 {
				return false
			}
			h[0].arrived.mu.Lock()
			defer h[0].arrived.mu.Unlock()
			return h[0].arrived.more != nil
		})
		switch how {
		case "cancel":
			f.cancel("x", "enough")
			w.listed()[0].askCancel()
			f.finished("x")
		case "lost":
			w.lose(w.listed()[0])
			until(t, "the end of the activation", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 })
		case "stop":
			stop()
		}
	}
}

// The task of a function that has received a signal, and whose commit is lost with the task, goes to another activation: that one
// receives the same signal.
func TestSignalReceivedAgain(t *testing.T) {
	f := newFake(t)
	f.manual = true
	began, begin := make(chan struct{}, 2), make(chan struct{})
	w, _ := f.worker(WorkerOptions{}, receiving(began, begin))
	lost := false
	f.onCommit = func(ex *fakeExec, c *perdurev1.Commit) fault {
		if lost {
			return fault{}
		}
		lost = true
		f.expire(ex)
		return fault{}
	}
	f.start("x", "receiving", "2")
	<-began
	f.arrive("x", "go", "4", true)
	f.arrive("x", "go", "5", true)
	known(t, w, "x", 2)
	close(begin)
	<-began
	if o := f.finished("x"); string(o.GetValue()) != "45" || f.stale != 1 {
		t.Errorf("%v, %d stale commits", o, f.stale)
	}
}

// A function waits in memory after a commit that receives a signal, and forgets what it has received.
func TestSignalArrivesBeforeAWait(t *testing.T) {
	for _, whole := range []bool{false, true} {
		f := newFake(t)
		f.manual, f.whole = true, whole
		began, begin := make(chan struct{}, 2), make(chan struct{})
		w, _ := f.worker(WorkerOptions{}, receiving(began, begin))
		f.start("x", "receiving", "3")
		<-began
		f.arrive("x", "go", "1", true)
		known(t, w, "x", 1)
		close(begin)
		f.suspended("x", 1)
		stuck(t, w, 1)
		f.signal("x", "go", "2")
		f.suspended("x", 2)
		stuck(t, w, 1)
		w.mu.Lock()
		for _, a := range w.sticky.byExec {
			if !a.journal.ops[0].spent() || a.journal.received("go") != 2 {
				t.Errorf("whole %v: the function keeps %+v, and has received %d", whole, a.journal.ops[0], a.journal.received("go"))
			}
		}
		w.mu.Unlock()
		f.signal("x", "go", "3")
		if o := f.finished("x"); string(o.GetValue()) != "123" || len(began) != 0 {
			t.Errorf("whole %v: %v, begun again: %d", whole, o, len(began))
		}
	}
}

// A function lingers from the second signal in a row on that came soon, until one did not.
func TestLingers(t *testing.T) {
	var l lingers
	expect := func(want bool, waits ...time.Duration) {
		t.Helper()
		for _, d := range waits {
			l.waited("f", d)
		}
		if got := l.expects("f"); got != want {
			t.Errorf("expects a signal soon: %v, score %d", got, l.score["f"])
		}
	}
	expect(false, 0, 0, 0) // no node tells of signals
	l.pushed.Store(true)
	expect(true)
	expect(false, lingerTime)
	expect(true, lingerTime-1)
	expect(true, slices.Repeat([]time.Duration{0}, 100)...)
	expect(true, time.Hour, time.Hour)
	expect(false, time.Hour)
	if l.expects("g") {
		t.Error("expects a signal of another function")
	}
}

// A hold takes a bounded number of signals.
func TestArrivalsAreBounded(t *testing.T) {
	var a arrivals
	for n := range uint64(2 * maxArrivals) {
		a.add(&perdurev1.SignalArrived{Name: "go", DeliveryId: n + 1})
	}
	if s, _ := a.take("go", maxArrivals); s == nil {
		t.Error("the last signal that it may take is missing")
	}
	if s, _ := a.take("go", maxArrivals+1); s != nil {
		t.Error("it has taken more")
	}
	if s, _ := a.take("go", maxArrivals); s != nil {
		t.Error("a signal is taken twice")
	}
}
