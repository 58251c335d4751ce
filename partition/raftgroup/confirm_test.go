package raftgroup

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// fakeGroup is a group whose library says at once that this server leads, as VerifyLeader does when an answer
// from before the question arrives after it.
type fakeGroup struct {
	state   raft.RaftState
	term    uint64
	servers []raft.Server
	verify  error
	never   bool // VerifyLeader does not answer before ended
	ended   <-chan struct{}
}

func (g *fakeGroup) State() raft.RaftState { return g.state }
func (g *fakeGroup) CurrentTerm() uint64   { return g.term }
func (g *fakeGroup) GetConfiguration() raft.ConfigurationFuture {
	return fakeFuture{servers: g.servers}
}
func (g *fakeGroup) VerifyLeader() raft.Future {
	if g.never {
		<-g.ended
	}
	return fakeFuture{err: g.verify}
}

type fakeFuture struct {
	err     error
	servers []raft.Server
}

func (f fakeFuture) Error() error                      { return f.err }
func (f fakeFuture) Index() uint64                     { return 1 }
func (f fakeFuture) Configuration() raft.Configuration { return raft.Configuration{Servers: f.servers} }

// fakeAcks answers from a table: the number of the newest request that each server has answered.
type fakeAcks struct {
	mark uint64
	got  map[raft.ServerID][2]uint64 // term, number
}

func (a *fakeAcks) Mark() uint64 { return a.mark }
func (a *fakeAcks) Since(s raft.ServerID, term, mark uint64) bool {
	return a.got[s][0] == term && a.got[s][1] > mark
}
func (a *fakeAcks) Changed() <-chan struct{} { return nil }

// TestConfirm: a leader is confirmed by what a majority of the voters has answered to requests that left after the
// read began, and by nothing else, whatever raft.VerifyLeader says.
func TestConfirm(t *testing.T) {
	voters := func(ids ...raft.ServerID) (out []raft.Server) {
		for _, id := range ids {
			out = append(out, raft.Server{ID: id, Suffrage: raft.Voter})
		}
		return out
	}
	three := voters("a", "b", "c")
	withSpares := append(voters("a", "b", "c"), raft.Server{ID: "x", Suffrage: raft.Nonvoter}, raft.Server{ID: "y", Suffrage: raft.Nonvoter})
	type acks = map[raft.ServerID][2]uint64
	for _, c := range []struct {
		name      string
		group     fakeGroup
		got       acks
		confirmed bool
		deposed   bool
	}{
		{name: "no server has answered since", group: fakeGroup{servers: three}, got: acks{"b": {7, 10}, "c": {7, 9}}},
		{name: "one of two has", group: fakeGroup{servers: three}, got: acks{"b": {7, 11}, "c": {7, 10}}, confirmed: true},
		{name: "both have", group: fakeGroup{servers: three}, got: acks{"b": {7, 11}, "c": {7, 12}}, confirmed: true},
		{name: "in an earlier term", group: fakeGroup{servers: three}, got: acks{"b": {6, 11}, "c": {6, 11}}},
		{name: "one of four has", group: fakeGroup{servers: voters("a", "b", "c", "d", "e")}, got: acks{"b": {7, 11}}},
		{name: "two of four have", group: fakeGroup{servers: voters("a", "b", "c", "d", "e")}, got: acks{"b": {7, 11}, "e": {7, 11}}, confirmed: true},
		{name: "servers without a vote have", group: fakeGroup{servers: withSpares}, got: acks{"x": {7, 11}, "y": {7, 11}}},
		{name: "the only voter", group: fakeGroup{servers: voters("a")}, confirmed: true},
		{name: "the only voter, not heard yet", group: fakeGroup{servers: voters("a"), never: true}},
		{name: "no voter itself", group: fakeGroup{servers: voters("b", "c")}, got: acks{"b": {7, 11}}},
		{name: "a follower by now", group: fakeGroup{servers: three, state: raft.Follower}, got: acks{"b": {7, 11}}, deposed: true},
		{name: "a leader of a later term", group: fakeGroup{servers: three, term: 8}, got: acks{"b": {7, 11}, "c": {8, 11}}, deposed: true},
		{name: "the library says no", group: fakeGroup{servers: three, verify: raft.ErrNotLeader}, got: acks{"b": {7, 11}}, deposed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := c.group
			g.ended = t.Context().Done()
			if g.state == 0 && !c.deposed || g.term == 8 || g.verify != nil {
				g.state = raft.Leader
			}
			if g.term == 0 {
				g.term = 7
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if !c.confirmed && !c.deposed {
				// It would wait for ever. The answer cannot come any more: nothing changes.
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			err := Confirm(ctx, &g, &fakeAcks{mark: 10, got: c.got}, "a", 7)
			switch {
			case c.confirmed && err != nil, c.deposed && !errors.Is(err, ErrDeposed):
				t.Errorf("%v", err)
			case !c.confirmed && err == nil:
				t.Error("confirmed")
			case !c.confirmed && !c.deposed && errors.Is(err, ErrDeposed):
				t.Errorf("%v, must wait", err)
			}
		})
	}
}
