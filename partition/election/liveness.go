package election

import (
	"time"

	"perdure/internal/clock"
)

// Divisors of the heartbeat timeout: a share of 4 is a quarter of the timeout. A leader sends its heartbeats at
// intervals of a tenth to a fifth of the timeout.
const (
	// scansPerTimeout is how often in a heartbeat timeout checkLiveness scans the groups for silent leaders.
	scansPerTimeout = 20
	// silentShare bounds a leader's silence: checkLiveness probes a leader when none of its groups has heard from
	// it for this share.
	silentShare = 4
	// answerShare bounds the time for an answer to a probe, which waits for no disk and no queue, and to the survey
	// of the voters.
	answerShare = 5
)

// scan is when checkLiveness last scanned, and since when it has scanned on time.
type scan struct{ last, since time.Time }

// checkLiveness replaces leaders whose host has vanished or whose process hangs, before the library's
// timeouts do: no connection breaks then, and none is refused. It replaces a leader when all its groups have
// heard nothing for a while, it does not answer a new connection, and a majority has not heard from it. It
// returns when the Failover is closed.
func (f *Failover) checkLiveness() {
	every, last := f.HeartbeatTimeout/scansPerTimeout, f.Clock.Now()
	since := last
	f.scanned.Store(&scan{last, since})
	checks := map[string]chan struct{}{}
	for clock.Wait(f.ctx, f.Clock, every) {
		now := f.Clock.Now()
		if now.Sub(last) > 2*every {
			since = now // this process was delayed: missing messages prove nothing about others
		}
		last = now
		f.scanned.Store(&scan{last, since})
		for server, led := range f.ledByOthers() {
			if min(led.silent, now.Sub(since)) < f.HeartbeatTimeout/silentShare {
				continue
			}
			if done := checks[server]; done != nil {
				select {
				case <-done:
				default:
					continue
				}
			}
			done := make(chan struct{})
			checks[server] = done
			f.run(func() {
				defer close(done)
				f.checkSilent(server, led)
				clock.Wait(f.ctx, f.Clock, f.HeartbeatTimeout/silentShare) // one that answers and says nothing is not probed all the time
			})
		}
	}
}

// Witnessed returns for how much of a time without contact this node can testify: only the time since it was
// last delayed itself.
func (f *Failover) Witnessed(silent time.Duration) time.Duration {
	s, now := f.scanned.Load(), f.Clock.Now()
	if s == nil || now.Sub(s.last) > 2*f.HeartbeatTimeout/scansPerTimeout {
		return 0
	}
	return min(silent, now.Sub(s.since))
}

// ledBy is what one other server leads, as far as this node knows.
type ledBy struct {
	addr   string
	groups []Group
	// silent is how long none of the groups has heard from the server.
	silent time.Duration
}

// ledByOthers is what the other servers lead.
func (f *Failover) ledByOthers() map[string]ledBy {
	out := map[string]ledBy{}
	for _, id := range f.Env.Groups() {
		g, ok := f.Env.Group(id)
		if !ok {
			continue
		}
		server, addr := g.Leader()
		contact := g.Contact()
		if server == "" || server == f.Server || contact.IsZero() {
			continue
		}
		l, known := out[server]
		l.groups = append(l.groups, g)
		if l.addr = f.Env.AddrOf(server); l.addr == "" {
			l.addr = addr
		}
		if silent := clock.Since(contact); !known || silent < l.silent {
			l.silent = silent
		}
		out[server] = l
	}
	return out
}

// checkSilent probes a leader that sends nothing, and has its groups elect others if it does not answer.
func (f *Failover) checkSilent(server string, led ledBy) {
	if f.Probe(led.addr, server, f.HeartbeatTimeout/answerShare) == Alive {
		return
	}
	f.Log.Warn("no contact with leader", "event", "leader_silent", "node", f.Env.NodeOf(server), "server", server,
		"addr", led.addr, "groups", len(led.groups), "silent", led.silent.Round(time.Millisecond))
	for _, g := range led.groups {
		f.check(g, server, func() {
			returned := LeaderReturned(g, server)
			// Ask also if the probe was refused: no connection to the leader broke, so a firewall between may
			// refuse.
			if leader, _ := g.Leader(); leader == server && f.agreed(g, server) {
				f.Replace(f.ctx, g, server, false, returned)
			}
		})
	}
}

// LeaderReturned returns a function that reports whether the group has since heard from the same leader in
// the same term. A vote counts as contact too, but in a later term.
func LeaderReturned(g Group, leader string) func() bool {
	term, contact := g.Term(), g.Contact()
	return func() bool {
		now, _ := g.Leader()
		return g.Contact().After(contact) && g.Term() == term && now == leader
	}
}

// agreed reports whether a majority, this server included, has no contact with the group's leader. So a server that
// only lost its own network deposes no leader.
func (f *Failover) agreed(g Group, lost string) bool {
	limit := f.HeartbeatTimeout / silentShare
	if clock.Since(g.Contact()) < limit {
		return false
	}
	s := f.survey(f.ctx, g, lost, f.HeartbeatTimeout/answerShare)
	return s.votes && majoritySilent(s.voters, lost, s.others, limit)
}
