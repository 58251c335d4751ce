package machine

import (
	"bytes"
	"fmt"
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// verify checks the end: every journal against its program, the results against what must come out, and the
// signals against what was sent.
func (s *simulation) verify() {
	s.t.Helper()
	for _, p := range s.parts {
		s.audit(p)
		for dst := range s.parts {
			sent := p.m.txn.channel(keys.Number(keys.Channel, uint32(dst)))
			received := s.parts[dst].m.txn.channel(keys.Number(keys.Inbox, p.cfg.Partition))
			if sent != received {
				s.t.Fatalf("channel %d to %d: %+v sent, %+v received", p.cfg.Partition, dst, sent, received)
			}
		}
		c := takeCensus(p.state)
		for objectID, h := range c.headers {
			s.stats.executions++
			s.verifyExecution(c, objectID, h)
		}
	}
	s.verifySends()
	s.countRequests()
	for _, root := range s.roots {
		if p := s.at(root); takeCensus(p.state).headers[root].ID == "" {
			continue
		}
		want, certain := s.book.expect(s.programOf(root))
		if !certain || s.anyCut(root) {
			continue
		}
		s.stats.certain++
		if got := textOf(takeCensus(s.at(root).state).promises[root].Value); got != want {
			s.t.Fatalf("%s came to %s, must come to %s\n%s", root, got, want, strings.Join(showEntries(s.journal(root)), "\n"))
		}
	}
}

// anyCut tells whether something outside may have ended an execution or one of its descendants.
func (s *simulation) anyCut(objectID string) bool {
	if s.cut[objectID] {
		return true
	}
	for _, p := range s.parts {
		for _, h := range takeCensus(p.state).headers {
			if h.Parent == objectID && s.anyCut(h.ID) {
				return true
			}
		}
	}
	return false
}

func (s *simulation) verifyExecution(c *census, objectID string, h state.Header) {
	s.t.Helper()
	entries := c.journals[objectID]
	bad := func(format string, args ...any) {
		s.t.Helper()
		s.t.Fatalf("%s: %s\n%s", objectID, fmt.Sprintf(format, args...), strings.Join(showEntries(s.journal(objectID)), "\n"))
	}
	if !h.Status.Terminal() {
		bad("it is %v", h.Status)
	}
	// No step is recorded twice, and no entry is foreign.
	steps := map[string]bool{}
	for _, e := range entries {
		switch ev := e.Event.(type) {
		case journal.InvokeScheduled:
			if ev.Function == "stolen" || ev.Invoke == journal.InvokeStep && steps[ev.Function] {
				bad("step %s is there twice, or should not be", ev.Function)
			}
			steps[ev.Function] = true
		case journal.InvokeCompleted:
			s.verifyResult(c, h, ev, bad)
		case journal.SignalDelivered:
			if to, ok := s.signals.of[textOf(ev.Payload)]; ok && to != objectID+" "+ev.Name {
				bad("%q was delivered as %s, and sent to %s", textOf(ev.Payload), ev.Name, to)
			}
			if want, ok := s.sent[s.incarnationName(objectID)+" "+ev.Name][ev.DeliveryID]; ok && h.FailedAttempts == 0 && !s.renumbered(objectID) && textOf(ev.Payload) != want {
				bad("delivery %d of %s is %q, %q was accepted", ev.DeliveryID, ev.Name, textOf(ev.Payload), want)
			}
		}
	}
	s.verifySignals(objectID, entries, bad)
	s.verifyCarried(objectID)
	if h.Kind == state.KindGraph {
		return // see verifyGraphs
	}
	if h.Status == journal.StatusCancelled {
		return
	}
	// A worker that reads the whole journal comes to the same end, with nothing left to do.
	r, err := s.book.walk(objectID, s.journal(objectID)[:len(entries)-1], map[uint32]uint32{}, func() bool { return false })
	if err != nil {
		bad("%v", err)
	}
	if len(r.c.Events) != 1 || showEvent(r.c.Events[0]) != showEvent(s.journal(objectID)[len(entries)-1].Event) || r.next != r.known {
		bad("replayed, it goes on with %v", r.c.Events)
	}
}

// verifyResult compares a recorded result of a child with the child's own end.
func (s *simulation) verifyResult(c *census, h state.Header, ev journal.InvokeCompleted, bad func(string, ...any)) {
	s.t.Helper()
	p, ok := c.promises[string(ev.Promise)]
	if !ok {
		return // a local step, or a one-way operation
	}
	if !bytes.Equal(state.OutcomeOf(p), ev.Result) {
		bad("%s is %q here, and %q by itself", ev.Promise, ev.Result, state.OutcomeOf(p))
	}
	if p.Target != "" || h.Kind == state.KindGraph {
		return
	}
	// A proxy: the child is in another partition and must have the same end, unless the proxy timed out.
	for _, other := range s.parts {
		for _, child := range takeCensus(other.state).headers {
			if child.ParentPromise == string(ev.Promise) && child.ParentIncarnation == h.Incarnation && p.State != recovery.PromiseRejectedTimedout {
				if own := state.OutcomeOf(takeCensus(other.state).promises[child.ID]); !bytes.Equal(own, ev.Result) {
					bad("%s is %q here, and %q where it ran", ev.Promise, ev.Result, own)
				}
			}
		}
	}
}

// verifySends checks that a send is recorded as delivered if the target's journal has the signal, and only
// then, and that all sends were answered.
func (s *simulation) verifySends() {
	s.t.Helper()
	got := map[string]bool{}
	for _, p := range s.parts {
		for _, entries := range takeCensus(p.state).journals {
			for _, e := range entries {
				if d, ok := e.Event.(journal.SignalDelivered); ok {
					got[textOf(d.Payload)] = true
				}
			}
		}
	}
	for _, p := range s.parts {
		c := takeCensus(p.state)
		for eid, h := range c.headers {
			if _, ofGraph := s.graphs[id.Origin(eid)]; ofGraph || h.Kind == state.KindGraph {
				continue // its attempts come again under the same ids
			}
			sends := map[id.PromiseID]bool{}
			for _, e := range c.journals[eid] {
				switch ev := e.Event.(type) {
				case journal.InvokeScheduled:
					if ev.Invoke == journal.InvokeSend && len(ev.Function) == 1 { // a signal; a start's name is longer
						sends[ev.Promise] = true
					}
				case journal.InvokeCompleted:
					if !sends[ev.Promise] {
						continue
					}
					delete(sends, ev.Promise)
					n, _ := ev.Promise.IsChildOf(id.PromiseID(eid))
					switch result := textOf(ev.Result); {
					case result == "" && s.renumbered(s.book.sentTo[fmt.Sprintf("%s#%d", eid, n)]):
						// The target's former journal had it.
					case result == "" && got[fmt.Sprintf("%s#%d", eid, n)]:
						s.stats.sends.delivered++
					case result == "!"+state.FailureTargetNotFound && !got[fmt.Sprintf("%s#%d", eid, n)]:
						s.stats.sends.notFound++
					case result == "!"+state.FailureTargetFinished && !got[fmt.Sprintf("%s#%d", eid, n)]:
						s.stats.sends.finished++
					default:
						s.t.Fatalf("%s: the send %s came to %q; it was delivered: %t\n%s", eid, ev.Promise, result,
							got[fmt.Sprintf("%s#%d", eid, n)], strings.Join(showEntries(s.journal(eid)), "\n"))
					}
				}
			}
			for promise := range sends {
				s.stats.sends.open++
				if below := c.promises[string(promise)].State; !below.Settled() {
					s.t.Fatalf("%s: the send %s was never answered: %s", eid, promise, below)
				}
			}
		}
	}
}

// verifySignals checks that every accepted signal was delivered, and none twice. A child's next attempt
// numbers them from 1 again.
func (s *simulation) verifySignals(objectID string, entries []journal.Entry, bad func(string, ...any)) {
	s.t.Helper()
	seen := map[string]bool{}
	for _, e := range entries {
		if d, ok := e.Event.(journal.SignalDelivered); ok {
			text := textOf(d.Payload)
			if text != "!timeout" && seen[text] {
				bad("signal %q was delivered twice", text)
			}
			seen[text] = true
		}
	}
	for _, name := range []string{"a", "b"} {
		if s.renumbered(objectID) {
			break // a program that continues as new has received some
		}
		for delivery, payload := range s.sent[s.incarnationName(objectID)+" "+name] {
			if !seen[payload] {
				bad("delivery %d of %s was accepted and is not there", delivery, name)
			}
		}
	}
}
