package group

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// The outbox keeps each message until its destination has applied it, so a sender that is faster than an entity must
// wait before it sends. The source's leader refuses the commits of such functions and entities before it proposes them,
// and their workers commit again: while the entity's partition says that its backlog is full, and while the outbox to
// that partition holds outboxBound messages or outboxBytes. The leader learns of full backlogs from the answers to shipments, and asks
// every askPause until they are full no more. What it knows is memory; the next leader learns it from its first
// shipments. Two entities that are full of each other's signals would wait for ever: a worker fails an operation whose
// signals stay refused.
const (
	outboxBound = 16_384
	outboxBytes = 64 << 20
	askPause    = 250 * time.Millisecond
	maxAsked    = 256
	holdRetry   = 500 * time.Millisecond
)

// holdBack refuses a commit that sends operations to an entity of another partition which takes no more for now; nil
// admits it. A function in a critical section is admitted: what its locks hold up may be what the backlog waits for.
func (s *shipper) holdBack(cmd *commandv1.Command) *api.Error {
	var refused *api.Error
	var checked []uint32
	for entityID := range operatedOn(cmd) {
		destination := state.PartitionOf(cmd.Namespace, entityID, s.l.r.opts.Partitions)
		if destination == s.l.r.id {
			continue // the machine bounds these
		}
		s.mu.Lock()
		full := s.full[destination][state.Ref{Namespace: cmd.Namespace, ID: entityID}]
		acked := s.acked[destination]
		s.mu.Unlock()
		if full {
			refused = api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "the backlog of entity %q is full", entityID)
		} else if !slices.Contains(checked, destination) {
			checked = append(checked, destination)
			_ = s.l.r.store.Peek(func(r state.Reader) (err error) { // what cannot be read holds nobody back
				refused, err = outboxFull(r, destination, acked)
				return err
			})
		}
		if refused != nil {
			refused = refused.With("namespace", cmd.Namespace).With("id", entityID).With("rule", state.RuleEntityBacklog).
				WithRetryAfterMS(holdRetry.Milliseconds())
			break
		}
	}
	if refused == nil || s.inSection(cmd) {
		return nil
	}
	return refused
}

// operatedOn yields the entities that a commit of a function or of an entity signals or calls.
func operatedOn(cmd *commandv1.Command) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, send := range cmd.GetCommit().GetSends() {
			to := ""
			switch w := send.What.(type) {
			case *perdurev1.Send_EntitySignal:
				to = w.EntitySignal.GetId()
			case *perdurev1.Send_EntityCall:
				to = w.EntityCall.GetId()
			default:
				continue
			}
			if !yield(to) {
				return
			}
		}
		for _, signal := range cmd.GetCommitEntity().GetSignals() {
			if !yield(signal.GetId()) {
				return
			}
		}
	}
}

// unacknowledged counts the messages of an outbox behind the acknowledged ones, or all of them while this leadership
// knows of no acknowledgement.
func unacknowledged(r state.Reader, destination uint32, acked state.Channel) (uint64, error) {
	ch, err := query.Sent(r, destination)
	if err != nil || ch.Last <= acked.Last {
		return 0, err
	}
	if acked.Epoch == ch.Epoch {
		return ch.Last - acked.Last, nil
	}
	front, err := state.OutboxFront(r, destination)
	first, _, bad := keys.CutUint64(bytes.TrimPrefix(front, keys.OutboxPrefix(destination, ch.Epoch)))
	if err != nil || bad != nil || first > ch.Last {
		return 0, err
	}
	return ch.Last - first + 1, nil
}

// outboxFull refuses what would add to a full outbox. The bytes are those of all its messages, of which a trim removes the
// acknowledged ones soon: they count while some message is not acknowledged.
func outboxFull(r state.Reader, destination uint32, acked state.Channel) (*api.Error, error) {
	n, err := unacknowledged(r, destination, acked)
	if err != nil {
		return nil, err
	}
	if n >= outboxBound {
		return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%d messages wait for partition %d, the bound is %d", n, destination, outboxBound), nil
	}
	ch, err := query.Sent(r, destination)
	if err == nil && n > 0 && ch.Bytes >= outboxBytes {
		return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "messages of %d bytes wait for partition %d, the bound is %d", ch.Bytes, destination, outboxBytes), nil
	}
	return nil, err
}

// inSection reports whether a commit's execution is in a critical section.
func (s *shipper) inSection(cmd *commandv1.Command) (inside bool) {
	task := cmd.GetCommit().GetTask()
	_ = s.l.r.store.Peek(func(r state.Reader) error { // what cannot be read is in none
		h, ok, err := state.ReadHolder(r, cmd.Namespace, task.GetId(), task.GetIncarnation())
		inside = ok && h.Phase == entity.Inside
		return err
	})
	return inside
}

// noteFull notes the entities whose backlogs a destination says are full. It has them asked for until they are not.
func (s *shipper) noteFull(destination uint32, full []*commandv1.EntityRef) {
	if len(full) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full[destination] == nil {
		s.full[destination] = map[state.Ref]bool{}
		s.under.Go(func() { s.ask(destination) })
	}
	for _, e := range full {
		s.full[destination][state.Ref{Namespace: e.Namespace, ID: e.Id}] = true
	}
}

// ask asks a destination whether the backlogs are still full, until none is.
func (s *shipper) ask(destination uint32) {
	r, pause, turn := s.l.r, askPause, 0
	for {
		c, stop := r.clock.After(pause)
		select {
		case <-c:
		case <-s.l.ctx.Done():
			stop()
			return
		}
		s.mu.Lock()
		asked := make([]*commandv1.EntityRef, 0, len(s.full[destination]))
		for ref := range s.full[destination] { //lint:sorted sorted below
			asked = append(asked, &commandv1.EntityRef{Namespace: ref.Namespace, Id: ref.ID})
		}
		if len(asked) == 0 {
			delete(s.full, destination)
			s.mu.Unlock()
			return
		}
		epoch := s.acked[destination].Epoch
		s.mu.Unlock()
		slices.SortFunc(asked, func(a, b *commandv1.EntityRef) int {
			return strings.Compare(a.Namespace+"\x00"+a.Id, b.Namespace+"\x00"+b.Id)
		})
		asked = page(asked, turn)
		turn++
		reply, err := r.env.Deliver(s.l.ctx, destination, &commandv1.Command{Kind: &commandv1.Command_Deliver{
			Deliver: &commandv1.Deliver{Source: r.id, Epoch: epoch, Asked: asked}}})
		if err != nil {
			pause = min(2*pause, shipMaxPause)
			continue
		}
		pause = askPause
		s.mu.Lock()
		for _, e := range asked {
			delete(s.full[destination], state.Ref{Namespace: e.Namespace, ID: e.Id})
		}
		for _, e := range reply.GetDeliver().GetFull() {
			s.full[destination][state.Ref{Namespace: e.Namespace, ID: e.Id}] = true
		}
		s.mu.Unlock()
	}
}

// page returns the entities of one question: the next maxAsked of a list at each turn, and its first ones after its end.
func page(all []*commandv1.EntityRef, turn int) []*commandv1.EntityRef {
	pages := (len(all) + maxAsked - 1) / maxAsked
	from := turn % pages * maxAsked
	return all[from:min(from+maxAsked, len(all))]
}
