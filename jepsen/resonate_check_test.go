package jepsen

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"perdure/recovery"
)

// The stories of TestResonateChecker are about a root with a task, its child, and times in milliseconds.
const (
	storyRoot, storyChild = "r", "r:0"
	storyTarget           = `{"resonate:target":"poll://any@g"}`
	storyExternal         = `{"resonate:external":"true"}`
	longTTL               = 10 * shortLease
)

// story makes one request of a story.
func story(from, to int, r ResonateRequest, a ResonateAnswer) ResonateOp {
	return ResonateOp{ResonateRequest: r, Called: time.Duration(from) * time.Millisecond, Answered: time.Duration(to) * time.Millisecond, Answer: a}
}

// storyOpen makes one that has no answer.
func storyOpen(from int, r ResonateRequest) ResonateOp {
	o := story(from, from, r, ResonateAnswer{})
	o.Open = true
	return o
}

// storyCreate creates the root with a target, and the child as one that clients settle.
func storyCreate(id, param string) ResonateRequest {
	tags := map[string]string{resonateTarget: "poll://any@g"}
	if id == storyChild {
		tags = map[string]string{resonateExternal: "true"}
	}
	return ResonateRequest{Kind: promiseCreate, ID: id, Create: &ResonateCreate{ID: id, TimeoutAt: 9e12, Param: ResonateValue{Data: &param}, Tags: tags}}
}

func storySettle(id, state, value string) *ResonateSettle {
	return &ResonateSettle{ID: id, State: state, Value: ResonateValue{Data: &value}}
}

// storyPromise is a record: created at a time, pending.
func storyPromise(id, param string, created int64) ResonatePromise {
	tags := storyTarget
	if id == storyChild {
		tags = storyExternal
	}
	return ResonatePromise{ID: id, State: "pending", Param: fmt.Sprintf(`{"data":%q}`, param), Value: noValue, Tags: tags, TimeoutAt: 9e12, CreatedAt: created}
}

func (p ResonatePromise) as(state, value string, at int64) ResonatePromise {
	p.State, p.Value, p.SettledAt = state, fmt.Sprintf(`{"data":%q}`, value), at
	return p
}

func withStatus(status int) ResonateAnswer { return ResonateAnswer{Status: status} }

func withPromise(p ResonatePromise) ResonateAnswer { return ResonateAnswer{Status: 200, Promise: p} }

func withTask(state string, version uint64, resumes int) ResonateAnswer {
	return ResonateAnswer{Status: 200, Task: ResonateTask{ID: storyRoot, State: state, Version: version, Resumes: resumes}}
}

// held is the answer to an acquire by p, or by a pid of the caller's.
func held(version uint64, ttl int64, pid string) ResonateAnswer {
	return ResonateAnswer{Status: 200, Promise: storyPromise(storyRoot, "a", 100), Task: ResonateTask{ID: storyRoot, State: "acquired", Version: version, PID: pid, TTL: ttl}}
}

// TestResonateChecker plants what a broken server would do, and what a good one may do.
func TestResonateChecker(t *testing.T) {
	root, child := storyPromise(storyRoot, "a", 100), storyPromise(storyChild, "c", 200)
	get := func(id string) ResonateRequest { return ResonateRequest{Kind: promiseGet, ID: id} }
	getTask := ResonateRequest{Kind: taskGet, ID: storyRoot}
	acquire := func(version uint64, ttl int64, pid string) ResonateRequest {
		return ResonateRequest{Kind: taskAcquire, ID: storyRoot, Version: version, PID: pid, TTL: ttl}
	}
	suspend := ResonateRequest{Kind: taskSuspend, ID: storyRoot, Version: 1, Awaited: []string{storyChild}}
	settleChild := ResonateRequest{Kind: promiseSettle, ID: storyChild, Settle: storySettle(storyChild, "resolved", "x")}
	settledChild := child.as("resolved", "x", 300)
	release := func(version uint64) ResonateRequest {
		return ResonateRequest{Kind: taskRelease, ID: storyRoot, Version: version}
	}
	fulfill := func(version uint64) ResonateRequest {
		return ResonateRequest{Kind: taskFulfill, ID: storyRoot, Version: version, Settle: storySettle(storyRoot, "resolved", "done")}
	}
	beat := func(version uint64, pid string) ResonateRequest {
		return ResonateRequest{Kind: taskHeartbeat, PID: pid, Tasks: []ResonateRef{{storyRoot, version}}}
	}
	createRoot, createChild := storyCreate(storyRoot, "a"), storyCreate(storyChild, "c")
	// begun is a root whose task is held at version 1, and a pending child.
	begun := func(ttl int64, more ...ResonateOp) []ResonateOp {
		return append([]ResonateOp{
			story(0, 1, createRoot, withPromise(root)), story(2, 3, acquire(0, ttl, "p"), held(1, ttl, "p")), story(4, 5, createChild, withPromise(child)),
		}, more...)
	}
	for _, c := range []struct {
		name string
		ok   bool
		ops  []ResonateOp
	}{
		{"a task suspends, is resumed and fulfilled", true, begun(longTTL,
			story(10, 11, suspend, withStatus(200)), story(12, 13, getTask, withTask("suspended", 1, 0)),
			story(14, 15, settleChild, withPromise(settledChild)), story(16, 17, getTask, withTask("pending", 1, 1)),
			story(18, 19, acquire(1, longTTL, "q"), held(2, longTTL, "q")), story(20, 21, fulfill(1), withStatus(409)),
			story(22, 23, fulfill(2), withPromise(root.as("resolved", "done", 400))), story(24, 25, getTask, withTask("fulfilled", 2, 0)))},
		{"of two acquires side by side one is refused", true, []ResonateOp{
			story(0, 1, createRoot, withPromise(root)), story(2, 9, acquire(0, longTTL, "p"), withStatus(409)), story(2, 9, acquire(0, longTTL, "q"), held(1, longTTL, "q"))}},
		{"an open settle resumes late", true, begun(longTTL,
			story(10, 11, suspend, withStatus(200)), storyOpen(12, settleChild), story(20, 21, getTask, withTask("suspended", 1, 0)),
			story(22, 23, getTask, withTask("pending", 1, 1)))},
		{"an open create decides its time by the first answer that shows it", true, []ResonateOp{
			storyOpen(0, createRoot), story(2, 3, get(storyRoot), withPromise(root)), story(4, 5, get(storyRoot), withPromise(root))}},
		{"an open create never happened", true, []ResonateOp{
			storyOpen(0, createRoot), story(2, 3, get(storyRoot), withStatus(404)), story(4, 5, get(storyRoot), withStatus(404))}},
		{"a settled child is ready", true, begun(longTTL,
			story(10, 11, settleChild, withPromise(settledChild)), story(12, 13, suspend, withStatus(300)), story(14, 15, release(1), withStatus(200)))},
		{"a short lease ends", true, begun(300,
			story(310, 311, getTask, withTask("pending", 1, 0)), story(312, 313, release(1), withStatus(409)), story(314, 315, acquire(1, 300, "q"), held(2, 300, "q")))},
		{"or does not, extended by a heartbeat", true, begun(300, story(200, 201, beat(1, "p"), withStatus(200)), story(450, 451, release(1), withStatus(200)))},
		{"a fence acts for the holder", true, begun(longTTL,
			story(10, 11, ResonateRequest{Kind: taskFence, ID: storyRoot, Version: 1, Settle: settleChild.Settle}, ResonateAnswer{Status: 200, Action: 200, Promise: settledChild}),
			story(12, 13, get(storyChild), withPromise(settledChild)))},
		{"a callback resumes", true, begun(longTTL,
			story(10, 11, ResonateRequest{Kind: registerCallback, ID: storyChild, Awaiter: storyRoot}, withPromise(child)),
			story(12, 13, settleChild, withPromise(settledChild)), story(14, 15, release(1), withStatus(200)), story(16, 17, getTask, withTask("pending", 1, 1)))},
		{"a root is no awaiter of a promise that is not there", true, []ResonateOp{
			story(0, 1, createRoot, withPromise(root)), story(2, 3, ResonateRequest{Kind: registerCallback, ID: storyChild, Awaiter: storyRoot}, withStatus(404)),
			story(4, 5, ResonateRequest{Kind: registerCallback, ID: storyRoot, Awaiter: storyChild}, withStatus(422))}},

		{"a stale read", false, begun(longTTL, story(10, 11, settleChild, withPromise(settledChild)), story(12, 13, get(storyChild), withPromise(child)))},
		{"a second settle wins", false, begun(longTTL, story(10, 11, settleChild, withPromise(settledChild)),
			story(12, 13, ResonateRequest{Kind: promiseSettle, ID: storyChild, Settle: storySettle(storyChild, "rejected", "y")}, withPromise(child.as("rejected", "y", 301))))},
		{"two settles side by side win", false, begun(longTTL, story(10, 19, settleChild, withPromise(settledChild)),
			story(10, 19, ResonateRequest{Kind: promiseSettle, ID: storyChild, Settle: storySettle(storyChild, "rejected", "y")}, withPromise(child.as("rejected", "y", 301))))},
		{"one version is acquired twice", false, begun(longTTL, story(2, 9, acquire(0, longTTL, "q"), held(1, longTTL, "q")))},
		{"a created promise is gone", false, begun(longTTL, story(10, 11, get(storyChild), withStatus(404)))},
		{"a created promise is created again", false, begun(longTTL, story(10, 11, storyCreate(storyChild, "d"), withPromise(storyPromise(storyChild, "d", 300))))},
		{"a lease that outlasts the run ends", false, begun(longTTL, story(10, 11, getTask, withTask("pending", 1, 0)))},
		{"a short lease ends too soon", false, begun(300, story(250, 251, getTask, withTask("pending", 1, 0)))},
		{"it ends too soon after a heartbeat", false, begun(300, story(200, 201, beat(1, "p"), withStatus(200)), story(450, 451, getTask, withTask("pending", 1, 0)),
			story(452, 453, acquire(1, 300, "q"), held(2, 300, "q")))},
		{"a former holder acts", false, begun(longTTL, story(10, 11, release(1), withStatus(200)), story(12, 13, acquire(1, longTTL, "q"), held(2, longTTL, "q")),
			story(14, 15, fulfill(1), withPromise(root.as("resolved", "done", 400))))},
		{"a suspended task is not resumed", false, begun(longTTL, story(10, 11, suspend, withStatus(200)), story(12, 13, settleChild, withPromise(settledChild)),
			story(14, 15, getTask, withTask("suspended", 1, 0)))},
		{"it is resumed by nothing", false, begun(longTTL, story(10, 11, suspend, withStatus(200)), story(14, 15, getTask, withTask("pending", 1, 1)))},
		{"a callback is lost", false, begun(longTTL,
			story(10, 11, ResonateRequest{Kind: registerCallback, ID: storyChild, Awaiter: storyRoot}, withPromise(child)),
			story(12, 13, settleChild, withPromise(settledChild)), story(14, 15, release(1), withStatus(200)), story(16, 17, getTask, withTask("pending", 1, 0)))},
		{"a suspend overlooks a settled child", false, begun(longTTL, story(10, 11, settleChild, withPromise(settledChild)), story(12, 13, suspend, withStatus(200)))},
		{"a fence is not done", false, begun(longTTL,
			story(10, 11, ResonateRequest{Kind: taskFence, ID: storyRoot, Version: 1, Settle: settleChild.Settle}, ResonateAnswer{Status: 200, Action: 200, Promise: settledChild}),
			story(12, 13, get(storyChild), withPromise(child)))},
		{"an acquire is undone", false, begun(longTTL, story(10, 11, getTask, withTask("pending", 0, 0)))},
		{"a promise changes the time of its creation", false, begun(longTTL, story(10, 11, get(storyChild), withPromise(storyPromise(storyChild, "c", 201))))},
		{"a promise is settled before it was created", false, begun(longTTL, story(10, 11, settleChild, withPromise(child.as("resolved", "x", 199))))},
		{"time runs backwards", false, []ResonateOp{
			story(0, 1, createChild, withPromise(child)), story(2, 3, createRoot, withPromise(root))}},
		{"a value that nobody gave", false, begun(longTTL, story(10, 11, get(storyChild), withPromise(child.as("resolved", "ghost", 300))))},
		{"a missing task is acquired", false, []ResonateOp{story(0, 1, acquire(0, longTTL, "p"), held(1, longTTL, "p"))}},
		{"a refusal of the wrong kind", false, []ResonateOp{story(0, 1, acquire(0, longTTL, "p"), withStatus(409))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := CheckResonate([][]ResonateOp{c.ops}, 0, 0)
			if ok := len(v.Violations) == 0; ok != c.ok || len(v.Undecided) > 0 {
				t.Errorf("ok is %v, expected %v: %+v", ok, c.ok, v)
			}
			if v.Ops != len(c.ops) || v.Histories != 1 {
				t.Errorf("%d requests in %d histories were counted", v.Ops, v.Histories)
			}
		})
	}
}

// simulated is a history of the workload's requests against the rules, in time that the test makes up. Some requests
// have no answer, whether they took place or not.
func simulated(seed uint64) []ResonateOp {
	rng := rand.New(rand.NewPCG(seed, 1))
	run := &ResonateRun{o: ResonateOptions{Prefix: "sim", Seed: seed}, timeoutAt: 9e12, outcomes: map[string]int{}}
	run.o.fill()
	origin := run.fresh()
	rules := resonateRules{recovery.NewMemStore()}
	at := time.Second
	for i := range run.o.OpsPerOrigin {
		at += time.Duration(rng.Int64N(int64(40 * time.Millisecond)))
		cl := &resonateClient{run: run, number: i % 9, rng: rng}
		op := ResonateOp{Client: cl.number, Node: "sim", ResonateRequest: cl.draw(origin)}
		op.Called, op.Answered = at-time.Duration(rng.Int64N(int64(30*time.Millisecond))), at+time.Duration(rng.Int64N(int64(30*time.Millisecond)))
		fate := Acked
		if rng.IntN(25) == 0 {
			fate = Open
		}
		origin.underWay++
		if fate == Acked || rng.IntN(2) == 0 {
			op.Answer = rules.at(at, op.ResonateRequest)
		}
		run.note(origin, op, fate, nil)
	}
	return origin.history
}

// at performs a request at a time: leases end, and records have stamps.
func (s resonateRules) at(now time.Duration, r ResonateRequest) ResonateAnswer {
	for t := range s.Tasks() {
		if t.State == recovery.TaskAcquired && t.LeaseAt <= leaseTime(now) {
			recovery.ExpireLease(s, t.LeaseAt, recovery.Ref{ID: t.ID}, modelRetry)
		}
	}
	a := s.perform(r)
	for t := range s.Tasks() {
		if t.State == recovery.TaskAcquired && t.LeaseAt == modelNow+t.TTL {
			t.LeaseAt = leaseTime(now) + t.TTL
			s.PutTask(t)
		}
	}
	for p := range s.Promises() {
		for _, stamp := range []*int64{&p.CreatedAt, &p.SettledAt} {
			if *stamp == modelNow {
				*stamp = now.Milliseconds()
			}
		}
		s.PutPromise(p)
		if p.ID == a.Promise.ID {
			a.Promise.CreatedAt, a.Promise.SettledAt = p.CreatedAt, p.SettledAt
		}
	}
	return a
}

// TestTamperedHistoriesAreRefuted: the checker passes what the rules answer, and refutes every history of which one
// answer was changed, for each kind of change.
func TestTamperedHistoriesAreRefuted(t *testing.T) {
	var origins [][]ResonateOp
	kinds := map[string]int{}
	for seed := range uint64(40) {
		origins = append(origins, simulated(seed))
		for _, o := range origins[seed] {
			if o.Answer.Status == http.StatusOK || o.Answer.Status == http.StatusMultipleChoices {
				kinds[fmt.Sprint(o.Kind, " ", o.Answer.Status)]++
			}
		}
	}
	if v := CheckResonate(origins, 0, 0); len(v.Violations)+len(v.Undecided) > 0 || v.Open == 0 {
		t.Fatalf("%d open, %d undecided; %s", v.Open, len(v.Undecided), strings.Join(v.Violations, "\n"))
	}
	for _, kind := range []string{promiseGet, promiseCreate, promiseSettle, registerCallback, taskGet, taskCreate, taskAcquire, taskRelease, taskSuspend,
		taskFulfill, taskFence, taskHeartbeat, taskHalt, taskContinue} {
		if kinds[kind+" 200"] == 0 {
			t.Errorf("no %s succeeded", kind)
		}
	}
	if kinds[taskSuspend+" 300"] == 0 {
		t.Error("no suspend found a settled promise")
	}
	for _, name := range ResonateTampers() {
		wrong := tampered(name, origins)
		v := CheckResonate(wrong, 0, 0)
		if len(wrong) == 0 || len(v.Violations) != len(wrong) {
			t.Errorf("%s: %d histories were changed, %d refuted, %d undecided", name, len(wrong), len(v.Violations), len(v.Undecided))
		}
	}
}

// TestResonateAnswers: an answer whose form no correct server gives is an error.
func TestResonateAnswers(t *testing.T) {
	const promise = `{"id":"p","state":"pending","param":{},"value":{},"tags":{},"timeoutAt":2,"createdAt":1}`
	envelope := func(kind string, status int, data string) string {
		return fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c","status":%d,"version":%q},"data":%s}`, kind, status, resonateVersion, data)
	}
	for _, c := range []struct {
		name, kind, body string
		status           int
		ok               bool
	}{
		{"a promise", promiseGet, envelope(promiseGet, 200, `{"promise":`+promise+`}`), 200, true},
		{"a refusal", promiseGet, envelope(promiseGet, 404, `"gone"`), 404, true},
		{"a fence", taskFence, envelope(taskFence, 200, `{"action":`+envelope(promiseCreate, 200, `{"promise":`+promise+`}`)+`,"preload":[]}`), 200, true},
		{"another status", promiseGet, envelope(promiseGet, 404, `"gone"`), 200, false},
		{"another kind", promiseGet, envelope(promiseCreate, 200, `{"promise":`+promise+`}`), 200, false},
		{"another request's answer", promiseGet, strings.Replace(envelope(promiseGet, 404, `"gone"`), `"c"`, `"d"`, 1), 404, false},
		{"a refusal that is no text", promiseGet, envelope(promiseGet, 404, `{}`), 404, false},
		{"an unknown field", promiseGet, envelope(promiseGet, 200, `{"promise":`+strings.Replace(promise, `{"id"`, `{"extra":1,"id"`, 1)+`}`), 200, false},
		{"a missing field", promiseGet, envelope(promiseGet, 200, `{"promise":`+strings.Replace(promise, `"tags":{},`, "", 1)+`}`), 200, false},
		{"no preload", taskAcquire, envelope(taskAcquire, 200, `{"promise":`+promise+`}`), 200, false},
		{"no JSON", promiseGet, `oops`, 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := ResonateRequest{Kind: c.kind, ID: "p"}.answerOf(c.status, []byte(c.body), "c")
			if (err == nil) != c.ok || c.ok && c.status == 200 && a.Promise.ID != "p" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}
