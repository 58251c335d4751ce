package partition

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"perdure/internal/clock"
)

// Shares of the heartbeat time-out. A leader sends a heartbeat after a tenth to a fifth of it.
const (
	// silenceLooks is how often in a heartbeat time-out it is looked for silent leaders.
	silenceLooks = 20
	// silenceShare: a leader is asked after a quarter without a word, in any group that it leads.
	silenceShare = 4
	// answerShare: it has a fifth to answer, to a new connection that waits for no disk and no queue; and so have
	// those who are asked whether they hear it.
	answerShare = 5
)

// watchSilence notices leaders whose host has vanished, or whose process hangs, before the time-outs do: no
// connection breaks then, and nobody refuses one. A leader is replaced when all its groups have heard nothing
// for a while, it does not answer a new connection either, and enough others have not heard from it to
// make a majority with this node. It runs until the node stops.
func (f *failover) watchSilence() {
	timeout := f.n.cfg.HeartbeatTimeout
	every, last := timeout/silenceLooks, f.n.clock.Now()
	// What was not heard while this process was held up says nothing of others.
	awake := last
	f.looked.Store(&looked{last, awake})
	suspects := map[string]chan struct{}{}
	for f.n.pause(f.n.lifetime, every) {
		now := f.n.clock.Now()
		if now.Sub(last) > 2*every {
			awake = now
		}
		last = now
		f.looked.Store(&looked{last, awake})
		for server, led := range f.led() {
			if min(led.silent, now.Sub(awake)) < timeout/silenceShare {
				continue
			}
			if asked := suspects[server]; asked != nil {
				select {
				case <-asked:
				default:
					continue
				}
			}
			asked := make(chan struct{})
			suspects[server] = asked
			go func() {
				defer close(asked)
				f.suspect(f.n.lifetime, server, led)
				f.n.pause(f.n.lifetime, timeout/silenceShare) // one that answers but says nothing is not asked all the time
			}()
		}
	}
}

// looked is when watchSilence last looked, and since when it has done so as often as it should.
type looked struct{ last, awake time.Time }

// unheard is for how long nothing was heard, as far as it says something of others: not while this process was
// held up.
func (f *failover) unheard(d time.Duration) time.Duration {
	l, now := f.looked.Load(), f.n.clock.Now()
	if l == nil || now.Sub(l.last) > 2*f.n.cfg.HeartbeatTimeout/silenceLooks {
		return 0
	}
	return min(d, now.Sub(l.awake))
}

// ledBy is what one other server leads, as far as this node knows.
type ledBy struct {
	addr   string
	groups []group
	// silent is for how long none of the groups has heard from it.
	silent time.Duration
}

// led is what the others lead, by server.
func (f *failover) led() map[string]ledBy {
	out := map[string]ledBy{}
	numbers := []uint32{directoryGroup}
	for _, r := range f.n.router.Replicas() {
		numbers = append(numbers, r.id)
	}
	for _, number := range numbers {
		g, ok := f.n.group(number)
		if !ok {
			continue
		}
		addr, id := g.raft.LeaderWithID()
		heard := g.raft.LastContact()
		if server := string(id); server != "" && server != f.n.identity.ServerID && !heard.IsZero() {
			l, known := out[server]
			l.groups = append(l.groups, g)
			if l.addr = f.n.cluster.AddressOf(server); l.addr == "" {
				l.addr = string(addr)
			}
			if silent := clock.Since(heard); !known || silent < l.silent {
				l.silent = silent
			}
			out[server] = l
		}
	}
	return out
}

// suspect finds out whether a silent leader is there, and if it is not has its groups elect others.
func (f *failover) suspect(ctx context.Context, server string, led ledBy) {
	if f.probe(ctx, led.addr, server, f.n.cfg.HeartbeatTimeout/answerShare) == alive {
		return
	}
	f.n.log.Warn("the leader of groups is silent", "event", "leader_silent", "node", f.n.cluster.NodeOf(server), "server", server,
		"addr", led.addr, "groups", len(led.groups), "heard_before", led.silent.Round(time.Millisecond))
	for _, g := range led.groups {
		if !f.take(g.number) {
			continue // it is being looked after
		}
		go f.lookAfter(g, server, func() {
			back := turnedUp(g, server)
			// Also of one that seems to be gone: no connection to it broke, so what refuses may be on the way.
			if g.leader() == server && f.agreed(ctx, g, server) {
				f.succeed(ctx, g, server, false, back)
			}
		})
	}
}

// turnedUp finds out whether a group hears from a leader again that was only held up. To vote for somebody
// counts as hearing too, but that is in a later term.
func turnedUp(g group, leader string) func() bool {
	term, heard := g.raft.CurrentTerm(), g.raft.LastContact()
	return func() bool {
		return g.raft.LastContact().After(heard) && g.raft.CurrentTerm() == term && g.leader() == leader
	}
}

// agreed says that this server and enough others to make a majority have not heard from a leader. A server
// that only lost its own network finds nobody, and leaves the others alone.
func (f *failover) agreed(ctx context.Context, g group, lost string) bool {
	silent := f.n.cfg.HeartbeatTimeout / silenceShare
	if clock.Since(g.raft.LastContact()) < silent {
		return false
	}
	others, _, votes := f.survey(ctx, g, lost, f.n.cfg.HeartbeatTimeout/answerShare)
	future := g.raft.GetConfiguration()
	if !votes || future.Error() != nil {
		return false
	}
	voters, agree := 0, 1
	for _, s := range future.Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	for _, o := range others {
		if o.leader != "" && o.leader != lost || o.contact >= silent {
			agree++
		}
	}
	return 2*agree > voters
}
