package recovery

import "testing"

func TestCreate(t *testing.T) {
	base := CreateRequest{ID: "a", Incarnation: 7, TimeoutAt: 1000, Param: []byte("in")}
	with := func(change func(*CreateRequest)) CreateRequest {
		req := base
		change(&req)
		return req
	}
	for name, tc := range map[string]struct {
		req      CreateRequest
		promise  string
		task     string // empty: none
		effects  []string
		deadline bool
	}{
		"bare": {
			req:     base,
			promise: "promise a#7 pending timeout=1000 created=10 param=in",
		},
		"external": {
			req:      with(func(r *CreateRequest) { r.External = true }),
			promise:  "promise a#7 pending timeout=1000 created=10 param=in external",
			deadline: true,
		},
		"timer": {
			req:      with(func(r *CreateRequest) { r.Timer = true }),
			promise:  "promise a#7 pending timeout=1000 created=10 param=in timer",
			deadline: true,
		},
		"with a target": {
			req:      with(func(r *CreateRequest) { r.Target = "w" }),
			promise:  "promise a#7 pending timeout=1000 created=10 target=w param=in",
			task:     "task a#7 pending v0 target=w retry=110",
			effects:  []string{"execute a#7 v0 to w"},
			deadline: true,
		},
		"timer and target": {
			req:      with(func(r *CreateRequest) { r.Target, r.Timer = "w", true }),
			promise:  "promise a#7 pending timeout=1000 created=10 target=w param=in timer",
			task:     "task a#7 pending v0 target=w retry=110",
			effects:  []string{"execute a#7 v0 to w"},
			deadline: true,
		},
		"delayed": {
			req:      with(func(r *CreateRequest) { r.Target, r.DelayUntil = "w", 500 }),
			promise:  "promise a#7 pending timeout=1000 created=10 target=w param=in delay=500",
			task:     "task a#7 pending v0 target=w retry=500",
			deadline: true,
		},
		"delay over": {
			req:      with(func(r *CreateRequest) { r.Target, r.DelayUntil = "w", 10 }),
			promise:  "promise a#7 pending timeout=1000 created=10 target=w param=in delay=10",
			task:     "task a#7 pending v0 target=w retry=110",
			effects:  []string{"execute a#7 v0 to w"},
			deadline: true,
		},
		"created earlier": {
			req:     with(func(r *CreateRequest) { r.CreatedAt = 4 }),
			promise: "promise a#7 pending timeout=1000 created=4 param=in",
		},
		"created later than now": {
			req:     with(func(r *CreateRequest) { r.CreatedAt = 11 }),
			promise: "promise a#7 pending timeout=1000 created=10 param=in",
		},
		"created earlier, deadline past": {
			req:     with(func(r *CreateRequest) { r.CreatedAt, r.TimeoutAt = 4, 7 }),
			promise: "promise a#7 rejected_timedout timeout=7 created=4 settled=7 param=in",
		},
		"created after its deadline": {
			req:     with(func(r *CreateRequest) { r.CreatedAt, r.TimeoutAt = 8, 7 }),
			promise: "promise a#7 rejected_timedout timeout=7 created=7 settled=7 param=in",
		},
		"deadline now": {
			req:     with(func(r *CreateRequest) { r.TimeoutAt = 10 }),
			promise: "promise a#7 rejected_timedout timeout=10 created=10 settled=10 param=in",
		},
		"deadline past, timer": {
			req:     with(func(r *CreateRequest) { r.TimeoutAt, r.Timer = 3, true }),
			promise: "promise a#7 resolved timeout=3 created=3 settled=3 param=in timer",
		},
		"deadline past, target": {
			req:     with(func(r *CreateRequest) { r.TimeoutAt, r.Target = 3, "w" }),
			promise: "promise a#7 rejected_timedout timeout=3 created=3 settled=3 target=w param=in",
			task:    "task a#7 fulfilled v0 target=w",
		},
		"tags in any order": {
			req:     with(func(r *CreateRequest) { r.Tags = []Tag{{"k", "2"}, {"", "e"}, {"j", "1"}} }),
			promise: "promise a#7 pending timeout=1000 created=10 param=in :e j:1 k:2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, fx, err := Create(w.s, 10, tc.req, retry)
			w.ok(10, err)
			w.is(showPromise(c.Promise), tc.promise)
			w.is(showPromise(w.promise("a")), tc.promise)
			if c.HasTask != (tc.task != "") {
				t.Fatalf("HasTask is %v", c.HasTask)
			}
			if c.HasTask {
				w.is(showTask(c.Task), tc.task)
				w.is(showTask(w.task("a")), tc.task)
			}
			if !c.New || c.Acquired {
				t.Errorf("New is %v, Acquired is %v", c.New, c.Acquired)
			}
			w.effects(fx, tc.effects...)
			if at, armed := c.Promise.Deadline(false); armed != tc.deadline || (armed && at != 1000) {
				t.Errorf("the deadline is at %d, armed %v", at, armed)
			}

			before := dump(w.s)
			again, fx, err := Create(w.s, 10, CreateRequest{ID: "a", Incarnation: 8, TimeoutAt: 77, Target: "other"}, retry)
			w.ok(10, err)
			w.effects(fx)
			w.is(showPromise(again.Promise), tc.promise)
			w.is(dump(w.s), before)
			if again.New || again.HasTask != c.HasTask {
				t.Errorf("again: New is %v, HasTask is %v", again.New, again.HasTask)
			}
		})
	}
}

// Create returns an existing promise projected to the time of the request, and leaves the stored one
// unchanged.
func TestCreateEchoesExpired(t *testing.T) {
	w := newWorld(t)
	w.hold("a", 1000)
	before := dump(w.s)
	c, fx, err := Create(w.s, ttl, CreateRequest{ID: "a", Incarnation: 9, TimeoutAt: 5}, retry)
	w.ok(ttl, err)
	w.effects(fx)
	w.is(showTask(c.Task), "task a#7 pending v1 target=w retry=50")
	c, _, err = Create(w.s, 1000, CreateRequest{ID: "a", Incarnation: 9, TimeoutAt: 5}, retry)
	w.ok(1000, err)
	w.is(showPromise(c.Promise), "promise a#7 rejected_timedout timeout=1000 created=0 settled=1000 target=w")
	w.is(showTask(c.Task), "task a#7 fulfilled v1 target=w")
	w.is(dump(w.s), before)
}

func TestCreateRefuses(t *testing.T) {
	good := CreateRequest{ID: "a", Incarnation: 1, TimeoutAt: 1000, Target: "w"}
	for name, tc := range map[string]struct {
		change func(*CreateRequest)
		rule   string
	}{
		"no id":               {func(r *CreateRequest) { r.ID = "" }, RuleID},
		"no incarnation":      {func(r *CreateRequest) { r.Incarnation = 0 }, RuleBorn},
		"negative deadline":   {func(r *CreateRequest) { r.TimeoutAt = -1 }, RuleTimes},
		"negative delay":      {func(r *CreateRequest) { r.DelayUntil = -1 }, RuleTimes},
		"delay, no target":    {func(r *CreateRequest) { r.DelayUntil, r.Target = 5, "" }, RuleDelay},
		"delay till deadline": {func(r *CreateRequest) { r.DelayUntil = 1000 }, RuleDelay},
		"same tag twice":      {func(r *CreateRequest) { r.Tags = []Tag{{"k", "1"}, {"j", "1"}, {"k", "2"}} }, RuleTags},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			req := good
			tc.change(&req)
			w.refused(Invalid, tc.rule, func() error {
				_, _, err := Create(w.s, 10, req, retry)
				return err
			})
			w.refused(Invalid, tc.rule, func() error {
				_, err := CreateAcquired(w.s, 10, req, "p", ttl)
				return err
			})
		})
	}
}
