package machine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
)

// fill delivers signals of another partition's function to an entity, and returns what the answer says of
// full backlogs.
func (w *world) fill(entityID string, from, to uint64, asked ...string) []string {
	w.t.Helper()
	p := w.at(entityID)
	source := (p.cfg.Partition + 1) % p.cfg.Partitions
	d := &commandv1.Deliver{Source: source, Epoch: 1}
	for _, one := range asked {
		d.Asked = append(d.Asked, &commandv1.EntityRef{Namespace: ns, Id: one})
	}
	origin := entity.Party{Kind: entity.PartyExecution, ID: "far", Incarnation: 1}
	for seq := from; seq < to; seq++ {
		m := entity.Signal{Origin: origin, Entity: entity.ID(entityID), Request: "far:" + strconv.FormatUint(seq, 10), Operation: "add", Input: []byte("1")}
		d.Messages = append(d.Messages, &commandv1.Message{Namespace: ns, Seq: seq, FromId: origin.ID, FromIncarnation: 1, ToId: entityID,
			Kind: &commandv1.Message_Entity{Entity: &commandv1.EntityMessage{Message: entity.AppendMessage(nil, m)}}})
	}
	reply := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_Deliver{Deliver: d}}}}).Replies[0]
	var full []string
	for _, e := range reply.GetDeliver().GetFull() {
		full = append(full, e.Id)
	}
	return full
}

// A full backlog refuses clients and the functions of its partition, tells other partitions, and takes what was sent. A
// critical section's signals pass. With the backlog gone all are admitted.
func TestFullBacklog(t *testing.T) {
	w := bank(t, 2)
	w.unaudited, w.effectsUnchecked = true, true
	const full, other = "acc@full", "acc@other"
	p := w.at(full)
	local := "local"
	for i := 0; w.at(local) != p; i++ {
		local = fmt.Sprint("local-", i)
	}
	say := func(what string, got []string, want string) {
		t.Helper()
		if fmt.Sprint(got) != want {
			t.Fatalf("%s: full are %v, must be %s", what, got, want)
		}
	}
	v := w.begin(local, "f")
	w.do(signalEntityCmd(w.request(), other, "add", "1", 0))
	say("one below the bound", w.fill(full, 1, maxEntityQueue), "[]")
	w.commit(v, "etell "+full+" add 1")
	say("asked at the bound", w.fill(full, maxEntityQueue, maxEntityQueue, full, other), "["+full+"]")
	say("beyond the bound", w.fill(full, maxEntityQueue, maxEntityQueue+1), "["+full+"]")
	if e := w.refused(signalEntityCmd(w.request(), full, "add", "1", 0), perdurev1.Reason_REASON_OVERLOADED); e.RetryAfterMS() == 0 {
		t.Errorf("the refusal says not when to come again: %v", e)
	}
	w.refused(callEntityCmd(w.request(), full, "add", "1"), perdurev1.Reason_REASON_OVERLOADED)
	w.refused(w.commitCmd(v, "etell "+other+" add 1; etell "+full+" add 1"), perdurev1.Reason_REASON_OVERLOADED)
	w.commit(v, "lock acc@mine; await 1")
	w.ship()
	v = w.resumed(v)
	w.commit(v, "etell "+full+" add 1; unlock")
	w.ship()
	w.refused(w.commitCmd(v, "etell "+full+" add 1"), perdurev1.Reason_REASON_OVERLOADED)
	w.runEntities()
	say("asked when all have run", w.fill(full, maxEntityQueue+1, maxEntityQueue+1, full), "[]")
	w.commit(v, "etell "+full+" add 1; return ok")
	w.do(signalEntityCmd(w.request(), full, "add", "1", 0))
	w.runEntities()
	if e := w.entity(full); string(e.Value) != strconv.Itoa(maxEntityQueue+4) {
		t.Fatalf("%v: %d signals were taken", e, maxEntityQueue+4)
	}
}

// A full backlog refuses the commits of its partition's entities that signal it, and changes nothing: with the backlog
// gone the same commit applies. The full entity itself may send itself as much as it takes away.
func TestFullBacklogRefusesEntities(t *testing.T) {
	w := bank(t, 2)
	w.unaudited, w.effectsUnchecked = true, true
	const full = "acc@full"
	p, sender := w.at(full), "acc@s"
	for i := 0; w.at(sender) != p; i++ {
		sender = fmt.Sprint("acc@s-", i)
	}
	w.do(signalEntityCmd(w.request(), sender, "tell", full, 0))
	h := w.takeEntity(p, "e1", 10_000)
	w.fill(full, 1, maxEntityQueue+1)
	held := w.commitEntityCmd(h, 1)
	before := content(p.state)
	if e := w.refused(held, perdurev1.Reason_REASON_OVERLOADED); e.Meta["rule"] != state.RuleEntityBacklog || e.Meta["id"] != full || e.RetryAfterMS() == 0 {
		t.Errorf("the refusal does not say which entity is full, by which rule, and when to come again: %v %v", e, e.Meta)
	}
	if e := w.entity(sender); e.Queued != 1 || e.Version != 0 || e.Scheduled != 0 || len(content(p.state)) != len(before) {
		t.Errorf("a refused commit has changed its entity: %v", e)
	}

	own := w.takeEntity(p, "e2", 10_000)
	toItself := func(leave, send int, input string) *commandv1.Command {
		cmd := w.commitEntityCmd(own, leave)
		for range send {
			cmd.GetCommitEntity().Signals = append(cmd.GetCommitEntity().Signals, &perdurev1.EntitySignal{Id: full, Operation: "add", Input: []byte(input)})
		}
		return cmd
	}
	w.refused(toItself(2, 3, "1"), perdurev1.Reason_REASON_OVERLOADED)
	w.refused(toItself(2, 1, strings.Repeat("1", maxEntityBytes)), perdurev1.Reason_REASON_OVERLOADED)
	own.batch = w.do(toItself(2, 2, "1")).GetCommitEntity().Next
	if e := w.entity(full); e.Queued != maxEntityQueue {
		t.Fatalf("%d operations wait, %d must", e.Queued, maxEntityQueue)
	}
	for own.batch != nil {
		own.batch = w.do(w.commitEntityCmd(own, 64)).GetCommitEntity().Next
	}
	w.do(held)
	w.runEntities()
	if e := w.entity(full); string(e.Value) != strconv.Itoa(maxEntityQueue+2) {
		t.Errorf("%v", e)
	}
}

// A backlog is full of bytes, too, also for a machine that has just opened the state. A signal that came by message counts.
func TestFullBacklogOfBytes(t *testing.T) {
	w := bank(t, 2)
	w.unaudited, w.effectsUnchecked = true, true
	const full = "acc@full"
	large := strings.Repeat("0", maxEntityBytes/4)
	for range 3 {
		w.do(signalEntityCmd(w.request(), full, "add", large, 0))
	}
	if got := w.fill(full, 1, 2); len(got) != 0 {
		t.Fatalf("full with three quarters of the bound: %v", got)
	}
	w.do(callEntityCmd(w.request(), full, "add", large))
	p := w.at(full)
	check := func() {
		t.Helper()
		if e := w.refused(signalEntityCmd(w.request(), full, "add", "1", 0), perdurev1.Reason_REASON_OVERLOADED); e.Meta["rule"] != state.RuleEntityBacklog {
			t.Errorf("%v", e)
		}
		if got := w.fill(full, 2, 2, full); fmt.Sprint(got) != "["+full+"]" {
			t.Errorf("asked, %v are full", got)
		}
	}
	check()
	w.open(p)
	check()
	w.runEntities()
	w.do(signalEntityCmd(w.request(), full, "add", "1", 0))
	w.runEntities()
	if got := w.fill(full, 2, 2, full); len(got) != 0 {
		t.Errorf("an empty backlog is full: %v", got)
	}
}
