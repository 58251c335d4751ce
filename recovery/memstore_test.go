package recovery

import (
	"fmt"
	"slices"
	"testing"
)

func TestMemStoreRelations(t *testing.T) {
	s := NewMemStore()
	s.PutPromise(Promise{ID: "x", State: PromisePending, TimeoutAt: 9})
	for _, awaiter := range []string{"b", "a", "b", "c"} {
		s.AddCallback("x", awaiter)
	}
	s.AddCallback("y", "b")
	shared, sharedBack := s.Callbacks("x"), s.AwaitedBy("b")
	s.RemoveCallback("x", "b")
	s.RemoveCallback("x", "b")
	s.RemoveCallback("z", "b")
	s.AddCallback("x", "0")
	if !slices.Equal(shared, []string{"a", "b", "c"}) || !slices.Equal(sharedBack, []string{"x", "y"}) {
		t.Errorf("shared slices changed to %q and %q", shared, sharedBack)
	}
	if got := s.Callbacks("x"); !slices.Equal(got, []string{"0", "a", "c"}) {
		t.Errorf("callbacks %q", got)
	}
	if got := s.AwaitedBy("b"); !slices.Equal(got, []string{"y"}) {
		t.Errorf("awaited by %q", got)
	}
	s.RemoveCallback("y", "b")
	if got := s.AwaitedBy("b"); len(got) != 0 {
		t.Errorf("awaited by %q", got)
	}
	s.AddListener("x", "l2")
	s.AddListener("x", "l1")
	s.AddListener("x", "l2")
	if got := s.Listeners("x"); !slices.Equal(got, []string{"l1", "l2"}) {
		t.Errorf("listeners %q", got)
	}
	s.ClearListeners("x")
	if got := s.Listeners("x"); len(got) != 0 {
		t.Errorf("listeners %q", got)
	}
}

// A promise that is not awaitable has a timer exactly while it has an awaiter or a listener.
func TestMemStoreArms(t *testing.T) {
	s := NewMemStore()
	armed := func(want bool) {
		t.Helper()
		if ps, _ := s.Expired(9); (len(ps) == 1) != want {
			t.Errorf("due %q", ps)
		}
	}
	s.AddListener("x", "l") // before the promise: no timer for nothing
	armed(false)
	s.PutPromise(Promise{ID: "x", State: PromisePending, TimeoutAt: 9})
	armed(true)
	s.AddCallback("x", "a")
	s.ClearListeners("x")
	armed(true)
	s.RemoveCallback("x", "a")
	armed(false)
	s.PutPromise(Promise{ID: "x", State: PromisePending, TimeoutAt: 9, External: true})
	armed(true)
	s.PutPromise(Promise{ID: "x", State: PromiseResolved, TimeoutAt: 9, External: true})
	armed(false)
}

func TestMemStoreExpired(t *testing.T) {
	s := NewMemStore()
	for id, at := range map[string]int64{"a": 30, "b": 10, "c": 20, "d": 20, "e": 31} {
		s.PutPromise(Promise{ID: id, State: PromisePending, TimeoutAt: at, Timer: true})
		s.PutTask(Task{ID: id, State: TaskPending, RetryAt: 40 - at})
	}
	s.PutTask(Task{ID: "z", State: TaskAcquired, LeaseAt: 1})
	s.PutTask(Task{ID: "y", State: TaskSuspended})
	for range 20 { // whatever order the maps are in
		ps, ts := s.Expired(30)
		if got, want := fmt.Sprint(ps, ts), "[b c d a] [z e a c d b]"; got != want {
			t.Fatalf("due %s, want %s", got, want)
		}
	}
	if ps, ts := s.Expired(0); len(ps) != 0 || len(ts) != 0 {
		t.Errorf("due %q, %q", ps, ts)
	}
}

func TestMemStoreClone(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.sleep("a", 1000, "x")
	_, err := RegisterListener(w.s, 2, Ref{ID: "x"}, "l", false)
	w.ok(2, err)
	before := dump(w.s)
	c := w.s.Clone()
	w.is(dump(c), before)
	st, fx, err := Chain(c, 3, Ref{ID: "x"}, PromiseResolved, nil, retry)
	w.ok(3, err)
	if !st.Changed || len(fx.Executes) != 1 {
		t.Errorf("got %+v, %+v", st, fx)
	}
	w.is(dump(w.s), before)
	kept := dump(c)
	w.make("new", true, 1000)
	w.is(dump(c), kept)
}

// Sequences may be left early.
func TestMemStoreSequencesStop(t *testing.T) {
	s := NewMemStore()
	for _, id := range []string{"b", "a"} {
		s.PutPromise(Promise{ID: id, State: PromisePending, Timer: true})
		s.PutTask(Task{ID: id, State: TaskPending})
		s.AddCallback(id, "w")
		s.AddListener(id, "l")
	}
	var first []string
	for p := range s.Promises() {
		first = append(first, p.ID)
		break
	}
	for task := range s.Tasks() {
		first = append(first, task.ID)
		break
	}
	for id := range s.AllCallbacks() {
		first = append(first, id)
		break
	}
	for id := range s.AllAwaitedBy() {
		first = append(first, id)
		break
	}
	for id := range s.AllListeners() {
		first = append(first, id)
		break
	}
	for id := range s.PromiseTimers() {
		first = append(first, id)
		break
	}
	for timer := range s.TaskTimers() {
		first = append(first, timer.ID)
		break
	}
	if got, want := fmt.Sprint(first), "[a a a w a a a]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
