package entity

import "testing"

// A request waits for what came before it, and what comes after it waits for the lock.
func TestLockQueues(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	deliver(t, s, lock(order, "s", 0, "a", "b"))
	deliver(t, s, signal(user, "a", "2"))
	deliver(t, s, lock(refund, "s", 0, "a"))
	wantRunnable(t, s, "1")
	run(t, s, 1, lock(order, "s", 1, "a", "b"))
	wantRunnable(t, s)
	deliver(t, s, inSection(called(order, "a", "3"), "s"))
	deliver(t, s, signal(user, "a", "4"))
	wantRunnable(t, s, "3")
	run(t, s, 1, Reply{Entity: "a", Caller: order, Request: "3"})
	deliver(t, s, unlock(order, "s", "a"))
	wantRunnable(t, s, "2")
	run(t, s, 1, granted(refund, "s", "a"))
	wantRunnable(t, s)
	deliver(t, s, unlock(refund, "s", "a"))
	wantRunnable(t, s, "4")
}

// A free entity is locked on arrival, the next request as soon as it is free again.
func TestLockFree(t *testing.T) {
	s := newState(t, "b")
	deliver(t, s, lock(order, "s", 1, "a", "b"), granted(order, "s", "a", "b"))
	deliver(t, s, lock(refund, "s", 0, "b", "c"))
	deliver(t, s, unlock(order, "s", "b"), lock(refund, "s", 1, "b", "c"))
	deliver(t, s, unlock(refund, "s", "b"))
	if !s.Collectable() {
		t.Errorf("%+v", s)
	}
}

// Operations that the holder sent before it entered run under the lock, before its section's calls. Those
// that it sends after it left wait, and so do its scheduled ones.
func TestHolderUnderItsLock(t *testing.T) {
	s := newState(t, "b")
	deliver(t, s, signal(user, "b", "u1"))
	deliver(t, s, lock(order, "s", 1, "a", "b"))
	deliver(t, s, signal(user, "b", "u2"))
	deliver(t, s, signal(order, "b", "late 1"))
	run(t, s, 1, granted(order, "s", "a", "b"))
	deliver(t, s, called(order, "b", "late 2"))
	deliver(t, s, due(signal(order, "b", "scheduled"), 5))
	s.Tick(5)
	deliver(t, s, inSection(called(order, "b", "inside"), "s"))
	deliver(t, s, signal(Party{PartyExecution, "order", 4}, "b", "other incarnation"))
	wantRunnable(t, s, "late 1", "late 2", "inside")

	// The unlock overtakes nothing of the holder's.
	deliver(t, s, unlock(order, "s", "b"))
	deliver(t, s, signal(order, "b", "after"))
	deliver(t, s, unlock(order, "s", "b")) // a repetition does not let it in
	wantRunnable(t, s, "late 1", "late 2", "inside")
	run(t, s, 2, Reply{Entity: "b", Caller: order, Request: "late 2"})
	wantRunnable(t, s, "inside")
	run(t, s, 1, Reply{Entity: "b", Caller: order, Request: "inside"})
	wantRunnable(t, s, "u2", "other incarnation", "after", "scheduled")
}

// A batch that was taken before the unlock is committed after it.
func TestUnlockUnderBatch(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, lock(order, "s", 0, "a"), granted(order, "s", "a"))
	deliver(t, s, inSection(called(order, "a", "1"), "s"))
	deliver(t, s, lock(refund, "t", 0, "a"))
	b, _ := s.Batch(1, 0)
	deliver(t, s, unlock(order, "s", "a"))
	out, err := s.Commit(0, Commit{Incarnation: b.Incarnation, Version: b.Version, Results: []Result{{Request: "1", Failed: true, Output: []byte("no")}}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, out, []Message{Reply{Entity: "a", Caller: order, Request: "1", Failed: true, Output: []byte("no")}, granted(refund, "t", "a")})
}

// A section's call meets its lock, or is refused: it cannot have been sent otherwise.
func TestSectionCallNeedsLock(t *testing.T) {
	call := inSection(called(order, "a", "1"), "s")
	s := newState(t, "a")
	refusedDelivery(t, s, call, Conflict, RuleUnderLock)
	deliver(t, s, lock(order, "another", 0, "a"), granted(order, "another", "a"))
	if e := refusedDelivery(t, s, call, Conflict, RuleUnderLock); e.Section != "s" {
		t.Errorf("%+v", e)
	}

	s = newState(t, "a")
	deliver(t, s, lock(order, "s", 0, "a"), granted(order, "s", "a"))
	refusedDelivery(t, s, inSection(called(refund, "a", "1"), "s"), Conflict, RuleUnderLock)
	deliver(t, s, call)
	deliver(t, s, unlock(order, "s", "a"))
	refusedDelivery(t, s, inSection(called(order, "a", "2"), "s"), Conflict, RuleUnderLock)
}

// Only the holder unlocks.
func TestUnlockOfOthers(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, unlock(order, "s", "a"))
	deliver(t, s, lock(order, "s", 0, "a"), granted(order, "s", "a"))
	for _, u := range []Unlock{unlock(refund, "s", "a"), unlock(order, "t", "a"), {Section{Party{PartyExecution, "order", 9}, "s"}, "a"}} {
		deliver(t, s, u)
		if !s.Lock.Held() || s.Lock.Until != 0 {
			t.Fatalf("%+v took the lock: %v", u, s.Lock)
		}
	}
}

// A repeated request changes nothing while the first waits; while the entity is locked, the request is
// forwarded, and the holder's answer will free entities locked by mistake.
func TestLockRepeated(t *testing.T) {
	s := newState(t, "a")
	deliver(t, s, signal(user, "a", "1"))
	deliver(t, s, lock(order, "s", 0, "a", "b"))
	deliver(t, s, lock(order, "s", 0, "a", "b"))
	if len(s.Queue) != 2 {
		t.Fatalf("%+v", s.Queue)
	}
	run(t, s, 1, lock(order, "s", 1, "a", "b"))
	deliver(t, s, lock(order, "s", 0, "a", "b"), lock(order, "s", 1, "a", "b"))
	if len(s.Queue) != 0 {
		t.Fatalf("%+v", s.Queue)
	}
}

func TestWithdraw(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		s := newState(t, "a")
		deliver(t, s, signal(user, "a", "1"))
		deliver(t, s, lock(order, "s", 0, "a", "b"))
		deliver(t, s, lock(refund, "s", 0, "a"))
		deliver(t, s, withdraw(order, "s", 0, "a", "b")) // the trail ends here
		run(t, s, 1, granted(refund, "s", "a"))
	})
	t.Run("waiting behind another's lock", func(t *testing.T) {
		s := newState(t, "a")
		deliver(t, s, lock(order, "s", 0, "a"), granted(order, "s", "a"))
		deliver(t, s, lock(refund, "s", 0, "a", "b"))
		deliver(t, s, withdraw(refund, "s", 0, "a", "b"))
		if s.Lock.Section.Holder != order || len(s.Queue) != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("locked", func(t *testing.T) {
		s := newState(t, "a")
		deliver(t, s, lock(order, "s", 0, "a", "b"), lock(order, "s", 1, "a", "b"))
		deliver(t, s, lock(refund, "s", 0, "a", "c"))
		deliver(t, s, withdraw(order, "s", 0, "a", "b"), withdraw(order, "s", 1, "a", "b"), lock(refund, "s", 1, "a", "c"))
	})
	t.Run("locked last", func(t *testing.T) {
		s := newState(t, "b")
		deliver(t, s, lock(order, "s", 1, "a", "b"), granted(order, "s", "a", "b"))
		deliver(t, s, withdraw(order, "s", 1, "a", "b"))
		if s.Lock.Held() {
			t.Error(s.Lock)
		}
	})
	t.Run("nothing there", func(t *testing.T) {
		s := newState(t, "a")
		deliver(t, s, withdraw(order, "s", 0, "a", "b"), withdraw(order, "s", 1, "a", "b"))
	})
	t.Run("with the holder's operations", func(t *testing.T) {
		s := newState(t, "b")
		deliver(t, s, lock(order, "s", 1, "a", "b", "c"), lock(order, "s", 2, "a", "b", "c"))
		deliver(t, s, signal(order, "b", "late"))
		deliver(t, s, withdraw(order, "s", 1, "a", "b", "c"), withdraw(order, "s", 2, "a", "b", "c"))
		deliver(t, s, lock(refund, "s", 0, "b"))
		wantRunnable(t, s, "late")
		run(t, s, 1, granted(refund, "s", "b"))
	})
	t.Run("the first waiting request becomes grantable", func(t *testing.T) {
		s := newState(t, "a")
		deliver(t, s, signal(user, "a", "1"))
		deliver(t, s, lock(order, "s", 0, "a"))
		deliver(t, s, signal(user, "a", "2"))
		deliver(t, s, withdraw(order, "s", 0, "a"))
		wantRunnable(t, s, "1", "2")
	})
}

func TestLockString(t *testing.T) {
	for _, tc := range []struct {
		lock Lock
		want string
	}{
		{Lock{}, "not locked"},
		{Lock{Section: Section{order, "s"}}, `locked by section s of execution "order"/3`},
		{Lock{Section: Section{order, "s"}, Until: 4}, `being unlocked by section s of execution "order"/3`},
	} {
		if got := tc.lock.String(); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
