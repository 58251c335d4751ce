package recovery

import "testing"

func TestChain(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("y", false, 1000)
	w.sleep("b", 1000, "x")
	w.sleep("a", 1000, "x", "y")
	w.sleep("late", 3, "x")
	held := w.hold("held", 1000)
	_, err := RegisterCallback(w.s, 2, Ref{ID: "x"}, Ref{ID: "held"}, false)
	w.ok(2, err)
	for _, address := range []string{"l2", "l1"} {
		_, err := RegisterListener(w.s, 2, Ref{ID: "x"}, address, false)
		w.ok(2, err)
	}

	st, fx, err := Chain(w.s, 3, Ref{ID: "x"}, PromiseResolved, []byte("v"), retry)
	w.ok(3, err)
	w.effects(fx,
		"execute a#7 v1 to w",
		"execute b#7 v1 to w",
		"unblock l1: "+showPromise(st.Promise),
		"unblock l2: "+showPromise(st.Promise))
	w.is(showTask(w.task("a")), "task a#7 pending v1 target=w retry=103 resumes=x")
	w.is(showTask(w.task("held")), "task held#7 acquired v1 target=w pid=p ttl=50 lease=50 resumes=x")
	w.is(showTask(w.task("late")), "task late#7 suspended v1 target=w")

	_, fx, err = Chain(w.s, 4, Ref{ID: "x"}, PromiseRejected, nil, retry)
	w.ok(4, err)
	w.effects(fx)

	// Acquiring takes note of what settled; y still wakes a, by the callback that stayed.
	h, err := Acquire(w.s, 4, w.task("a").ref(), "p", ttl)
	w.ok(4, err)
	_, err = Suspend(w.s, 5, h.Task.ref(), []Ref{{ID: "held"}}, false)
	w.ok(5, err)
	_, fx, err = Chain(w.s, 6, Ref{ID: "y"}, PromiseResolved, nil, retry)
	w.ok(6, err)
	w.effects(fx, "execute a#7 v2 to w")

	st, err = Fulfill(w.s, 7, held, PromiseResolved, []byte("h"))
	w.ok(7, err)
	w.effects(Propagate(w.s, 7, st, retry))
	w.is(showTask(w.task("a")), "task a#7 pending v2 target=w retry=106 resumes=held,y")

	w.refused(NotFound, RulePromise, func() error {
		_, _, err := Chain(w.s, 8, Ref{ID: "missing"}, PromiseResolved, nil, retry)
		return err
	})
}

// A caller with a gate consumes the callback of one promise and leaves the awaiter asleep until
// another settles.
func TestConsumedWithoutResume(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("y", false, 1000)
	w.sleep("all", 1000, "x", "y")
	st, err := Settle(w.s, 3, Ref{ID: "x"}, PromiseResolved, nil)
	w.ok(3, err)
	if len(st.Awaiters) != 1 {
		t.Fatalf("awaiters %q", st.Awaiters)
	}
	w.is(showTask(w.task("all")), "task all#7 suspended v1 target=w")
	st, err = Settle(w.s, 4, Ref{ID: "y"}, PromiseResolved, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.effects(Propagate(w.s, 4, st, retry), "execute all#7 v1 to w")
	w.sound(4)
	w.is(showTask(w.task("all")), "task all#7 pending v1 target=w retry=104 resumes=y")
}

func TestEffects(t *testing.T) {
	e := Effects{Executes: []Execute{{ID: "a"}}}
	u := Effects{Unblocks: []Unblock{{Address: "l"}}}
	if e.Empty() || u.Empty() || !(Effects{}).Empty() {
		t.Error("empty is what has neither")
	}
	var all Effects
	for _, fx := range []Effects{u, e, {Executes: []Execute{{ID: "b"}}}} {
		all.Add(fx)
	}
	if len(all.Executes) != 2 || all.Executes[1].ID != "b" || len(all.Unblocks) != 1 {
		t.Errorf("got %+v", all)
	}
}
