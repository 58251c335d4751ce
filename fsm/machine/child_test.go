package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// A child's end is its caller's fact, however it ends.
func TestChildOutcomes(t *testing.T) {
	for _, spread := range []bool{false, true} {
		for _, c := range []struct {
			name string
			end  func(w *world, child *view)
			want string
		}{
			{"value", func(w *world, child *view) { w.commit(child, "return r") }, `"r"`},
			{"nothing", func(w *world, child *view) { w.commit(child, "return") }, `""`},
			{"failure", func(w *world, child *view) { w.commit(child, "fail app:no") }, `!app "no"`},
			{"terminated", func(w *world, child *view) { w.do(terminateCmd(child.token.Id, "enough")) }, `!cancelled "enough"`},
			{"cancelled", func(w *world, child *view) {
				w.do(cancelCmd(child.token.Id, "why", 10))
				w.commit(child, "cancelled cleaned-up")
			}, `!cancelled "cleaned-up"`},
			{"grace over", func(w *world, child *view) {
				w.do(cancelCmd(child.token.Id, "why", 10))
				w.now += 10
				w.tick()
			}, `!cancelled "why: the grace period ended"`},
			{"timed out", func(w *world, child *view) { w.now += 3000; w.tick() }, `!timeout "timed out"`},
		} {
			name := c.name
			if spread {
				name += ", spread"
			}
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, 3)
				v := w.begin("e", "f")
				option := ""
				if spread {
					option = " spread"
				}
				w.commit(v, "step s; child g input timeout=3000"+option+"; await 1")
				if got := w.describe("e").WakeSource; got != "child e:1" && !(spread && strings.HasPrefix(got, "child e:1, execution ")) {
					t.Errorf("waits for %s", got)
				}
				w.ship()
				child := w.only("w2", "g")
				if spread == (child.token.Id == "e:1") {
					t.Errorf("the child is %v", child.token)
				}
				started := child.journal[0].Event.GetExecutionStarted()
				if string(started.Input) != "input" || started.ParentId != "e" {
					t.Errorf("started with %v", started)
				}
				c.end(w, child)
				w.ship()
				entries := w.journal("e")
				last := entries[len(entries)-2].Event.GetInvokeCompleted()
				if rejected := w.promise("e:1").State != perdurev1.PromiseState_PROMISE_STATE_RESOLVED; rejected != strings.HasPrefix(c.want, "!") {
					t.Errorf("the promise is %v", w.promise("e:1"))
				}
				if got := showOutcome(last.GetResult()); got != c.want || last.GetPromiseId() != "e:1" || !strings.HasSuffix(w.kinds("e"), "ExecutionAwaiting InvokeStarted InvokeCompleted ExecutionResumed") {
					t.Errorf("the caller got %s, must be %s: %s", got, c.want, w.kinds("e"))
				}
				w.commit(w.only("w1", "f"), "return x")
			})
		}
	}
}

// A spread child's messages may come late, again, and in another order than those of other channels:
// it is started once and ends once.
func TestSpreadDelivery(t *testing.T) {
	w := newWorld(t, 4)
	v := w.begin("e", "f")
	// Enough children that every partition has some; some land at home, by no message.
	const n = 30
	all := "all 0"
	for i := 1; i < n; i++ {
		all += fmt.Sprint(",", i)
	}
	w.commit(v, strings.Repeat("child g x spread; ", n)+all)
	home := int(w.at("e").cfg.Partition)
	var old []*commandv1.Command
	for dst := len(w.parts) - 1; dst >= 0; dst-- {
		if dst == home {
			continue
		}
		cmd := w.deliverCmd(home, dst, 100)
		if n := len(cmd.GetDeliver().Messages); n < 2 {
			t.Fatalf("only %d messages for partition %d: choose other ids", n, dst)
		}
		// First a part of it, then all of it twice.
		part := proto.Clone(cmd).(*commandv1.Command)
		part.GetDeliver().Messages = part.GetDeliver().Messages[:1]
		for _, c := range []*commandv1.Command{part, cmd, cmd, part} {
			w.apply(w.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{c}})
		}
		// A gap is refused, and so is an older epoch; nothing is lost by it.
		gap := proto.Clone(cmd).(*commandv1.Command)
		for _, m := range gap.GetDeliver().Messages {
			m.Seq += 50
		}
		before := content(w.parts[dst].state)
		for _, change := range []func(){func() {}, func() { gap.GetDeliver().Epoch = 0 }} {
			change()
			res := w.apply(w.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{gap}})
			if e := wire.ReplyError(res.Replies[0]); e == nil || e.Reason != perdurev1.Reason_REASON_RULE_BROKEN {
				t.Errorf("a gap is answered with %v", res.Replies[0])
			}
		}
		if after := content(w.parts[dst].state); after != before {
			t.Errorf("a refused delivery has changed the state:\n%s", difference(before, after))
		}
		old = append(old, cmd)
	}
	children := w.take("w2", 100, "g")
	if len(children) != n {
		t.Fatalf("%d children", len(children))
	}
	for _, child := range children {
		w.commit(child, "return r")
	}
	w.ship()
	// All of it once more, now that everything has ended and been trimmed.
	for _, cmd := range old {
		for dst, p := range w.parts {
			if dst == home {
				continue
			}
			if slices.ContainsFunc(cmd.GetDeliver().Messages, func(m *commandv1.Message) bool { return w.at(m.ToId) == p }) {
				before := content(p.state)
				w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
				if after := content(p.state); after != before {
					t.Errorf("a repeated delivery has changed the state:\n%s", difference(before, after))
				}
			}
		}
	}
	if got := w.take("w2", 100, "g"); len(got) != 0 {
		t.Errorf("%d children more", len(got))
	}
	w.commit(w.only("w1", "f"), "return x")
	if got := strings.Count(w.kinds("e"), "InvokeCompleted"); got != n {
		t.Errorf("%d results", got)
	}
	if dsts, err := query.Destinations(w.parts[home].state, 4); err != nil || len(dsts) != 0 {
		t.Errorf("messages for %v are left, %v", dsts, err)
	}
}

// A new epoch of a channel restarts its numbers; messages of the old epoch are refused from then on.
func TestChannelEpoch(t *testing.T) {
	w := newWorld(t, 2)
	target := "t"
	dst := w.at(target)
	src := 1 - dst.cfg.Partition
	w.do(startCmd(w.request(), target, "f", ""))
	deliver := func(epoch, seq uint64, name string) *api.Error {
		cmd := &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{Source: src, Epoch: epoch,
			Messages: []*commandv1.Message{{Seq: seq, Namespace: ns, ToId: target, Kind: &commandv1.Message_Signal{
				Signal: &perdurev1.SignalSend{Id: target, Name: name}}}}}}}
		return wire.ReplyError(w.apply(dst, &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0])
	}
	for _, step := range []struct {
		epoch, seq uint64
		ok         bool
		deliveries int
	}{{1, 1, true, 1}, {1, 2, true, 2}, {2, 2, false, 2}, {2, 1, true, 3}, {1, 3, false, 3}, {2, 1, true, 3}, {2, 2, true, 4}} {
		err := deliver(step.epoch, step.seq, "s")
		if (err == nil) != step.ok || strings.Count(w.kinds(target), "SignalDelivered") != step.deliveries {
			t.Errorf("message %d of epoch %d: %v, journal %s", step.seq, step.epoch, err, w.kinds(target))
		}
	}
}

// A shipper reads one epoch at a time, oldest first.
func TestOutgoingEpochs(t *testing.T) {
	st := state.NewMemReader()
	for _, k := range [][2]uint64{{2, 1}, {1, 8}, {1, 9}, {2, 2}} {
		b, err := proto.Marshal(&commandv1.Message{Seq: k[1]})
		if err != nil {
			t.Fatal(err)
		}
		st.Apply([]state.Write{{Key: keys.OutboxOf(3, k[0], k[1]), Value: b}})
	}
	for _, c := range []struct {
		limit int
		want  string
	}{{1, "[8]"}, {2, "[8 9]"}, {9, "[8 9]"}} {
		epoch, msgs, err := query.Outgoing(st, 3, state.Channel{}, c.limit, 1<<30)
		var seqs []uint64
		for _, m := range msgs {
			seqs = append(seqs, m.Seq)
		}
		if epoch != 1 || err != nil || fmt.Sprint(seqs) != c.want {
			t.Errorf("epoch %d, messages %v, %v", epoch, seqs, err)
		}
	}
	if epoch, msgs, err := query.Outgoing(st, 4, state.Channel{}, 9, 1<<30); epoch != 0 || len(msgs) != 0 || err != nil {
		t.Errorf("epoch %d, messages %v, %v", epoch, msgs, err)
	}
}

// readingState counts the bytes of the values that a scan hands out.
type readingState struct {
	state.Reader
	read int
}

func (r *readingState) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	return r.Reader.Scan(lower, upper, func(key, value []byte) bool {
		r.read += len(value)
		return fn(key, value)
	})
}

// A shipment of large messages is bounded by bytes, and no more than one message beyond it is read from the outbox.
func TestOutgoingBytes(t *testing.T) {
	const size = 1 << 20
	mem := state.NewMemReader()
	st := &readingState{Reader: mem}
	for seq := uint64(1); seq <= 10; seq++ {
		b, err := proto.Marshal(&commandv1.Message{Seq: seq, Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{Payload: make([]byte, size)}}})
		if err != nil {
			t.Fatal(err)
		}
		mem.Apply([]state.Write{{Key: keys.OutboxOf(3, 1, seq), Value: b}})
	}
	for _, c := range []struct{ limit, bytes, want int }{{100, 5 * size / 2, 2}, {100, size / 2, 1}, {100, 1, 1}, {3, 100 * size, 3}, {100, 100 * size, 10}} {
		st.read = 0
		_, msgs, err := query.Outgoing(st, 3, state.Channel{}, c.limit, c.bytes)
		if err != nil || len(msgs) != c.want {
			t.Errorf("within %d messages and %d bytes: %d, want %d, %v", c.limit, c.bytes, len(msgs), c.want, err)
		}
		if most := (c.want + 1) * (size + 100); st.read > most {
			t.Errorf("within %d messages and %d bytes: %d bytes were read for %d messages", c.limit, c.bytes, st.read, c.want)
		}
	}
}

// A new epoch may bring again what the old one has brought (after a restore): children are started once,
// and end once.
func TestRepeatedInNewEpoch(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("e", "f")
	w.commit(v, strings.Repeat("child g spread; ", 6)+"all 0,1,2,3,4,5")
	home := int(w.at("e").cfg.Partition)
	there := w.deliverCmd(home, 1-home, 100)
	w.ship()
	again := func(p *part, cmd *commandv1.Command, epoch uint64) {
		t.Helper()
		cmd = proto.Clone(cmd).(*commandv1.Command)
		cmd.GetDeliver().Epoch = epoch
		before := takeCensus(p.state)
		if e := wire.ReplyError(w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0]); e != nil {
			t.Fatal(e)
		}
		after := takeCensus(p.state)
		if len(before.headers) != len(after.headers) || fmt.Sprint(before.journals) != fmt.Sprint(after.journals) {
			t.Errorf("epoch %d has changed something", epoch)
		}
	}
	again(w.parts[1-home], there, 2)
	for _, child := range w.take("w2", 6, "g") {
		w.commit(child, "return r")
	}
	back := w.deliverCmd(1-home, home, 100)
	w.ship()
	again(w.parts[1-home], there, 3)
	again(w.parts[home], back, 2)
	w.commit(w.only("w1", "f"), "return x")
	again(w.parts[home], back, 3)
}

// A spread child whose id is taken by something else is a failure of the child, not of the channel.
func TestSpreadConflict(t *testing.T) {
	for _, other := range []string{"promise", "execution"} {
		w := newWorld(t, 2)
		v := w.begin("e", "f")
		w.commit(v, "child g spread; await 0")
		home := int(w.at("e").cfg.Partition)
		msg := w.deliverCmd(home, 1-home, 1).GetDeliver().Messages
		if len(msg) == 0 {
			t.Fatal("the child is at home: choose another id")
		}
		if other == "promise" {
			w.do(createPromiseCmd(msg[0].ToId, 100_000))
		} else {
			w.do(startCmd(w.request(), msg[0].ToId, "g", ""))
		}
		w.ship()
		entries := w.journal("e")
		if got := entries[len(entries)-2].Event.GetInvokeCompleted().GetResult().GetFailure().GetType(); got != state.FailureConflict {
			t.Errorf("%s: %s", other, w.kinds("e"))
		}
		w.commit(w.only("w1", "f"), "return x")
	}
}

// A proxy has its own deadline: when the message is late, the caller continues without it.
func TestSpreadTimesOut(t *testing.T) {
	w := newWorld(t, 3)
	v := w.begin("e", "f")
	w.commit(v, "child g spread timeout=2000; await 0")
	w.now += 2000
	w.tick()
	entries := w.journal("e")
	if got := showOutcome(entries[len(entries)-2].Event.GetInvokeCompleted().GetResult()); got != `!timeout "timed out"` {
		t.Errorf("%s: %s", got, w.kinds("e"))
	}
	// The child is born dead, and what it tells comes too late to matter.
	w.ship()
	if got := w.take("w2", 10, "g"); len(got) != 0 {
		t.Errorf("given out: %v", got)
	}
	w.commit(w.only("w1", "f"), "return x")
}

// The end of a child that comes when its proxy's deadline has come, but no tick yet, finds it timed out.
func TestSpreadEndsPastDeadline(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("e", "f")
	w.commit(v, "child g spread timeout=2000; await 0")
	home := int(w.at("e").cfg.Partition)
	w.ship()
	child := w.only("w2", "g")
	w.ship()
	w.commit(child, "return r")
	cmd := w.deliverCmd(1-home, home, 1)
	if len(cmd.GetDeliver().Messages) == 0 {
		t.Fatal("the child is at home: choose another id")
	}
	// For another incarnation of the caller: nothing happens.
	other := proto.Clone(cmd).(*commandv1.Command)
	other.GetDeliver().Source, other.GetDeliver().Messages[0].ToIncarnation = 7, 99
	w.apply(w.parts[home], &commandv1.Entry{Commands: []*commandv1.Command{other}})
	if got := w.kinds("e"); strings.Contains(got, "InvokeCompleted") {
		t.Errorf("the journal is %s", got)
	}
	w.now += 2000
	w.apply(w.parts[home], &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
	entries := w.journal("e")
	if got := showOutcome(entries[len(entries)-2].Event.GetInvokeCompleted().GetResult()); got != `!timeout "timed out"` {
		t.Errorf("%s: %s", got, w.kinds("e"))
	}
	w.commit(w.only("w1", "f"), "return x")
}

// Messages to an execution whose deadline has come find it over.
func TestMessagePastDeadline(t *testing.T) {
	w := newWorld(t, 2)
	start := startCmd(w.request(), "e", "f", "")
	start.GetStart().TimeoutMs = 1000
	w.do(start)
	other := w.begin(apart(w, "e"), "g")
	w.commit(other, "signal e s x")
	w.now += 1000
	w.ship()
	if got := w.kinds("e"); got != "ExecutionStarted CancelRequested ExecutionCancelled" {
		t.Errorf("the journal is %s", got)
	}
}

// Grandchildren, mixed near and far, at depth.
func TestDeepCalls(t *testing.T) {
	w := newWorld(t, 3)
	v := w.begin("e", "f")
	views := []*view{v}
	for depth := range 12 {
		op := "step s; child f; await 1"
		if depth%3 == 2 {
			op = "step s; child f spread; await 1"
		}
		w.commit(views[depth], op)
		w.ship()
		views = append(views, w.only("w1", "f"))
	}
	if id := views[2].token.Id; id != "e:1.1" {
		t.Errorf("the grandchild is %s", id)
	}
	w.commit(views[12], "return bottom")
	for depth := 11; depth >= 0; depth-- {
		w.ship()
		next := w.only("w2", "f")
		if next.token.Id != views[depth].token.Id {
			t.Fatalf("woken: %s, must be %s", next.token.Id, views[depth].token.Id)
		}
		w.commit(next, "return up")
	}
}

// When all deadlines of a tree expire at once, every level ends by its own deadline, in one go.
func TestDeepDeadlines(t *testing.T) {
	for _, limit := range []uint32{0, 1} {
		w := newWorld(t, 1)
		start := startCmd(w.request(), "e", "f", "")
		start.GetStart().TimeoutMs = 1000
		w.do(start)
		v := w.only("w1", "f")
		for depth := range 6 {
			op := "child f timeout=1000; await 0"
			if depth%2 == 1 {
				op = "child f timeout=990; wait s timeout=500"
			}
			w.commit(v, op)
			v = w.only("w1", "f")
		}
		w.now += 5000
		for range 50 {
			w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(limit)}})
		}
		for p := "e"; ; p += ".0" {
			if p == "e.0" {
				p = "e:0"
			}
			if got := w.describe(p); got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
				t.Errorf("%v", got)
			}
			if p == v.token.Id {
				break
			}
		}
	}
}

// Nothing made from outside can stand where an execution's operation belongs; if something does stand
// there, the commit is refused and nothing is broken.
func TestTakenChildID(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	// As an earlier version might have left it.
	p := w.parts[0]
	w.do(createPromiseCmd("x", 100_000))
	squat := takeCensus(p.state).promises["x"]
	p.m.txn.begin(p.m.applied)
	for _, child := range []string{"e:0", "e:1"} {
		squat.ID = child
		p.m.txn.store(ns).PutPromise(squat)
	}
	p.m.txn.commit(&Effects{})
	p.state.Apply(p.m.Writes())
	p.m.Committed()
	for _, op := range []string{"child g", "child g spread", "sleep 5", "wait s", "step a; sleep 5", "step a; child g", "step a; wait s"} {
		w.commitRefused(v, op, perdurev1.Reason_REASON_ID_CONFLICT, "")
	}
	w.commit(v, "step a; step b; sleep 5; child g; wait s")
}
