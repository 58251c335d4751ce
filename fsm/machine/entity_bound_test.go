package machine

import (
	"fmt"
	"strconv"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
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
