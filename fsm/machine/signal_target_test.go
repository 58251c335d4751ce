package machine

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// sendResult is what a journal says of its n-th operation, a send: "" while it has no result.
func (w *world) sendResult(objectID string, n uint32) string {
	w.t.Helper()
	for _, e := range w.journal(objectID) {
		if done := e.Event.GetInvokeCompleted(); done.GetPromiseId() == fmt.Sprintf("%s:%d", objectID, n) {
			return showOutcome(done.Result)
		}
	}
	return ""
}

func noExecution(objectID string) string {
	return fmt.Sprintf("!target_not_found %q", fmt.Sprintf("no execution %q in namespace %q", objectID, ns))
}

// pipe is a world of two partitions with a sender that runs in one of them, and ids of the other one.
type pipe struct {
	*world
	sender   *view
	src, dst int
}

func newPipe(t *testing.T) *pipe {
	w := newWorld(t, 2)
	p := &pipe{world: w, sender: w.begin("e", "f"), src: int(w.at("e").cfg.Partition)}
	p.dst = 1 - p.src
	return p
}

// far is an id that begins so and lives in the other partition.
func (p *pipe) far(prefix string) string { return near(p.world, p.parts[p.dst], prefix) }

// apply1 applies one command to a partition.
func (p *pipe) apply1(partition int, cmd *commandv1.Command) *commandv1.Reply {
	p.t.Helper()
	reply := p.apply(p.parts[partition], &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0]
	if e := wire.ReplyError(reply); e != nil {
		p.t.Fatalf("%v: %v", cmd, e)
	}
	return reply
}

// A signal is recorded as delivered only if its target got it, wherever that is.
func TestSignalToNobody(t *testing.T) {
	for _, far := range []bool{false, true} {
		p := newPipe(t)
		place := p.far
		if !far {
			place = func(prefix string) string { return near(p.world, p.parts[p.src], prefix) }
		}
		nobody, over, bare, open := place("nobody"), place("over"), place("bare"), place("open")
		p.commit(p.begin(over, "g"), "return x")
		p.do(createPromiseCmd(bare, 5000))
		p.do(startCmd(p.request(), open, "g", ""))
		p.commit(p.sender, fmt.Sprintf("signal %s s x; signal %s s x; signal %s s x; signal %s s x", nobody, over, bare, open))
		p.ship()
		for n, want := range []string{
			noExecution(nobody),
			fmt.Sprintf("!target_finished %q", fmt.Sprintf("execution %q has ended: Completed", over)),
			noExecution(bare),
			`""`,
		} {
			if got := p.sendResult("e", uint32(n)); got != want {
				t.Errorf("far %v: signal %d: the journal says %s, must be %s", far, n, got, want)
			}
		}
		if got := p.kinds(open); got != "ExecutionStarted SignalDelivered" {
			t.Errorf("far %v: the target's journal is %s", far, got)
		}
	}
}

// An execution that waits for the delivery is resumed by the answer, and names what it waits for.
func TestSignalAwaited(t *testing.T) {
	p := newPipe(t)
	nobody, open := p.far("nobody"), p.far("open")
	p.do(startCmd(p.request(), open, "g", ""))
	if got := p.commit(p.sender, "signal "+nobody+" s x; signal "+open+" s x; all 0,1"); got.State != suspended {
		t.Fatalf("answered %v", got)
	}
	if got := p.describe("e").WakeSource; got != "delivery to "+nobody {
		t.Errorf("it waits for %q", got)
	}
	p.ship()
	want := "ExecutionStarted InvokeScheduled InvokeStarted InvokeScheduled InvokeStarted ExecutionAwaiting InvokeCompleted InvokeCompleted ExecutionResumed"
	if got := p.kinds("e"); got != want {
		t.Errorf("the journal is %s", got)
	}
	p.commit(p.only("w1", "f"), "return x")
	// Within the partition nothing is left to wait for.
	v := p.begin(near(p.world, p.parts[p.src], "k"), "f")
	if got := p.commit(v, "signal "+near(p.world, p.parts[p.src], "nobody")+" s x; await 0"); got.State != acquired {
		t.Errorf("answered %v", got)
	}
}

// The answer to a signal is given once, by what the target was when the signal came: a shipment that comes again, after
// the target was started, is not answered again; an answer that comes again, or late, changes nothing.
func TestSignalAnsweredOnce(t *testing.T) {
	p := newPipe(t)
	target := p.far("later")
	p.commit(p.sender, "signal "+target+" s x; step y")
	first := p.deliverCmd(p.src, p.dst, 100)
	p.apply1(p.dst, first)
	if got := p.sendResult("e", 0); got != "" {
		t.Errorf("the journal says %s before the answer is there", got)
	}
	p.do(startCmd(p.request(), target, "g", ""))
	before := content(p.parts[p.dst].state)
	p.apply1(p.dst, first) // the acknowledgement was lost
	if after := content(p.parts[p.dst].state); after != before {
		t.Errorf("a repeated signal has changed the state:\n%s", difference(before, after))
	}
	answer := p.deliverCmd(p.dst, p.src, 100)
	if n := len(answer.GetDeliver().Messages); n != 1 {
		t.Fatalf("%d answers", n)
	}
	// An answer for an earlier incarnation of the sender is not for this one.
	former := proto.CloneOf(answer)
	former.GetDeliver().Source, former.GetDeliver().Epoch = uint32(p.dst), 0
	former.GetDeliver().Messages[0].ToIncarnation--
	p.apply1(p.src, former)
	if got := p.sendResult("e", 0); got != "" {
		t.Errorf("an answer for an earlier incarnation is recorded: %s", got)
	}
	// Trim and answer may come in either order: the source's leader may know of the delivery or not.
	p.apply1(p.src, answer)
	before = content(p.parts[p.src].state)
	p.apply1(p.src, answer)
	if after := content(p.parts[p.src].state); after != before {
		t.Errorf("a repeated answer has changed the state:\n%s", difference(before, after))
	}
	p.ship()
	if got := p.sendResult("e", 0); got != noExecution(target) {
		t.Errorf("the journal says %s", got)
	}
	if got := p.kinds(target); got != "ExecutionStarted" {
		t.Errorf("the target's journal is %s", got)
	}
	// The next signal finds it.
	p.commit(p.sender, "signal "+target+" s x")
	p.ship()
	if got := p.sendResult("e", 2); got != `""` {
		t.Errorf("the journal says %s", got)
	}
	// The same answer with the next number, as a channel of a new epoch would carry it, and one that says otherwise.
	before = content(p.parts[p.src].state)
	again := &commandv1.Message{Seq: 3, Namespace: ns, FromId: target, ToId: "e:0", ToIncarnation: p.sender.token.Incarnation,
		Kind: &commandv1.Message_SignalDone{SignalDone: &commandv1.SignalDone{Outcome: value("")}}}
	p.apply1(p.src, &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{
		Source: uint32(p.dst), Epoch: 1, Messages: []*commandv1.Message{again}}}})
	if diff := difference(before, content(p.parts[p.src].state)); strings.Count(diff, "\n") != 1 { // the inbox's number
		t.Errorf("a repeated answer has changed the state:\n%s", diff)
	}
}

// A sender whose end comes before the answer: the answer settles the promise, and the journal stays closed.
func TestSignalAnsweredAfterTheEnd(t *testing.T) {
	for _, end := range []string{"return", "terminate", "deadline", "cancel", "cancelling"} {
		p := newPipe(t)
		start := startCmd(p.request(), near(p.world, p.parts[p.src], "s"), "f", "")
		start.GetStart().TimeoutMs = 5000
		p.do(start)
		v := p.only("w1", "f")
		sender, target := v.token.Id, p.far("nobody")
		p.commit(v, "signal "+target+" s x")
		switch end {
		case "return":
			p.commit(v, "return x")
		case "terminate":
			p.do(terminateCmd(sender, ""))
		case "deadline":
			p.now += 6000
			p.tick()
		case "cancel":
			p.do(cancelCmd(sender, "", 10))
			p.commit(v, "cancelled x")
		case "cancelling":
			p.do(cancelCmd(sender, "", 100))
		}
		before := p.kinds(sender)
		p.ship()
		want := ""
		if end == "cancelling" { // a fact is recorded until the end (K8)
			want = noExecution(target)
			before += " InvokeCompleted"
		}
		if got := p.sendResult(sender, 0); got != want || p.kinds(sender) != before {
			t.Errorf("%s: the journal says %s: %s", end, got, p.kinds(sender))
		}
		if got := p.promise(sender + ":0"); got.State != perdurev1.PromiseState_PROMISE_STATE_REJECTED {
			t.Errorf("%s: the promise is %v", end, got)
		}
	}
}

// Only the target's partition reports the result of a signal.
func TestSignalNotSettleable(t *testing.T) {
	p := newPipe(t)
	p.commit(p.sender, "signal "+p.far("nobody")+" s x; signal e s x")
	for _, promise := range []string{"e:0", "e:1"} {
		p.refused(settlePromiseCmd(promise, resolve, "mine"), perdurev1.Reason_REASON_NOT_SETTLEABLE)
	}
	cmd := p.commitCmd(p.sender, `done 0#1 -> ""`)
	p.refused(cmd, perdurev1.Reason_REASON_RULE_BROKEN)
}

// A state below the level does what the programs do that do not know it, until its level is raised.
func TestSignalBelowLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelLeases, 2)
	v := w.begin("e", "f")
	w.commit(v, "signal "+apart(w, "e")+" s x; signal nobody s x; step a")
	want := "ExecutionStarted" + strings.Repeat(" InvokeScheduled InvokeStarted InvokeCompleted", 3)
	if got := w.kinds("e"); got != want {
		t.Errorf("the journal is %s", got)
	}
	dst := 1 - int(w.at("e").cfg.Partition)
	for _, m := range w.deliverCmd(1-dst, dst, 10).GetDeliver().Messages {
		if m.GetSignal() == nil {
			t.Errorf("it sends %v", m)
		}
	}
	w.ship()
	if got := w.parts[dst].m.feature; got > state.LevelLeases {
		t.Errorf("the level of the target's partition is %d", got)
	}
	w.raise(w.at("e"), state.LevelAnswers)
	w.commit(v, "signal "+apart(w, "e")+" s x")
	w.ship()
	if got := w.sendResult("e", 3); got != noExecution(apart(w, "e")) {
		t.Errorf("the journal says %s", got)
	}
	// The target's partition has answered: its state holds what only newer programs know.
	if got := w.parts[dst].m.feature; got != state.LevelAnswers {
		t.Errorf("the level of the target's partition is %d", got)
	}
}

func TestRaiseLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFirst, 1)
	p := w.parts[0]
	for _, step := range []struct{ to, want uint64 }{{0, state.LevelFirst}, {state.LevelGraphs, state.LevelGraphs}, {state.LevelGraphs, state.LevelGraphs}, {state.FeatureLevel, state.FeatureLevel}, {1, state.FeatureLevel}} {
		reply := w.do(raiseLevelCmd(step.to)).GetRaiseLevel()
		w.open(p)
		if reply.Level != step.want || p.m.feature != step.want {
			t.Errorf("raised to %d: answered %v, the state is at %d", step.to, reply, p.m.feature)
		}
	}
	if _, err := p.m.Apply(p.index+1, &commandv1.Entry{Commands: []*commandv1.Command{raiseLevelCmd(state.FeatureLevel + 1)}}); err == nil ||
		!strings.Contains(err.Error(), "newer version") {
		t.Errorf("a level that it does not know: %v", err)
	}
}

// The audit finds a send whose promise, journal entry and outbox messages do not agree.
func TestAuditSends(t *testing.T) {
	p := newPipe(t)
	nobody, open := p.far("nobody"), p.far("open")
	p.do(startCmd(p.request(), open, "g", ""))
	p.commit(p.sender, "signal "+nobody+" s x; signal e t x")
	p.ship()
	p.commit(p.sender, "signal "+open+" s x; signal "+nobody+" s x")
	back := p.begin(p.far("back"), "f") // its answers stay in the outbox
	p.commit(back, "signal e s x; signal "+near(p.world, p.parts[p.src], "nobody")+" s x")
	p.apply1(p.src, p.deliverCmd(p.dst, p.src, 100))
	src := p.parts[p.src]
	answer := func(s *plot, seq uint64) (*commandv1.Message, func()) {
		key := keys.OutboxOf(uint32(p.dst), 1, seq)
		msg := &commandv1.Message{}
		if err := proto.Unmarshal(s.get(key), msg); err != nil {
			t.Fatal(err)
		}
		return msg, func() {
			b, err := state.Deterministic.Marshal(msg)
			if err != nil {
				t.Fatal(err)
			}
			s.put(key, b)
		}
	}
	var done, failed journal.Event
	var doneSeq, failedSeq uint64
	for _, e := range p.journal("e") {
		if c := e.Event.GetInvokeCompleted(); c != nil {
			ev, err := wire.DecodeEvent(e.Event)
			if err != nil {
				t.Fatal(err)
			}
			if c.Result.GetFailure() != nil {
				failed, failedSeq = ev, e.Seq
			} else {
				done, doneSeq = ev, e.Seq
			}
		}
	}
	with := func(ev journal.Event, result []byte) journal.Event {
		c := ev.(journal.InvokeCompleted)
		c.Result = result
		return c
	}
	for _, c := range []struct {
		what, rule, id string
		plant          func(s *plot)
	}{
		{"nothing", "", "", func(*plot) {}},
		{"a failed delivery recorded as done", audit.RuleResult, "e", func(s *plot) {
			s.event("e", failedSeq, with(failed, recovery.AppendOutcome(nil, recovery.Outcome{})))
		}},
		{"a result that no send has", audit.RuleResult, "e", func(s *plot) {
			s.event("e", doneSeq, with(done, recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("x")})))
		}},
		{"a failure that no send has", audit.RuleResult, "e", func(s *plot) {
			s.event("e", doneSeq, with(done, state.EncodeFailure("other", "")))
		}},
		{"an open send without a promise", audit.RuleOperation, "e", func(s *plot) { s.drop(keys.Of(keys.Promise, ns, "e:2")) }},
		{"an answer that its journal did not get", audit.RuleOperation, "e", func(s *plot) {
			s.promise("e:2", func(p *recovery.Promise) {
				p.State, p.SettledAt, p.Value = recovery.PromiseResolved, 1000, recovery.AppendOutcome(nil, recovery.Outcome{})
			})
		}},
		{"a recorded answer whose promise waits", audit.RuleResult, "e", func(s *plot) {
			s.promise("e:0", func(p *recovery.Promise) { p.State, p.SettledAt, p.Value = recovery.PromisePending, 0, nil })
		}},
		{"a signal that goes elsewhere", audit.RuleMessage, "e", func(s *plot) {
			s.promise("e:2", func(p *recovery.Promise) { p.Param = []byte("else") })
		}},
		{"a signal without a sender", audit.RuleMessage, "e", func(s *plot) {
			msg, put := answer(s, 2)
			msg.GetSignalCall().PromiseId = "e:1"
			put()
		}},
		{"an answer that says delivered, of no execution", audit.RuleMessage, near(p.world, src, "nobody"), func(s *plot) {
			msg, put := answer(s, 5)
			msg.GetSignalDone().Outcome = value("")
			put()
		}},
		{"an answer that no send has", audit.RuleMessage, "e", func(s *plot) {
			msg, put := answer(s, 4)
			msg.GetSignalDone().Outcome = failure("timeout:x")
			put()
		}},
	} {
		s := &plot{t: t, state: src.state.Clone(), cfg: src.cfg}
		c.plant(s)
		if found := audited(t, s.state, s.cfg); c.rule == "" && len(found) > 0 || c.rule != "" && !breaks(found, c.rule, c.id) {
			t.Errorf("%s: %q of %q is not among what was found:\n%s", c.what, c.rule, c.id, lines(found))
		}
	}
}
