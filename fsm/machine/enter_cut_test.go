package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/cut"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

func enterCmd(n uint64) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_EnterCut{EnterCut: &commandv1.EnterCut{Cut: n}}}
}

// trimCmd removes what a reply to a delivery acknowledges.
func trimCmd(dst uint32, sent *commandv1.Deliver, ack *commandv1.DeliverReply) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Trim{Trim: &commandv1.Trim{
		Destination: dst, Epoch: sent.Epoch, Through: ack.Through, Cut: ack.Cut}}}
}

// required is the cut that a partition must be in before it applies a delivery or a trim.
func required(p *part, cmd *commandv1.Command) uint64 {
	need := cut.Required(p.m.cut, cut.Number(cmd.GetTrim().GetCut()))
	for _, msg := range cmd.GetDeliver().GetMessages() {
		need = cut.Required(need, cut.Number(msg.Cut))
	}
	return uint64(need)
}

// enterRequired has a partition enter the cut that a command requires, as its leader does.
func (w *world) enterRequired(p *part, cmd *commandv1.Command) {
	w.t.Helper()
	if need := required(p, cmd); need > uint64(p.m.cut) {
		w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{enterCmd(need)}})
	}
}

// checkCut keeps the state behind an entry that enters a cut as the partition's checkpoint.
func (w *world) checkCut(before *state.MemReader, p *part, res *Result) {
	w.t.Helper()
	was, err := state.MetaNumber(before, state.MetaCut)
	now, err2 := state.MetaNumber(p.state, state.MetaCut)
	if err != nil || err2 != nil {
		w.t.Fatalf("the cut: %v, %v", err, err2)
	}
	switch {
	case res.Cut == 0 && now != was, res.Cut != 0 && (now != res.Cut || now <= was):
		w.t.Fatalf("partition %d was in cut %d, is in cut %d, and the entry says that it entered cut %d", p.cfg.Partition, was, now, res.Cut)
	case res.Cut == 0:
		return
	}
	if w.cuts == nil {
		w.cuts = map[uint64]map[uint32]*state.MemReader{}
	}
	if w.cuts[now] == nil {
		w.cuts[now] = map[uint32]*state.MemReader{}
	}
	w.cuts[now][p.cfg.Partition] = p.state.Clone()
}

// channelBetween is one channel as two states have it.
func (w *world) channelBetween(src, dst *state.MemReader, from, to uint32) cut.Channel {
	w.t.Helper()
	sent, err := query.Sent(src, to)
	epoch, through, err2 := query.Delivered(dst, from)
	_, msgs, err3 := query.Outgoing(src, to, state.Channel{}, 1, 1<<20)
	if err != nil || err2 != nil || err3 != nil {
		w.t.Fatalf("channel from %d to %d: %v, %v, %v", from, to, err, err2, err3)
	}
	c := cut.Channel{Sent: cut.End{Epoch: sent.Epoch, Last: sent.Last}, Received: cut.End{Epoch: epoch, Last: through}, First: cut.End{Epoch: sent.Epoch, Last: sent.Last + 1}}
	if len(msgs) > 0 {
		c.First.Last = msgs[0].Seq
	}
	return c
}

// checkCuts checks every cut that all partitions have entered, and returns how many those are.
func (w *world) checkCuts() (whole int) {
	w.t.Helper()
	for n, states := range w.cuts {
		if len(states) < len(w.parts) {
			continue
		}
		whole++
		for from, src := range states {
			for to, dst := range states {
				if from == to {
					continue
				}
				if err := w.channelBetween(src, dst, from, to).Check(); err != nil {
					w.t.Fatalf("cut %d, from partition %d to %d: %v", n, from, to, err)
				}
			}
		}
	}
	return whole
}

// actCut lets a partition enter a cut now and then, perhaps the one that a command requires, or a new one.
func (s *simulation) actCut(p int, cmd *commandv1.Command) {
	if s.draw(12) == 0 {
		newest := uint64(0)
		for _, o := range s.parts {
			newest = max(newest, uint64(o.m.cut))
		}
		s.send(s.draw(len(s.parts)), enterCmd(newest+1), nil)
	}
	if need := required(s.parts[p], cmd); need > uint64(s.parts[p].m.cut) && s.draw(4) > 0 {
		s.send(p, enterCmd(need), nil)
		if s.draw(2) == 0 {
			s.flush(p, 100, false) // else the command may come in the same entry
		}
	}
}

// cutAnswer is an answer to EnterCut.
func cutAnswer(r *commandv1.Reply) string {
	return fmt.Sprint(r.GetEnterCut().GetCut(), r.GetEnterCut().GetEntered())
}

// A cut is entered once, never goes back, and outlives the machine.
func TestCutIsEnteredOnce(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	p := w.parts[0]
	for _, c := range []struct {
		asked  uint64
		answer string
		cut    uint64
	}{{0, "0 false", 0}, {2, "2 true", 2}, {2, "2 false", 0}, {1, "2 false", 0}, {0, "2 false", 0}, {3, "3 true", 3}, {7, "7 true", 7}} {
		res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{enterCmd(c.asked)}})
		if got := cutAnswer(res.Replies[0]); got != c.answer || res.Cut != c.cut {
			t.Errorf("cut %d was asked for: %s, the entry enters %d; want %s, %d", c.asked, got, res.Cut, c.answer, c.cut)
		}
		if res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}}); res.Cut != 0 {
			t.Errorf("a tick enters cut %d", res.Cut)
		}
		w.open(p)
	}
	res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{enterCmd(8), enterCmd(9), enterCmd(8)}})
	if got := fmt.Sprint(cutAnswer(res.Replies[0]), cutAnswer(res.Replies[1]), cutAnswer(res.Replies[2])); got != "8 true8 false8 false" || res.Cut != 8 {
		t.Errorf("two in one entry: %s, the entry enters %d", got, res.Cut)
	}
	if level, err := state.Level(p.state); err != nil || level != state.LevelFunctions {
		t.Errorf("the state is at level %d, %v", level, err)
	}
}

// An entry that enters a cut sends its messages in the former cut, in any order of its commands: the checkpoint has them.
func TestCutIsEnteredBehindTheEntry(t *testing.T) {
	p := newPipe(t)
	cuts := func() (got []uint64) {
		for _, msg := range p.deliverCmd(p.src, p.dst, 100).GetDeliver().Messages {
			got = append(got, msg.Cut)
		}
		return got
	}
	send := func() *commandv1.Command {
		return p.commitCmd(p.sender, fmt.Sprintf("signal %s go v", p.far("t")))
	}
	first := send()
	res := p.apply(p.parts[p.src], &commandv1.Entry{Commands: []*commandv1.Command{enterCmd(1), first, tickCmd(0)}})
	if e := wire.ReplyError(res.Replies[1]); e != nil || res.Cut != 1 {
		t.Fatalf("the commit: %v; the entry enters cut %d", e, res.Cut)
	}
	if got := fmt.Sprint(cuts()); got != "[0]" {
		t.Errorf("an entry that enters cut 1 sends messages of cuts %s", got)
	}
	p.learn(p.sender, first.GetCommit(), res.Replies[1].GetCommit())
	p.apply1(p.src, send())
	if got := fmt.Sprint(cuts()); got != "[0 1]" {
		t.Errorf("the outbox has messages of cuts %s, want 0 and 1", got)
	}
}

// A message of a later cut, and those after it, are not applied before the receiver has entered that cut: not in the
// entry that enters it, either.
func TestMessageOfALaterCutWaits(t *testing.T) {
	p := newPipe(t)
	p.commit(p.sender, fmt.Sprintf("signal %s go v", p.far("t")))
	p.apply1(p.src, enterCmd(1))
	p.commit(p.sender, fmt.Sprintf("signal %s go v; signal %s go v", p.far("t"), p.far("t")))
	cmd := p.deliverCmd(p.src, p.dst, 100)
	if got := p.apply1(p.dst, cmd).GetDeliver(); got.Through != 1 || got.Cut != 0 {
		t.Fatalf("in cut 0: %v, want message 1 applied", got)
	}
	res := p.apply(p.parts[p.dst], &commandv1.Entry{Commands: []*commandv1.Command{enterCmd(1), cmd}})
	if got := res.Replies[1].GetDeliver(); got.GetThrough() != 1 || got.GetCut() != 0 {
		t.Fatalf("in the entry that enters cut 1: %v, want message 1 applied", got)
	}
	if got := p.apply1(p.dst, cmd).GetDeliver(); got.Through != 3 || got.Cut != 1 {
		t.Fatalf("in cut 1: %v, want all messages applied", got)
	}
}

// An acknowledgement of a later cut removes nothing from the outbox before the sender has entered that cut.
func TestAcknowledgementOfALaterCutWaits(t *testing.T) {
	p := newPipe(t)
	p.commit(p.sender, fmt.Sprintf("signal %s go v", p.far("t")))
	p.apply1(p.dst, enterCmd(1))
	cmd := p.deliverCmd(p.src, p.dst, 100)
	ack := p.apply1(p.dst, cmd).GetDeliver()
	if ack.Through != 1 || ack.Cut != 1 {
		t.Fatalf("acknowledged: %v, want message 1 in cut 1", ack)
	}
	trim := trimCmd(uint32(p.dst), cmd.GetDeliver(), ack)
	kept := func(want int) {
		t.Helper()
		if got := len(p.deliverCmd(p.src, p.dst, 100).GetDeliver().Messages); got != want {
			t.Fatalf("the outbox has %d messages, want %d", got, want)
		}
	}
	for _, entry := range [][]*commandv1.Command{{trim}, {enterCmd(1), trim}} {
		replies := p.apply(p.parts[p.src], &commandv1.Entry{Commands: entry}).Replies
		if e := wire.ReplyError(replies[len(replies)-1]); e == nil || e.Reason != perdurev1.Reason_REASON_RULE_BROKEN || e.Meta["rule"] != "cut" {
			t.Fatalf("the trim is answered with %v", e)
		}
		kept(1)
	}
	p.apply1(p.src, trim)
	kept(0)
	p.cutsAreSound(1)
}

// cutsAreSound checks all whole cuts, of which there must be so many.
func (p *pipe) cutsAreSound(want int) {
	p.t.Helper()
	if got := p.checkCuts(); got != want {
		p.t.Fatalf("%d cuts are whole, want %d", got, want)
	}
}
