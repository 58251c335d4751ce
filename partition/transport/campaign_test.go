package transport

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// elsewhere is an address book that is wrong about everybody.
type elsewhere struct{}

func (elsewhere) ServerAddr(raft.ServerID) (raft.ServerAddress, error) { return "127.0.0.1:1", nil }

// TestCampaignAndConcede: what a server asks of itself reaches the library as what others ask, and touches no
// network.
func TestCampaignAndConcede(t *testing.T) {
	m := listen(t, Options{ServerID: "a", Advertise: "192.0.2.1:7"}) // no node is there
	tr := NewRaftTransport(m.Raft(1), RaftOptions{Addresses: elsewhere{}})
	got := make(chan any, 2)
	go func() {
		for range cap(got) {
			rpc := <-tr.Consumer()
			got <- rpc.Command
			switch rpc.Command.(type) {
			case *raft.TimeoutNowRequest:
				rpc.Respond(&raft.TimeoutNowResponse{}, nil)
			default:
				rpc.Respond(&raft.RequestVoteResponse{Term: 9}, nil)
			}
		}
	}()
	if err := errors.Join(tr.Campaign("a", ""), tr.Concede("a", "", 8)); err != nil {
		t.Fatal(err)
	}
	if first, ok := (<-got).(*raft.TimeoutNowRequest); !ok || first.ProtocolVersion != raft.ProtocolVersionMax {
		t.Errorf("standing asks %+v", first)
	}
	second, ok := (<-got).(*raft.RequestVoteRequest)
	if !ok || second.Term != 9 || string(second.ID) != "a" || second.LastLogIndex != 0 || second.LastLogTerm != 0 || !second.LeadershipTransfer {
		t.Errorf("stepping back asks %+v", second)
	}
	if s := m.Stats(); s.Accepted != 0 || s.Dialled != 0 {
		t.Errorf("it went over the network: %+v", s)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tr.Campaign("a", ""); err == nil {
		t.Error("a closed transport has taken a request")
	}
}

// TestDialSelf: a connection of a group to itself is like any other, and ends with the group.
func TestDialSelf(t *testing.T) {
	m := listen(t, Options{ServerID: "a", OnPeerConnClosed: func(p Peer) { t.Errorf("notified of %+v", p) }})
	layer := m.Raft(3)
	go echo(layer, "three")
	c, err := layer.Dial(raft.ServerAddress(m.Addr().String()), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := PeerOf(c); !ok || p.ServerID != "a" || p.Group != 3 || !p.Dialled {
		t.Errorf("the other end is %+v", p)
	}
	ask(t, c, "three?\n")
	if err := layer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the connection lives on: %v", err)
		}
	}
	if _, err := layer.Dial(raft.ServerAddress(m.Addr().String()), testTimeout); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed group was dialled: %v", err)
	}
}

// TestCampaignStartsAnElection: a follower that is asked to campaign is elected although the leader lives,
// without a wait for any timeout; a leader that concedes leads no more.
func TestCampaignStartsAnElection(t *testing.T) {
	nodes := threeNodes(t, time.Minute) // no time-out acts
	before := nodes[0]
	if err := before.transports[0].Campaign(raft.ServerID(before.id), ""); err != nil {
		t.Fatal(err)
	}
	apply(t, nodes, 0, "before")
	wantSeen(t, nodes, 0, 1) // so that none lacks what another has
	var next *member
	for _, n := range nodes {
		if n != before {
			next = n
		}
	}
	term, end := before.rafts[0].CurrentTerm(), before.rafts[0].LastIndex()
	if err := before.transports[0].Campaign(raft.ServerID(next.id), raft.ServerAddress(next.addr)); err != nil {
		t.Fatal(err)
	}
	eventually(t, next.id+" leads", func() (string, bool) {
		return next.rafts[0].State().String(), next.rafts[0].State() == raft.Leader
	})
	if now := next.rafts[0].CurrentTerm(); now != term+1 {
		t.Errorf("it took %d terms", now-term)
	}
	eventually(t, before.id+" has what "+next.id+" began with", func() (string, bool) {
		has, last := before.rafts[0].LastIndex(), next.rafts[0].LastIndex()
		return fmt.Sprint(has, " of ", last), has == last && last > end && next.rafts[0].AppliedIndex() == last
	})
	if err := next.transports[0].Concede(raft.ServerID(next.id), "", term+1); err != nil {
		t.Fatal(err)
	}
	if s, now := next.rafts[0].State(), next.rafts[0].CurrentTerm(); s == raft.Leader && now < term+2 {
		t.Errorf("it is %v in term %d", s, now)
	}
	if err := before.transports[0].Campaign(raft.ServerID(before.id), ""); err != nil {
		t.Fatal(err)
	}
	apply(t, nodes, 0, "after")
	for _, n := range nodes {
		n.stop()
	}
}
