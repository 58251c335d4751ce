package group

import (
	"slices"
	"strings"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/query"
	"perdure/fsm/state"
)

// A function that signals an entity faster than the entity runs must wait, and nothing that was sent may be
// lost or overtaken. So the source's leader refuses the commits of such functions before it proposes them,
// and their workers commit again: while the entity's partition says that its backlog is full, and while the
// outbox to that partition holds outboxBound messages. It learns of full backlogs from the answers to
// shipments, and asks every askPause until they are full no more. What it knows is memory; the next leader
// learns it from its first shipments.
const (
	outboxBound = 16_384
	askPause    = 250 * time.Millisecond
	maxAsked    = 256
	holdRetry   = 500 * time.Millisecond
)

// holdBack refuses a commit that signals an entity of another partition which takes no more for now; nil admits it. A
// function in a critical section is admitted: what its locks hold up may be what the backlog waits for.
func (s *shipper) holdBack(cmd *commandv1.Command) *api.Error {
	var refused *api.Error
	var checked []uint32
	for _, send := range cmd.GetCommit().GetSends() {
		signal := send.GetEntitySignal()
		if signal == nil {
			continue
		}
		destination := state.PartitionOf(cmd.Namespace, signal.Id, s.l.r.opts.Partitions)
		if destination == s.l.r.id {
			continue // the machine bounds these
		}
		s.mu.Lock()
		full := s.full[destination][state.Ref{Namespace: cmd.Namespace, ID: signal.Id}]
		acked := s.acked[destination]
		s.mu.Unlock()
		if full {
			refused = api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "the backlog of entity %q is full", signal.Id)
		} else if !slices.Contains(checked, destination) {
			checked = append(checked, destination)
			n := uint64(0)
			_ = s.l.r.store.View(func(r state.Reader) error {
				n = unacknowledged(r, destination, acked)
				return nil
			})
			if n >= outboxBound {
				refused = api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%d messages wait for partition %d, the bound is %d", n, destination, outboxBound)
			}
		}
		if refused != nil {
			refused = refused.With("namespace", cmd.Namespace).With("id", signal.Id).WithRetryAfterMS(holdRetry.Milliseconds())
			break
		}
	}
	if refused == nil || s.inSection(cmd) {
		return nil
	}
	return refused
}

// unacknowledged counts the messages of an outbox behind the acknowledged ones; 0 while nothing was acknowledged. What
// cannot be read holds nobody back.
func unacknowledged(r state.Reader, destination uint32, acked state.Channel) uint64 {
	if ch, err := query.Sent(r, destination); err == nil && acked.Epoch != 0 && ch.Epoch == acked.Epoch && ch.Last > acked.Last {
		return ch.Last - acked.Last
	}
	return 0
}

// inSection reports whether a commit's execution is in a critical section.
func (s *shipper) inSection(cmd *commandv1.Command) (inside bool) {
	task := cmd.GetCommit().GetTask()
	_ = s.l.r.store.View(func(r state.Reader) error { // what cannot be read is in none
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
	r, pause := s.l.r, askPause
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
		asked = asked[:min(len(asked), maxAsked)]
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
