package machine

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// crowd is a partition with an entity for whose lock many executions of another partition wait.
type crowd struct {
	*benchPart
	// from is the other partition, seq the number of its next message.
	from uint32
	seq  uint64
}

func newCrowd(t *testing.T, waiting int) *crowd {
	t.Helper()
	p := &benchPart{state: state.NewMemReader(), now: 1_000_000}
	here := state.PartitionOf(ns, "acc@x", 2)
	m, err := New(Config{Partition: here, Partitions: 2}, p)
	if err != nil {
		t.Fatal(err)
	}
	p.m = m
	c := &crowd{benchPart: p, from: 1 - here, seq: 1}
	c.apply(t, &commandv1.Entry{Commands: []*commandv1.Command{raiseLevelCmd(state.LevelFunctions), registerCmd("@acc")}})
	for c.seq <= uint64(waiting) {
		c.deliver(t, c.request())
	}
	return c
}

func (c *crowd) apply(t *testing.T, entry *commandv1.Entry) *commandv1.Reply {
	t.Helper()
	c.index++
	c.now++
	entry.TimeMs = c.now
	res, err := c.m.Apply(c.index, entry)
	if err != nil {
		t.Fatal(err)
	}
	c.state.Apply(c.m.Writes())
	c.m.Committed()
	return res.Replies[0]
}

func (c *crowd) section(n uint64) entity.Section {
	who := "far" + strconv.FormatUint(n, 10)
	return entity.Section{Holder: entity.Party{Kind: entity.PartyExecution, ID: who, Incarnation: 1}, ID: who + ":0"}
}

// request is the lock request of the next execution.
func (c *crowd) request() entity.Message {
	return entity.LockRequest{Section: c.section(c.seq), Set: []entity.ID{"acc@x"}}
}

// deliver delivers one message from another partition.
func (c *crowd) deliver(t *testing.T, m entity.Message) {
	t.Helper()
	d := &commandv1.Deliver{Source: c.from, Epoch: 1, Messages: []*commandv1.Message{{
		Namespace: ns, Seq: c.seq, FromId: m.From().ID, FromIncarnation: 1, ToId: m.To().ID,
		Kind: &commandv1.Message_Entity{Entity: &commandv1.EntityMessage{Message: entity.AppendMessage(nil, m)}}}}}
	c.seq++
	if err := wire.ReplyError(c.apply(t, &commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_Deliver{Deliver: d}}}})); err != nil {
		t.Fatal(err)
	}
}

// timesAsLong is how many times as long one of two functions takes: the median of pairs, one directly after the other, so
// that a busy machine prolongs both. A run counts for at least 5 µs.
func timesAsLong(one, other func()) float64 {
	took := func(run func()) float64 {
		began := time.Now()
		run()
		return float64(max(time.Since(began), 5*time.Microsecond))
	}
	var ratios []float64
	for range 41 {
		without := took(other)
		ratios = append(ratios, took(one)/without)
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// A message to an entity costs about the same, however many executions wait for its lock: one that comes, and the end of
// the section that holds the lock. One that leaves costs a copy of the queue, which is 100 times as long; a cost that grows faster would be
// 10,000 times as long.
func TestCrowdAtLock(t *testing.T) {
	few, many := newCrowd(t, 200), newCrowd(t, 20_000)
	for _, c := range []struct {
		name  string
		most  float64
		event func(c *crowd)
	}{
		{"another request", 20, func(c *crowd) { c.deliver(t, c.request()) }},
		{"the end of a section", 20, func(c *crowd) {
			e := c.m.entities.byKey[state.Ref{Namespace: ns, ID: "acc@x"}]
			c.deliver(t, entity.Unlock{Section: e.Lock.Section, Entity: "acc@x"})
		}},
		{"a withdrawal", 1000, func(c *crowd) {
			e := c.m.entities.byKey[state.Ref{Namespace: ns, ID: "acc@x"}]
			m := e.Queue[len(e.Queue)/2].Message.(entity.LockRequest)
			c.deliver(t, entity.Withdraw{Section: m.Section, Set: m.Set})
		}},
	} {
		ratio := timesAsLong(func() { c.event(many) }, func() { c.event(few) })
		t.Logf("%s takes %.2f times as long with 20,000 waiting as with 200", c.name, ratio)
		if ratio > c.most {
			t.Errorf("%s takes %.1f times as long with 20,000 waiting as with 200, at most %g is right", c.name, ratio, c.most)
		}
	}
}

// A refusal because of a full backlog reads nothing of the backlog: clients repeat what was refused.
func TestRefusalAtFullBacklogReadsNothing(t *testing.T) {
	c := newCrowd(t, maxEntityQueue+100)
	refuse := func(n int) {
		t.Helper()
		cmd := signalEntityCmd(fmt.Appendf(nil, "refused-%08d", n), "acc@x", "add", "1", 0)
		if e := wire.ReplyError(c.apply(t, &commandv1.Entry{Commands: []*commandv1.Command{cmd}})); e == nil || e.Reason != perdurev1.Reason_REASON_OVERLOADED {
			t.Fatalf("a signal to a full backlog is answered %v", e)
		}
	}
	refuse(0)
	scans := c.scans
	for n := range 10 {
		refuse(1 + n)
	}
	if c.scans != scans {
		t.Errorf("10 refusals scanned the state %d times", c.scans-scans)
	}
}
