package async

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// scripted is a call that is done after some steps.
type scripted struct {
	Call
	steps, left int
	after       Next // the last step
	blocked     int
}

func (c *scripted) Step() Next {
	if c.steps++; c.steps <= c.left {
		return Waits
	}
	return c.after
}

func (c *scripted) Block() { c.blocked++ }

// newCalls makes Calls that run goroutines' functions at once and count wakes.
func newCalls() (calls *Calls, wakes *int) {
	wakes = new(int)
	return New(Options{Wake: func() { *wakes++ }, Run: func(f func()) { f() }}), wakes
}

// TestSteps: which of a call's notifications run a step, and when it blocks instead.
func TestSteps(t *testing.T) {
	var now time.Time
	for name, c := range map[string]struct {
		left           int
		after          Next
		run            func(calls *Calls, c *scripted)
		steps, blocked int
	}{
		"no notification":             {run: func(_ *Calls, c *scripted) { c.Begin(c, now, now) }},
		"notified before it began":    {after: Done, steps: 1, run: func(_ *Calls, c *scripted) { c.Notify(); c.Begin(c, now, now) }},
		"notified twice at once":      {left: 1, after: Done, steps: 1, run: func(_ *Calls, c *scripted) { c.Begin(c, now, now); c.Notify(); c.Notify() }},
		"notified after each step":    {left: 1, after: Done, steps: 2, run: func(s *Calls, c *scripted) { c.Begin(c, now, now); c.Notify(); s.Process(); c.Notify() }},
		"notified after it was done":  {after: Done, steps: 1, run: func(s *Calls, c *scripted) { c.Begin(c, now, now); c.Notify(); s.Process(); c.Notify() }},
		"a step that cannot go on":    {after: Blocks, steps: 1, blocked: 1, run: func(s *Calls, c *scripted) { c.Begin(c, now, now); c.Notify(); s.Process(); c.Notify() }},
		"interrupted":                 {blocked: 1, run: func(_ *Calls, c *scripted) { c.Begin(c, now, now); c.Interrupt(); c.Notify() }},
		"notified, then interrupted":  {blocked: 1, run: func(_ *Calls, c *scripted) { c.Begin(c, now, now); c.Notify(); c.Interrupt() }},
		"interrupted before it began": {run: func(_ *Calls, c *scripted) { c.Interrupt(); c.Begin(c, now, now) }},
		"done, then interrupted":      {after: Done, steps: 1, run: func(s *Calls, c *scripted) { c.Begin(c, now, now); c.Notify(); s.Process(); c.Interrupt() }},
		"all are interrupted":         {blocked: 1, run: func(s *Calls, c *scripted) { c.Begin(c, now, now); s.Interrupt() }},
		"begun after all were":        {blocked: 1, run: func(s *Calls, c *scripted) { s.Interrupt(); c.Notify(); c.Begin(c, now, now); c.Notify() }},
		"not long enough":             {run: func(s *Calls, c *scripted) { c.Begin(c, now, time.Time{}); s.Expire(now.Add(Patience - 1)) }},
		"for long":                    {blocked: 1, run: func(s *Calls, c *scripted) { c.Begin(c, now, time.Time{}); s.Expire(now.Add(Patience)) }},
		"until its deadline":          {blocked: 1, run: func(s *Calls, c *scripted) { c.Begin(c, now, now.Add(5)); s.Expire(now.Add(5)) }},
		"before its deadline":         {run: func(s *Calls, c *scripted) { c.Begin(c, now, now.Add(5)); s.Expire(now.Add(4)) }},
	} {
		now = time.Unix(1000, 0)
		calls, _ := newCalls()
		call := &scripted{left: c.left, after: c.after}
		call.Calls = calls
		c.run(calls, call)
		calls.Process()
		if call.steps != c.steps || call.blocked != c.blocked {
			t.Errorf("%s: %d steps, blocked %d times; want %d, %d", name, call.steps, call.blocked, c.steps, c.blocked)
		}
	}
}

// TestExpire: the owner is asked for Expire by the first call, and until none is left.
func TestExpire(t *testing.T) {
	calls, wakes := newCalls()
	now := time.Unix(1000, 0)
	begin := func() (*scripted, bool) {
		c := &scripted{after: Done}
		c.Calls = calls
		return c, c.Begin(c, now, time.Time{})
	}
	a, first := begin()
	b, second := begin()
	if !first || second {
		t.Errorf("the first call asks for Expire: %v, the second: %v", first, second)
	}
	a.Notify()
	b.Notify()
	if *wakes != 1 {
		t.Errorf("%d wakes for two notifications before Process", *wakes)
	}
	if !calls.Expire(now) {
		t.Error("no other Expire although two calls step")
	}
	calls.Process()
	if calls.Expire(now) {
		t.Error("another Expire although no call steps")
	}
	if _, again := begin(); !again {
		t.Error("a later call does not ask for Expire")
	}
}

// racing is a call whose laws are checked while many goroutines use it.
type racing struct {
	Call
	t       *testing.T
	enough  int32
	seen    atomic.Int32 // notifications
	inside  atomic.Int32
	answers atomic.Int32
	over    func()
}

func (c *racing) Step() Next {
	if c.inside.Add(1) != 1 {
		c.t.Error("two steps at the same time")
	}
	defer c.inside.Add(-1)
	if c.seen.Load() < c.enough {
		return Waits
	}
	c.answered()
	return Done
}

func (c *racing) Block() {
	if c.inside.Add(1) != 1 {
		c.t.Error("a step while it blocks")
	}
	c.answered()
}

func (c *racing) answered() {
	if c.answers.Add(1) != 1 {
		c.t.Error("a second answer")
	}
	c.over()
}

// TestEachIsAnsweredOnce: with notifications, interruptions and expirations from everywhere, each call is answered once,
// and no notification is lost.
func TestEachIsAnsweredOnce(t *testing.T) {
	var open, blocking sync.WaitGroup
	wake := make(chan struct{}, 1)
	calls := New(Options{Wake: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}, Run: func(f func()) { blocking.Go(f) }})
	stop := make(chan struct{})
	var loops sync.WaitGroup
	loops.Go(func() {
		for {
			calls.Process()
			select {
			case <-wake:
			case <-stop:
				return
			}
		}
	})
	now := time.Unix(1000, 0)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 500 {
				c := &racing{t: t, enough: 1 + rand.Int32N(3), over: open.Done}
				c.Calls = calls
				open.Add(1)
				notify := func() {
					for range c.enough {
						c.seen.Add(1)
						c.Notify()
					}
				}
				if rand.IntN(2) == 0 {
					callers.Go(notify)
					c.Begin(c, now, time.Time{})
				} else {
					c.Begin(c, now, time.Time{})
					callers.Go(notify)
				}
				switch rand.IntN(20) {
				case 0:
					c.Interrupt()
				case 1:
					calls.Expire(now.Add(Patience))
					calls.Process()
				}
			}
		})
	}
	callers.Wait()
	open.Wait()
	close(stop)
	loops.Wait()
	blocking.Wait()
}
