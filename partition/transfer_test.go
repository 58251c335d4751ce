package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/election"
	"perdure/partition/raftgroup"
	"perdure/partition/transport"
)

// callers propose from each of some nodes, without pause, until they are stopped, and note the
// longest that one of them has waited.
type callers struct {
	stop    context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	done    int
	longest time.Duration
	errs    []error
}

func startCallers(t *testing.T, name string, at []*member) *callers {
	l := &callers{}
	ctx, cancel := context.WithCancel(bg(t))
	l.stop = cancel
	for k, m := range at {
		router := m.router
		l.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				_, err := router.Propose(bg(t), createCmd(fmt.Sprintf("%s-%d-%d", name, k, i)))
				l.mu.Lock()
				l.done++
				l.longest = max(l.longest, time.Since(began))
				if err != nil {
					l.errs = append(l.errs, err)
				}
				l.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

// end stops it and fails the test for every call that was not answered well.
func (l *callers) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	t.Logf("%d calls, the longest %v", l.done, l.longest)
	for _, err := range l.errs {
		t.Errorf("a call failed: %v", err)
	}
	if l.done == 0 {
		t.Error("no call was made")
	}
}

// count is how many calls have been answered.
func (l *callers) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

func (l *callers) more(t *testing.T, n int) {
	t.Helper()
	from := l.count()
	waitFor(t, fmt.Sprintf("%d more calls", n), func() bool { return l.count() >= from+n }, func() string { return fmt.Sprint(l.count() - from) })
}

// transfer moves a partition's leadership. It checks that a TRY_LATER comes only when the other members did
// not answer in time.
func transfer(t *testing.T, from *member, p uint32, to string) (leader string) {
	t.Helper()
	var err error
	waitFor(t, fmt.Sprintf("partition %d to be handed to %q", p, to), func() bool {
		began := time.Now()
		leader, err = from.Transfer(bg(t), p, to)
		return reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER || time.Since(began) < election.AskTimeout
	}, func() string { return fmt.Sprint(err) })
	if err != nil {
		t.Fatalf("partition %d to %q: %v", p, to, err)
	}
	return leader
}

// TestTransfer: every partition goes to whichever node is named, under load, and no call fails.
func TestTransfer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		running := startCallers(t, "t", all)
		for round := range 2 {
			for p := range uint32(3) {
				from := leaderOf(t, all, p)
				to := all[(int(p)+round+1)%3]
				leader := transfer(t, from, p, to.cfg.NodeID)
				if leader != to.identity.ServerID || !to.router.slots[p].Load().Serving() {
					t.Fatalf("partition %d is led by %s, want %s", p, leader, to.identity.ServerID)
				}
				running.more(t, 20)
			}
		}
		from := leaderOf(t, all, 0)
		if leader := transfer(t, from, 0, ""); leader == from.identity.ServerID || leader == "" {
			t.Errorf("partition 0 to anybody: %q", leader)
		}
		running.more(t, 20)
		running.end(t)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
		}
	})
}

// TestTransferRefused: a transfer from a node that does not lead, or to one that cannot, is refused by name,
// and nothing moves.
func TestTransferRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		ctx := bg(t)
		lead := leaderOf(t, all, 0)
		var other *member
		for _, m := range all {
			if m != lead {
				other = m
			}
		}
		_, err := other.Transfer(ctx, 0, other.cfg.NodeID)
		var e *api.Error
		if !errors.As(err, &e) || e.Reason != perdurev1.Reason_REASON_NOT_LEADER || e.Meta["leader"] != lead.cfg.PeerAddr {
			t.Errorf("by a follower: %v", err)
		}
		if _, err := lead.Transfer(ctx, 0, "n9"); reasonOf(err) != perdurev1.Reason_REASON_NODE_NOT_FOUND {
			t.Errorf("to an unknown node: %v", err)
		}
		if _, err := lead.Transfer(ctx, 7, other.cfg.NodeID); reasonOf(err) != perdurev1.Reason_REASON_PARTITION_NOT_FOUND {
			t.Errorf("of an unknown partition: %v", err)
		}
		if leader, err := lead.Transfer(ctx, 0, lead.cfg.NodeID); err != nil || leader != lead.identity.ServerID {
			t.Errorf("to itself: %s, %v", leader, err)
		}
		other.kill(t)
		if _, err := lead.Transfer(ctx, 0, other.cfg.NodeID); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
			t.Errorf("to a node that is gone: %v", err)
		}
		if got := leaderOf(t, []*member{lead}, 0); got != lead {
			t.Error("the leadership has moved")
		}
	})
}

// TestPlannedStop: a node that is stopped in order has handed on everything before, and its callers' callers
// hardly notice. It gets back what it should lead when it has been there again for a while, except what an
// operator wants elsewhere.
func TestPlannedStop(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 4, timeouts, on(net))
		led := func(m *member) (out []uint32) {
			for p := range uint32(4) {
				if leads(m, p) {
					out = append(out, p)
				}
			}
			return out
		}
		stopped := all[0]
		waitFor(t, "n1 to lead two", func() bool { return len(led(stopped)) == 2 }, func() string { return fmt.Sprint(led(stopped)) })
		running := startCallers(t, "s", all[1:])
		running.more(t, 20)
		before := termsOf(all[1])
		stopped.stop(t)
		running.more(t, 20)
		running.end(t)
		if running.longest > atOnce {
			t.Errorf("a call took %v", running.longest)
		}
		for p := range uint32(4) {
			// One election for each group that it led: no member had to find out that it is gone.
			if now := termsOf(all[1])[p]; now > before[p]+1 {
				t.Errorf("partition %d went from term %d to %d", p, before[p], now)
			}
		}
		stopped.start(t)
		ready(t, stopped.Node)
		kept := all[1]
		transfer(t, leaderOf(t, all, 3), 3, kept.cfg.NodeID)
		began := time.Now()
		waitFor(t, "partition 0 is back", func() bool { return leads(stopped, 0) }, func() string { return fmt.Sprint(led(all[0]), led(all[1]), led(all[2])) })
		if took := time.Since(began); took < timeouts*5/2 {
			t.Errorf("partition 0 was back after %v, before n1 had answered for long enough", took)
		}
		// Partition 3 is as old there and would have come with it.
		if !leads(kept, 3) {
			t.Errorf("partition 3 did not stay where an operator wanted it")
		}
	})
}

// TestRestartedLeader: a leader's process ends and is back before another member has checked it. It does not
// lead any more, and its groups do not wait for the timeouts.
func TestRestartedLeader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		was := leaderOf(t, all, 1)
		// It gives up without a word, as a process does that starts again.
		r := was.router.slots[1].Load()
		began := time.Now()
		if err := r.Transport().Concede(raft.ServerID(was.identity.ServerID), "", r.Raft().CurrentTerm()); err != nil {
			t.Fatal(err)
		}
		lead := leaderOf(t, all, 1)
		t.Logf("%s leads after %v", lead.cfg.NodeID, time.Since(began))
		if took := time.Since(began); took > atOnce {
			t.Errorf("it took %v", took)
		}
		must(t, all[0].router, createCmd(idIn(all[0].router, 1, "x")))
	})
}

// TestSplitVote: two candidates that campaign at the same moment get no majority; one of them begins again.
func TestSplitVote(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 1, timeouts, on(net))
		was := leaderOf(t, all, 0)
		var rest []*member
		for _, m := range all {
			if m != was {
				rest = append(rest, m)
			}
		}
		// Neither knows what breaks, and both campaign.
		for _, m := range rest {
			m.failover.Enable(false)
		}
		was.kill(t)
		var wg sync.WaitGroup
		for _, m := range rest {
			g, ok := m.group(0)
			if !ok {
				t.Fatal("no group")
			}
			wg.Go(func() {
				if err := g.transport.Campaign(raft.ServerID(m.identity.ServerID), ""); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, m := range rest {
			m.failover.Enable(true)
			g, _ := m.group(0)
			go m.failover.Replace(m.lifetime, g, was.identity.ServerID, true, notReturned)
		}
		began := time.Now()
		leaderOf(t, rest, 0)
		if took := time.Since(began); took > atOnce {
			t.Errorf("it took %v", took)
		}
		must(t, rest[0].router, createCmd("x"))
	})
}

// TestBlindSurvivor: a survivor lacks entries of the other one, and it alone has seen the leader go. It has
// the other one campaign.
func TestBlindSurvivor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 1, timeouts, on(net))
		was := leaderOf(t, all, 0)
		var rest []*member
		for _, m := range all {
			if m != was {
				rest = append(rest, m)
			}
		}
		behind, ahead := rest[0], rest[1]
		equalReplicas(t, all, 0)
		waitFor(t, "all to have the same log", func() bool {
			last := was.router.slots[0].Load().Raft().LastIndex()
			return behind.router.slots[0].Load().Raft().LastIndex() == last && ahead.router.slots[0].Load().Raft().LastIndex() == last
		}, func() string {
			return fmt.Sprint(report{was.Node}.node(), report{behind.Node}.node(), report{ahead.Node}.node())
		})
		ahead.failover.Enable(false)
		// It alone hears of an entry; then the leader goes.
		r := ahead.router.slots[0].Load()
		behind.failover.Enable(false)
		was.kill(t)
		from := was.router.slots[0].Load().Transport().LocalAddr()
		var seen string
		waitFor(t, "the entry is taken", func() bool {
			have, term := raftgroup.Status(r.Raft()), r.Raft().CurrentTerm()
			var resp raft.AppendEntriesResponse
			err := behind.router.slots[0].Load().Transport().AppendEntries(raft.ServerID(ahead.identity.ServerID), raft.ServerAddress(ahead.cfg.PeerAddr), &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(was.identity.ServerID), Addr: []byte(from)},
				Term:      term, PrevLogEntry: have.LastIndex, PrevLogTerm: have.LastTerm,
				Entries: []*raft.Log{{Index: have.LastIndex + 1, Term: term, Type: raft.LogNoop}},
			}, &resp)
			seen = fmt.Sprint(err, resp, have)
			return err == nil && resp.Success
		}, func() string { return seen })
		g, _ := behind.group(0)
		began := time.Now()
		go behind.failover.Replace(behind.lifetime, g, was.identity.ServerID, false, notReturned)
		if lead := leaderOf(t, rest, 0); lead != ahead {
			t.Errorf("%s leads", lead.cfg.NodeID)
		}
		if took := time.Since(began); took > atOnce {
			t.Errorf("it took %v", took)
		}
		must(t, behind.router, createCmd("x"))
	})
}

// notReturned is of a leader that is gone.
func notReturned() bool { return false }

// TestProbe: what is known of a process by what answers at its address.
func TestProbe(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 1, timeouts, on(net))
		f := all[0].failover
		foreign, err := transport.Listen("n9:1", transport.Options{ClusterID: "c9", ServerID: "n2-0001", Network: net.Host("n9")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = foreign.Close() })
		net.Block("n1", "n2")
		for name, c := range map[string]struct {
			addr, server string
			want         election.Liveness
		}{
			"it answers":              {all[2].cfg.PeerAddr, "n3-0001", election.Alive},
			"another server answers":  {all[2].cfg.PeerAddr, "n2-0001", election.Gone},
			"no listener":             {"n2:2", "n2-0001", election.Gone},
			"another cluster answers": {foreign.Addr().String(), "n2-0001", election.Gone},
			"no answer":               {all[1].cfg.PeerAddr, "n2-0001", election.Unknown},
		} {
			if got := f.Probe(c.addr, c.server, 200*time.Millisecond); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	})
}

// TestTransferInProgress: a leader that is asked for a transfer to no server says whether one is under way.
func TestTransferInProgress(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 1, timeouts, on(net))
		lead := leaderOf(t, all, 0)
		if lead != all[0] {
			t.Fatalf("%s leads", lead.cfg.NodeID)
		}
		g, _ := lead.group(0)
		ask := func() error { return g.Transfer(bg(t), "", "") } // of no server
		if err := ask(); err == nil || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			t.Fatalf("no transfer is under way: %v", err)
		}
		must(t, lead.router, createCmd("x"))
		// A server that never answers the request to take over keeps the leader waiting.
		net.Block("n1", "n2")
		handed := g.raft.LeadershipTransferToServer("n2-0001", "n2:1")
		waitFor(t, "the transfer is seen", func() bool { return errors.Is(ask(), raft.ErrLeadershipTransferInProgress) }, func() string { return "no transfer" })
		if err := handed.Error(); err == nil {
			t.Error("the leadership was moved to no member")
		}
	})
}

// TestOperatorTransfers: on whichever node an operator asks, other nodes lead the groups when the answer is
// there. The node may learn of the new leaders before it has the old one's answer.
func TestOperatorTransfers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, logged := newLog(t)
		all := newClusterWith(t, 4, timeouts, on(net), func(cfg *Config) { cfg.Logger = log })
		for round := range 4 {
			for i, from := range all {
				at := all[(i+round)%3]
				was := from.Leads()
				reply, err := at.Operator().Transfer(bg(t), &perdurev1.TransferLeadershipRequest{FromNode: from.cfg.NodeID})
				if err != nil {
					t.Fatalf("from %s, asked at %s: %v", from.cfg.NodeID, at.cfg.NodeID, err)
				}
				leaders := map[string]bool{}
				for _, moved := range reply.Transferred {
					leaders[moved.Leader] = true
				}
				if len(reply.Transferred) != len(was) || len(was) > 2 && len(leaders) < 2 {
					t.Errorf("%s led %v, handed on were %v", from.cfg.NodeID, was, reply.Transferred)
				}
				for _, moved := range reply.Transferred {
					if moved.Leader == from.cfg.NodeID || leads(from, moved.Partition) {
						t.Fatalf("from %s, asked at %s: partition %d is led by %s", from.cfg.NodeID, at.cfg.NodeID, moved.Partition, moved.Leader)
					}
				}
			}
		}
		// A request that comes again, as after an answer that was lost, moves nothing on.
		lead := leaderOf(t, all, 0)
		again, err := (&peerService{n: lead.Node}).Transfer(bg(t), &commandv1.TransferRequest{Partition: 0, From: "n9-0001"})
		if err != nil || again.Leader != lead.identity.ServerID {
			t.Errorf("asked again: %v, %v", again, err)
		}
		if logged.has("event=leadership_transfer_failed") {
			t.Error("a transfer was given up")
		}
	})
}
