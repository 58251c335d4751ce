package machine

import (
	"maps"
	"slices"
	"strings"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
)

// simSignals knows which signals of clients a root must have, whichever incarnation accepted them.
type simSignals struct {
	// of is the target and name to which a payload was sent.
	of map[string]string
	// carried are the accepted payloads by root, without those that a former incarnation had received when it continued
	// as new.
	carried map[string]map[string]bool
	// continued are the roots that continued as new in the entry whose replies are being handed out.
	continued map[string]bool
}

func newSimSignals() simSignals {
	return simSignals{of: map[string]string{}, carried: map[string]map[string]bool{}, continued: map[string]bool{}}
}

// received are the signals of clients in an incarnation's journal; waiting are those that the program has not consumed.
type received struct {
	incarnation  uint64
	all, waiting map[string]bool
}

// receivedBy reads the journal of an execution.
func (s *simulation) receivedBy(objectID string) (out received) {
	s.t.Helper()
	r := s.at(objectID).m.State()
	b, ok, _ := r.Get(keys.Of(keys.Header, ns, objectID))
	if !ok {
		return out
	}
	h, err := state.DecodeHeader(b)
	if err != nil {
		s.t.Fatalf("%s: %v", objectID, err)
	}
	out = received{h.Incarnation, map[string]bool{}, map[string]bool{}}
	j, bySeq := newJournal(objectID), map[uint64]string{}
	for seq := range h.Events {
		b, _ := state.Must{From: r}.Entry(ns, &h, seq)
		e, err := journal.DecodeEntry(b)
		if err == nil {
			err = j.Append(seq, e.Event)
		}
		if err != nil {
			s.t.Fatalf("entry %d of %s: %v", seq, objectID, err)
		}
		if d, ok := e.Event.(journal.SignalDelivered); ok && s.signals.of[textOf(d.Payload)] != "" {
			bySeq[seq] = textOf(d.Payload)
			out.all[bySeq[seq]] = true
		}
	}
	for _, d := range j.Unconsumed() {
		if payload, ok := bySeq[d.Seq]; ok {
			out.waiting[payload] = true
		}
	}
	return out
}

// beforeSuccessions reads what the roots have received to which a batch may give a next incarnation.
func (s *simulation) beforeSuccessions(batch []*pending) map[string]received {
	clear(s.signals.continued)
	former := map[string]received{}
	for _, b := range batch {
		if b.cmd.GetRestart() != nil || b.cmd.GetCommit().GetContinueAsNew() != nil {
			former[b.cmd.Id] = s.receivedBy(b.cmd.Id)
		}
	}
	return former
}

// afterSuccessions checks that a restart has carried every signal over, and a continuation each one that its incarnation
// had not received, and no other.
func (s *simulation) afterSuccessions(former map[string]received, batch []*pending, replies []*commandv1.Reply) {
	s.t.Helper()
	for i, b := range batch {
		x := b.cmd.Id
		f, ok := former[x]
		continues := b.cmd.GetCommit().GetContinueAsNew() != nil
		if !ok || !slices.Contains(s.roots, x) || b.cmd.GetRestart() == nil && !continues || wire.ReplyError(replies[i]) != nil {
			continue
		}
		now := s.receivedBy(x)
		if now.incarnation == f.incarnation || s.signals.continued[x] {
			continue
		}
		for _, payload := range slices.Sorted(maps.Keys(f.all)) {
			lives := !continues || f.waiting[payload]
			if now.all[payload] != lives {
				s.t.Fatalf("%s: signal %q is in the next incarnation: %t, must be: %t\n%v", x, payload, now.all[payload], lives,
					strings.Join(showEntries(s.journal(x)), "\n"))
			}
			if lives {
				s.stats.carried++
			} else {
				s.stats.received++
				delete(s.signals.carried[x], payload)
			}
		}
		s.signals.continued[x] = continues
	}
}

// signalAccepted checks that a root's journal has a signal whose sender is answered.
func (s *simulation) signalAccepted(target, payload string) {
	s.t.Helper()
	if !slices.Contains(s.roots, target) || s.signals.continued[target] { // the former incarnation may have received it
		return
	}
	if !s.receivedBy(target).all[payload] {
		s.t.Fatalf("%s: signal %q was accepted and is not in the journal\n%s", target, payload, strings.Join(showEntries(s.journal(target)), "\n"))
	}
	if s.signals.carried[target] == nil {
		s.signals.carried[target] = map[string]bool{}
	}
	s.signals.carried[target][payload] = true
}

// verifyCarried checks that a root's last incarnation has what its former ones had accepted and not received.
func (s *simulation) verifyCarried(objectID string) {
	s.t.Helper()
	if len(s.signals.carried[objectID]) == 0 {
		return
	}
	got := s.receivedBy(objectID).all
	for _, payload := range slices.Sorted(maps.Keys(s.signals.carried[objectID])) {
		if !got[payload] {
			s.t.Fatalf("%s: signal %q was accepted by a former incarnation and is lost\n%s", objectID, payload, strings.Join(showEntries(s.journal(objectID)), "\n"))
		}
	}
}
