// Package raftgroup answers two questions about a Raft group that hashicorp/raft answers only in part: the
// result of a future that may never resolve, and whether this server still leads. A wait ends when the group
// is down or the caller's context ends. A confirmed leader led at some moment after the question. The package
// has no state.
package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
)

// EnqueueTimeout bounds the wait for Raft's main loop to take an entry.
const EnqueueTimeout = 5 * time.Second

var ErrAbandoned = errors.New("the node was stopped before the log answered")

// Await blocks on a future that may never answer (a shutdown forgets batches on their way to the
// machine), until Raft is down or the caller's own channel closes.
func Await(f raft.Future, killed, given <-chan struct{}) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-killed:
	case <-given:
	}
	select {
	case err := <-done:
		return err
	default:
		return ErrAbandoned
	}
}

// Wait blocks until a channel is closed, or returns the error of ctx when that ends first.
func Wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrDeposed reports that this server does not lead in the term that was asked about.
var ErrDeposed = errors.New("this server leads no more")

// Leader is what a confirmation asks of a group: *raft.Raft.
type Leader interface {
	State() raft.RaftState
	CurrentTerm() uint64
	GetConfiguration() raft.ConfigurationFuture
	VerifyLeader() raft.Future
}

// Acknowledgements is what a confirmation asks of a group's transport: *transport.Acks.
type Acknowledgements interface {
	Mark() uint64
	Since(server raft.ServerID, term, mark uint64) bool
	Changed() <-chan struct{}
}

// Confirm blocks until this server is known to have led, in term, at some moment after the call: until a
// majority of the voters has answered requests of that term which left after the call. ctx bounds it.
//
// raft.VerifyLeader alone does not say this. It counts each answer that arrives after the question, also one
// to a request from before, which may have waited in the network while the others elected a successor; and it
// counts servers that have no vote. Confirm still calls it: it sends heartbeats at once, and the main loop's
// answer is the only evidence when this server is the only voter.
func Confirm(ctx context.Context, g Leader, acks Acknowledgements, self raft.ServerID, term uint64) error {
	mark := acks.Mark()
	verified := make(chan error, 1)
	go func() { verified <- g.VerifyLeader().Error() }()
	asked := false
	for {
		changed := acks.Changed()
		if g.State() != raft.Leader || g.CurrentTerm() != term {
			return ErrDeposed
		}
		configuration := g.GetConfiguration()
		if err := configuration.Error(); err != nil {
			return err
		}
		if asked && majority(configuration.Configuration().Servers, self, func(s raft.ServerID) bool { return acks.Since(s, term, mark) }) {
			return nil
		}
		select {
		case err := <-verified:
			if err != nil {
				return ErrDeposed
			}
			asked, verified = true, nil
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the leader could not be confirmed: %w", context.Cause(ctx))
		}
	}
}

// majority reports whether more than half of the voters satisfy a condition. The leader, which is asked for none,
// counts as one that does.
func majority(servers []raft.Server, leader raft.ServerID, answered func(raft.ServerID) bool) bool {
	voters, yes := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == leader || answered(s.ID) {
			yes++
		}
	}
	return 2*yes > voters
}

// Status returns the figures of this server's member of a group. It waits for Raft's main loop, never for an answer of
// another server. ContactMs is 0 on the leader.
func Status(g *raft.Raft) *commandv1.ReplicaStatus {
	_, leader := g.LeaderWithID()
	st := &commandv1.ReplicaStatus{State: g.State().String(), Leader: string(leader), Term: g.CurrentTerm(), LastIndex: g.LastIndex(), CommitIndex: g.CommitIndex()}
	if heard := g.LastContact(); g.State() != raft.Leader && !heard.IsZero() {
		st.ContactMs = uint64(max(clock.Since(heard).Milliseconds(), 0))
	}
	st.LastTerm, _ = strconv.ParseUint(g.Stats()["last_log_term"], 10, 64) // always a number
	future := g.GetConfiguration()
	if future.Error() == nil {
		for _, s := range future.Configuration().Servers {
			st.Voters = append(st.Voters, string(s.ID))
		}
	}
	return st
}
