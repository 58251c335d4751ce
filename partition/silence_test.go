package partition

import (
	"fmt"
	"testing"
	"time"

	"perdure/internal/clock"
	"perdure/internal/testkit"
	"perdure/partition/election"
)

// TestSilence: a leader that no other voter hears, although no connection breaks, is replaced before the
// timeouts act. A leader that a majority hears stays, whichever others do not.
func TestSilence(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, logged := newLog(t)
		all := newClusterWith(t, 1, timeouts, on(net), func(cfg *Config) {
			cfg.Logger = log.With("at", cfg.NodeID)
		})
		lead := leaderOf(t, all, 0)
		var rest []*member
		for _, m := range all {
			if m != lead {
				rest = append(rest, m)
			}
		}
		before := termsOf(rest[0])
		// undisturbed waits until a node has found the leader silent and has checked it.
		undisturbed := func(what string, m *member) {
			t.Helper()
			waitFor(t, m.cfg.NodeID+" finds it silent", func() bool {
				return logged.has("at=" + m.cfg.NodeID + " event=leader_silent")
			}, func() string { return "it does not" })
			waitFor(t, m.cfg.NodeID+" has looked after its groups", func() bool {
				return m.failover.Checking() == 0
			}, func() string { return "it still does" })
			if logged.has("event=campaign_started") {
				t.Errorf("%s: a candidate campaigned", what)
			}
		}

		net.Block(lead.cfg.NodeID, rest[0].cfg.NodeID)
		undisturbed("one of two followers does not hear the leader", rest[0])
		net.Open()

		for _, m := range all {
			if m != rest[1] {
				net.Block(m.cfg.NodeID, rest[1].cfg.NodeID)
			}
		}
		undisturbed("a follower is alone", rest[1])
		net.Open()
		for g, term := range termsOf(lead) {
			if term != before[g] {
				t.Errorf("group %v went from term %d to %d", election.GroupName(g), before[g], term)
			}
		}
		waitFor(t, "all hear the leader again", func() bool {
			for _, m := range rest {
				if g, ok := m.group(0); !ok || clock.Since(g.Contact()) > timeouts/8 {
					return false
				}
			}
			return true
		}, func() string { return "they do not" })

		led := lead.Leads()
		net.Block(lead.cfg.NodeID, rest[0].cfg.NodeID)
		net.Block(lead.cfg.NodeID, rest[1].cfg.NodeID)
		began := time.Now()
		for _, p := range led {
			waitFor(t, fmt.Sprintf("partition %d is led elsewhere", p), func() bool {
				return leads(rest[0], p) || leads(rest[1], p)
			}, func() string { return fmt.Sprint(report{rest[0].Node}.node(), report{rest[1].Node}.node()) })
		}
		took := time.Since(began)
		t.Logf("led elsewhere after %v, %.2f of the heartbeat time-out", took, took.Seconds()/timeouts.Seconds())
		if !logged.has("event=campaign_started") || took > timeouts {
			t.Errorf("it took the time-outs: %v", took)
		}
		net.Open()
	})
}

// TestSilenceRefused: a firewall before the leader drops its connections and refuses new ones. A refused
// probe does not prove that the leader is gone while a majority hears it.
func TestSilenceRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, logged := newLog(t)
		all := newClusterWith(t, 1, timeouts, on(net), func(cfg *Config) {
			cfg.Logger = log.With("at", cfg.NodeID)
		})
		lead := leaderOf(t, all, 0)
		away := all[0]
		if away == lead {
			away = all[1]
		}
		before := termsOf(lead)
		net.Refuse(lead.cfg.NodeID, away.cfg.NodeID)
		waitFor(t, "it is found silent", func() bool {
			return logged.has("at=" + away.cfg.NodeID + " event=leader_silent")
		}, func() string { return "it is not" })
		waitFor(t, "its groups have been looked after", func() bool {
			return away.failover.Checking() == 0
		}, func() string { return "they still are" })
		if logged.has("event=campaign_started") {
			t.Error("a candidate campaigned")
		}
		for g, term := range termsOf(lead) {
			if term != before[g] {
				t.Errorf("group %v went from term %d to %d", election.GroupName(g), before[g], term)
			}
		}
	})
}

// TestSilenceEnds: a leader that was delayed and is heard again stays the leader, also when others have
// already agreed to replace it.
func TestSilenceEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, logged := newLog(t)
		all := newClusterWith(t, 1, timeouts, on(net), func(cfg *Config) { cfg.Logger = log })
		lead := leaderOf(t, all, 0)
		for _, m := range all {
			if m == lead {
				continue
			}
			g, ok := m.group(0)
			if !ok {
				t.Fatal("no member of the group")
			}
			returned := election.LeaderReturned(g, lead.identity.ServerID)
			waitFor(t, "it is heard again", returned, func() string { return g.raft.LastContact().String() })
			term := g.raft.CurrentTerm()
			m.failover.Replace(bg(t), g, lead.identity.ServerID, false, returned)
			if logged.has("event=campaign_started") || g.raft.CurrentTerm() != term || leaderOfGroup(g) != lead.identity.ServerID {
				t.Fatalf("%s: term %d became %d, led by %s; it was led by %s", m.cfg.NodeID, term, g.raft.CurrentTerm(), leaderOfGroup(g), lead.identity.ServerID)
			}
		}
	})
}

// leaderOfGroup is the server that a member takes for its group's leader.
func leaderOfGroup(g election.Group) string {
	server, _ := g.Leader()
	return server
}
