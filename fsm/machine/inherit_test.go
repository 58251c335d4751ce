package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

func inheritCmd(now int64, limit uint32, from []byte) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_InheritLeases{InheritLeases: &commandv1.InheritLeases{NowMs: now, Limit: limit, From: from}}}
}

// lead does what a new leader of a partition does first: it inherits the leases, in entries that do not move the
// machine's clock. It answers how many were extended.
func (w *world) lead(p *part, limit uint32) (extended uint32) {
	w.t.Helper()
	defer func(skew int64) { w.skew = skew }(w.skew)
	w.skew = w.now // the entries' time is 0
	var from []byte
	for range 10_000 {
		clock := max(p.m.Clock(), 1)
		res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{inheritCmd(w.now, limit, from)}})
		if e := wire.ReplyError(res.Replies[0]); e != nil {
			w.t.Fatalf("inherit: %v", e)
		}
		if p.m.Clock() != clock {
			w.t.Fatalf("the clock went from %d to %d", clock, p.m.Clock())
		}
		reply := res.Replies[0].GetInheritLeases()
		extended += reply.Extended
		if from = reply.Next; len(from) == 0 {
			return extended
		}
	}
	w.t.Fatalf("there is no end to the leases of partition %d", p.cfg.Partition)
	return 0
}

func leaseOf(t *testing.T, w *world, id string) (at int64) {
	t.Helper()
	task, ok := w.parts[0].m.txn.store(ns).Task(id)
	if !ok || task.State != recovery.TaskAcquired {
		t.Fatalf("the task of %s is %v, %v", id, task, ok)
	}
	return task.LeaseAt
}

// Without a leader no worker can extend a lease. The next leader gives each its full time before its own
// clock ends any, in as many commands as it takes.
func TestNewLeaderGivesLeasesTheirFullTime(t *testing.T) {
	for _, limit := range []uint32{0, 1, 3} {
		w := newWorld(t, 1)
		p := w.parts[0]
		const n = 7
		for i := range n {
			w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", ""))
		}
		for i := range n {
			o := grant(fmt.Sprint("w", i), 1, "f")
			o.LeaseMs = int64(2_000 * (i + 1))
			w.apply(p, &commandv1.Entry{Grants: []*commandv1.Grant{o}})
		}
		w.now += 2_000 // the first one's lease is over, by the clock of the leader that was
		w.do(tickCmd(0))
		w.now += 5_000 // an election: those of e1 and e2 would be over, those of others nearly so
		if got := w.lead(p, limit); got != n-1 {
			t.Errorf("limit %d: %d leases extended", limit, got)
		}
		if task, _ := p.m.txn.store(ns).Task("e0"); task.State != recovery.TaskPending {
			t.Errorf("limit %d: the task of e0, whose lease had ended before, is %v", limit, task.State)
		}
		for i := 1; i < n; i++ {
			if got, want := leaseOf(t, w, fmt.Sprint("e", i)), w.now+int64(2_000*(i+1)); got != want {
				t.Errorf("limit %d: the lease of e%d ends at %d, its full time at %d", limit, i, got, want)
			}
		}
		if got := w.lead(p, limit); got != 0 {
			t.Errorf("limit %d: once more, %d leases extended", limit, got)
		}
		// The lease lasts its full time from the leader's clock on.
		w.now += 3_999
		if res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}}); res.Effects.Expired != 0 {
			t.Errorf("limit %d: %d leases ended before their time", limit, res.Effects.Expired)
		}
		w.now++
		if res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}}); res.Effects.Expired != 1 {
			t.Errorf("limit %d: %d leases ended, of one whose time was over", limit, res.Effects.Expired)
		}
	}
}

func TestInheritRefuses(t *testing.T) {
	w := newWorldAt(t, state.LevelFirst, 1)
	w.do(startCmd(w.request(), "e", "f", ""))
	w.take("w1", 1, "f")
	for _, from := range [][]byte{{0xff}, {byte(keys.Task)}, {byte(keys.Deadline), byte(keys.DeadlinePromise), 0}} {
		w.refused(inheritCmd(w.now, 0, from), perdurev1.Reason_REASON_BAD_REQUEST)
	}
	if w.parts[0].m.feature >= state.LevelLeases {
		t.Errorf("a refused command has raised the feature level to %d", w.parts[0].m.feature)
	}
	w.lead(w.parts[0], 0)
	if w.parts[0].m.feature != state.LevelLeases {
		t.Errorf("the feature level is %d", w.parts[0].m.feature)
	}
}
