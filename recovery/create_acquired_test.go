package recovery

import "testing"

func TestCreateAcquired(t *testing.T) {
	req := CreateRequest{ID: "a", Incarnation: 7, TimeoutAt: 1000, Target: "w"}
	t.Run("new", func(t *testing.T) {
		w := newWorld(t)
		c, err := CreateAcquired(w.s, 10, req, "p", ttl)
		w.ok(10, err)
		w.is(showTask(c.Task), "task a#7 acquired v1 target=w pid=p ttl=50 lease=60")
		w.is(showTask(w.task("a")), showTask(c.Task))
		if !c.New || !c.Acquired || !c.HasTask {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("new, deadline past", func(t *testing.T) {
		w := newWorld(t)
		c, err := CreateAcquired(w.s, 1000, req, "p", ttl)
		w.ok(1000, err)
		w.is(showPromise(c.Promise), "promise a#7 rejected_timedout timeout=1000 created=1000 settled=1000 target=w")
		w.is(showTask(w.task("a")), "task a#7 fulfilled v0 target=w")
		if !c.New || c.Acquired {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("existing pending", func(t *testing.T) {
		w := newWorld(t)
		w.make("a", true, 900)
		c, err := CreateAcquired(w.s, 10, req, "p", ttl)
		w.ok(10, err)
		w.is(showTask(w.task("a")), "task a#7 acquired v1 target=w pid=p ttl=50 lease=60")
		if c.New || !c.Acquired || c.Promise.TimeoutAt != 900 {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("existing, lease run out", func(t *testing.T) {
		w := newWorld(t)
		w.hold("a", 1000)
		c, err := CreateAcquired(w.s, ttl, req, "q", ttl)
		w.ok(ttl, err)
		w.is(showTask(w.task("a")), "task a#7 acquired v2 target=w pid=q ttl=50 lease=100")
		if c.New || !c.Acquired {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("existing settled", func(t *testing.T) {
		w := newWorld(t)
		w.hold("a", 1000)
		_, err := Settle(w.s, 5, Ref{ID: "a"}, PromiseResolved, []byte("v"))
		w.ok(5, err)
		before := dump(w.s)
		c, err := CreateAcquired(w.s, 10, req, "q", ttl)
		w.ok(10, err)
		w.is(showTask(c.Task), "task a#7 fulfilled v1 target=w")
		w.is(dump(w.s), before)
	})
	t.Run("existing, held", func(t *testing.T) {
		w := newWorld(t)
		w.hold("a", 1000)
		w.refused(Conflict, RuleState, func() error {
			_, err := CreateAcquired(w.s, ttl-1, req, "q", ttl)
			return err
		})
	})
	t.Run("existing without target", func(t *testing.T) {
		w := newWorld(t)
		w.make("a", false, 1000)
		w.refused(Precondition, RuleTarget, func() error {
			_, err := CreateAcquired(w.s, 5, req, "q", ttl)
			return err
		})
	})
}

func TestCreateAcquiredRefuses(t *testing.T) {
	good := CreateRequest{ID: "a", Incarnation: 1, TimeoutAt: 1000, Target: "w"}
	for name, tc := range map[string]struct {
		change func(*CreateRequest)
		pid    string
		ttl    int64
		rule   string
	}{
		"no target":   {func(r *CreateRequest) { r.Target = "" }, "p", ttl, RuleTarget},
		"delay":       {func(r *CreateRequest) { r.DelayUntil = 20 }, "p", ttl, RuleDelay},
		"no process":  {func(*CreateRequest) {}, "", ttl, RuleLease},
		"lease of 0":  {func(*CreateRequest) {}, "p", 0, RuleLease},
		"lease of -1": {func(*CreateRequest) {}, "p", -1, RuleLease},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			req := good
			tc.change(&req)
			w.refused(Invalid, tc.rule, func() error {
				_, err := CreateAcquired(w.s, 10, req, tc.pid, tc.ttl)
				return err
			})
		})
	}
}
