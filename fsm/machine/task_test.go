package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// Tasks are given out in the order in which they became pending, in turns over the functions of a grant, and no
// more than there is credit for.
func TestAssign(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 6 {
		w.do(startCmd(w.request(), fmt.Sprintf("%c", 'f'-rune(i)), []string{"x", "y", "z"}[i%3], ""))
		w.now++
	}
	res := w.apply(w.parts[0], &commandv1.Entry{Grants: []*commandv1.Grant{
		grant("w0", 3), grant("", 3, "x"), grant("w0", 0, "x"), {Worker: "w0", Namespace: ns, Functions: []string{"x"}, Credit: 1},
		grant("w1", 3, "y", "x", "y", "x"), grant("w2", 1, "z"), grant("w3", 9, "x", "y", "z", "none"), grant("w4", 9, "x", "y", "z"),
	}})
	var got []string
	for _, a := range res.Effects.Assigned {
		got = append(got, a.Worker+":"+a.Token.Id)
		if a.Token.Version != 1 {
			t.Errorf("%v", a)
		}
	}
	if want := "w1:f w1:e w1:c w2:d w3:b w3:a"; strings.Join(got, " ") != want || len(res.Effects.Ready) != 0 {
		t.Errorf("assigned %v, must be %s; ready %v", got, want, res.Effects.Ready)
	}
}

// Functions take turns when there is less credit than tasks, also if it is never enough for all functions.
func TestAssignInTurns(t *testing.T) {
	for _, c := range []struct {
		credit  int
		entries int
		want    string // the tasks of each entry, sorted
	}{
		{credit: 4, entries: 2, want: "x0 x1 y0 z0, x2 x3 y1 z1"},
		{credit: 1, entries: 6, want: "x0, z0, x1, y0, x2, x3"},
	} {
		w := newWorld(t, 1)
		for i := range 14 {
			w.do(startCmd(w.request(), fmt.Sprintf("x%d", i), "x", ""))
			w.now++
		}
		for i := range 2 {
			w.do(startCmd(w.request(), fmt.Sprintf("y%d", i), "y", ""))
			w.do(startCmd(w.request(), fmt.Sprintf("z%d", i), "z", ""))
			w.now++
		}
		var got []string
		for range c.entries {
			res := w.apply(w.parts[0], &commandv1.Entry{Grants: []*commandv1.Grant{grant("w1", c.credit, "z", "x", "y")}})
			var tasks []string
			for _, a := range res.Effects.Assigned {
				tasks = append(tasks, a.Token.Id)
			}
			slices.Sort(tasks)
			got = append(got, strings.Join(tasks, " "))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%d at once: %q, must be %q", c.credit, got, c.want)
		}
	}
}

// A task that becomes pending in an entry is acquired by a grant of that very entry.
func TestAssignInTheSameEntry(t *testing.T) {
	w := newWorld(t, 1)
	res := w.apply(w.parts[0], &commandv1.Entry{
		Commands: []*commandv1.Command{startCmd(w.request(), "e", "f", ""), startCmd(w.request(), "e2", "f", "")},
		Grants:   []*commandv1.Grant{grant("w1", 1, "f")}})
	if got := w.assigned(res); len(got) != 1 || got[0].token.Id != "e" || len(res.Effects.Ready) != 1 {
		t.Fatalf("assigned %v, ready %v", got, res.Effects.Ready)
	}
	// A function without remaining pending tasks is not announced.
	if res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{startCmd(w.request(), "h", "solo", "")},
		Grants: []*commandv1.Grant{grant("w1", 2, "solo")}}); len(res.Effects.Assigned) != 1 || len(res.Effects.Ready) != 0 {
		t.Errorf("effects %+v", res.Effects)
	}
	// A step that calls a child: one entry for the commit, the suspension, and the child's start.
	v := w.views[viewKey{"w1", "e"}]
	res = w.apply(w.parts[0], &commandv1.Entry{
		Commands: []*commandv1.Command{w.commitCmd(v, "child g; await 0")},
		Grants:   []*commandv1.Grant{grant("w1", 1, "g", "f")}})
	// e2 has waited longer.
	if got := w.assigned(res); len(got) != 1 || got[0].token.Id != "e2" {
		t.Errorf("assigned %v", got)
	}
	if got := w.only("w1", "g"); got.token.Id != "e:0" {
		t.Errorf("assigned %v", got)
	}
}

// A place in a queue that is taken in the entry that made it leaves no trace on disk.
func TestNoTombstones(t *testing.T) {
	w := newWorld(t, 1)
	m := w.parts[0].m
	if _, err := m.Apply(1, &commandv1.Entry{TimeMs: 5, Commands: []*commandv1.Command{startCmd(nil, "e", "f", "")}, Grants: []*commandv1.Grant{grant("w1", 1, "f")}}); err != nil {
		t.Fatal(err)
	}
	for _, write := range m.Writes() {
		if keys.Family(write.Key[0]) == keys.Ready {
			t.Errorf("written: %q", write.Key)
		}
	}
}

// A task's expirations run before its assignment: an ended task is not assigned.
func TestAssignRunsExpirations(t *testing.T) {
	w := newWorld(t, 1)
	for i, timeout := range []int64{2000, 0} {
		start := startCmd(w.request(), fmt.Sprint("e", i), "f", "")
		start.GetStart().TimeoutMs = timeout
		w.do(start)
	}
	w.now += 2000
	if got := w.take("w1", 1, "f"); len(got) != 0 {
		t.Errorf("assigned %v", got)
	}
	if got := w.describe("e0"); got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
		t.Errorf("%v", got)
	}
	if got := w.take("w1", 1, "f"); len(got) != 1 || got[0].token.Id != "e1" {
		t.Errorf("assigned %v", got)
	}
}

// Heartbeats extend the lease, their absence ends it, and a former holder is refused.
func TestLease(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	for range 5 {
		w.now += 9_999
		if got := w.do(heartbeatCmd("w1", v.token)).GetHeartbeat(); len(got.Lost) != 0 {
			t.Fatalf("lost %v", got)
		}
	}
	w.now += 9_999
	w.tick()
	w.commit(v, "step a")
	if got := w.describe("e").Task; got.LeaseUntilMs != w.now+1 {
		t.Errorf("a commit has changed the lease: %v at %d", got, w.now)
	}
	w.now++
	// At the end of the lease the first command on the task ends it, with or without a tick.
	twin := &world{t: t, now: w.now, views: w.views, parts: []*part{{cfg: w.parts[0].cfg, state: w.parts[0].state.Clone(), index: w.parts[0].index}}}
	twin.open(twin.parts[0])
	if e := wire.ReplyError(twin.one(w.commitCmd(v, "step b"))); e == nil || twin.describe("e").Task.State != "pending" {
		t.Errorf("answered %v, task %v", e, twin.describe("e").Task)
	}
	stale := map[string]*commandv1.Command{
		"commit": w.commitCmd(v, "step b"), "release": releaseCmd(v.token, "", 0),
	}
	for _, cmd := range stale {
		w.refused(cmd, perdurev1.Reason_REASON_STALE_TASK)
	}
	if got := w.do(heartbeatCmd("w1", v.token)).GetHeartbeat(); len(got.Lost) != 1 {
		t.Errorf("heartbeat answers %v", got)
	}
	w.tick()
	if got := w.describe("e"); got.Task.State != "pending" || got.Task.Version != 1 || got.WakeSource != "no worker" {
		t.Errorf("it is %v", got)
	}
	next := w.only("w2", "f")
	if next.token.Version != 2 {
		t.Errorf("given out as %v", next.token)
	}
	before := content(w.parts[0].state)
	for _, cmd := range stale {
		w.refused(cmd, perdurev1.Reason_REASON_STALE_TASK)
	}
	for _, wrong := range []*commandv1.Command{heartbeatCmd("w1", v.token), heartbeatCmd("w1", next.token), heartbeatCmd("w2", v.token)} {
		if got := w.do(wrong).GetHeartbeat(); len(got.Lost) != 1 {
			t.Errorf("heartbeat answers %v", got)
		}
	}
	if after := content(w.parts[0].state); after != before {
		t.Errorf("the stale worker has changed the state:\n%s", difference(before, after))
	}
	w.commit(next, "return x")
}

// A token of another incarnation, another version or another id is refused, from any worker.
func TestStaleTokens(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	for _, change := range []func(*perdurev1.TaskToken){
		func(t *perdurev1.TaskToken) { t.Incarnation++ },
		func(t *perdurev1.TaskToken) { t.Incarnation = 0 },
		func(t *perdurev1.TaskToken) { t.Version++ },
		func(t *perdurev1.TaskToken) { t.Version = 0 },
		func(t *perdurev1.TaskToken) { t.Id = "none" },
		func(t *perdurev1.TaskToken) { t.Id = "" },
	} {
		token := proto.Clone(v.token).(*perdurev1.TaskToken)
		change(token)
		cmd := w.commitCmd(v, "return x")
		cmd.GetCommit().Task, cmd.Id = token, token.Id
		w.refused(cmd, perdurev1.Reason_REASON_STALE_TASK)
		w.refused(releaseCmd(token, "", 0), perdurev1.Reason_REASON_STALE_TASK)
		if token.Incarnation == 0 {
			continue // in a heartbeat: any incarnation
		}
		if got := w.do(heartbeatCmd("w1", token)).GetHeartbeat(); len(got.Lost) != 1 {
			t.Errorf("%v: heartbeat answers %v", token, got)
		}
		if token.Id != "" {
			reply := w.query(&commandv1.Query{Id: token.Id, Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: token.Incarnation, Version: token.Version}}})
			if e := wire.QueryError(reply); e == nil || e.Reason != perdurev1.Reason_REASON_STALE_TASK {
				t.Errorf("%v: %v", token, reply)
			}
		}
	}
	cmd := w.commitCmd(v, "return x")
	cmd.GetCommit().Task = nil
	w.refused(cmd, perdurev1.Reason_REASON_BAD_REQUEST)
	w.commit(v, "return x")
}

// A task given back is up again, at once or after its delay; what the worker said of it is shown.
func TestRelease(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.do(releaseCmd(v.token, "journal mismatch", 0))
	if got := w.describe("e"); got.LastProblem != "journal mismatch" || got.WakeSource != "no worker" || got.Task.Version != 1 {
		t.Errorf("it is %v", got)
	}
	w.refused(releaseCmd(v.token, "again", 0), perdurev1.Reason_REASON_STALE_TASK)
	v = w.only("w2", "f")
	if n := takeCensus(w.parts[0].state).headers["e"].Releases; n != 1 {
		t.Errorf("%d releases are counted", n)
	}
	w.do(releaseCmd(v.token, strings.Repeat("é", 3000), 5000))
	e := w.describe("e")
	if e.WakeSource != "retry timer" || len(e.LastProblem) > maxProblemBytes || !utf8.ValidString(e.LastProblem) {
		t.Errorf("it is %v", e)
	}
	w.now += 4999
	w.tick()
	if got := w.take("w3", 1, "f"); len(got) != 0 {
		t.Errorf("assigned before the delay is over: %v", got)
	}
	w.now++
	w.tick()
	v = w.only("w3", "f")
	w.refused(releaseCmd(v.token, "", -1), perdurev1.Reason_REASON_BAD_REQUEST)
	w.commit(v, "step a")
	if got := w.describe("e").LastProblem; got != "" {
		t.Errorf("after a commit the problem is still %q", got)
	}
	// Its deadline ends it while it waits to be given out again.
	w.do(releaseCmd(v.token, "x", 1<<62))
	w.do(cancelCmd("e", "", 100))
	w.now += 100
	w.tick()
	if got := w.describe("e"); got.WakeSource != "finished" {
		t.Errorf("it is %v", got)
	}
}

// A task that no worker takes stays pending and is announced again, up to the level at which its place in the queue is
// enough.
func TestRetryTimer(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	w.do(startCmd(w.request(), "e", "f", ""))
	for range 3 {
		w.now += retryMS
		res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}})
		if !slices.Contains(res.Effects.Ready, state.Queue{Namespace: ns, Function: "f"}) || res.Effects.NextExpiration != w.now+retryMS {
			t.Errorf("effects %+v", res.Effects)
		}
	}
	w.only("w1", "f")
}

// A tick does no more than it is asked, promises before leases, and says how much.
func TestTickLimit(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 5 {
		w.do(createPromiseCmd(fmt.Sprint("p", i), int64(100+i)))
		w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", ""))
	}
	w.take("w1", 5, "f")
	w.now += 20_000
	var settled []string
	for _, limit := range []uint32{1, 3, 2, 100} {
		res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(limit)}})
		for _, r := range res.Effects.Settled {
			settled = append(settled, r.ID)
		}
		if done := res.Replies[0].GetTick().Done; done > limit || done < min(limit, 4) {
			t.Errorf("a tick of %d has done %d", limit, done)
		}
	}
	if strings.Join(settled, " ") != "p0 p1 p2 p3 p4" {
		t.Errorf("settled %v", settled)
	}
	if at, ok, _ := query.NextExpiration(w.parts[0].state); ok {
		t.Errorf("next due %d", at)
	}
}

// The tasks that are held, by worker.
func TestHeld(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 4 {
		w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", ""))
	}
	w.take("w1", 1, "f")
	w.take("w2", 2, "f")
	for worker, want := range map[string]string{"w1": "e0@1/1", "w2": "e1@2/1,e2@3/1", "w3": "", "": "e0@1/1,e1@2/1,e2@3/1"} {
		reply := w.query(&commandv1.Query{Kind: &commandv1.Query_Held{Held: &commandv1.HeldQuery{Worker: worker}}})
		if got := showTokens(reply.GetHeld().Tasks); got != want {
			t.Errorf("%q holds %s, want %s", worker, got, want)
		}
	}
	w.do(registerCmd("f", "g"))
	reply := w.query(&commandv1.Query{Kind: &commandv1.Query_Functions{Functions: &commandv1.FunctionsQuery{Functions: []string{"f", "h", "g", "i"}}}})
	if got := reply.GetFunctions().Unknown; !slices.Equal(got, []string{"h", "i"}) {
		t.Errorf("unknown %v", got)
	}
	if got, err := query.ReadyQueues(w.parts[0].state); err != nil || len(got) != 1 || got[0].Function != "f" {
		t.Errorf("queues %v, %v", got, err)
	}
}
