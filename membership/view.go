package membership

import (
	"cmp"
	"log/slog"
	"slices"
	"time"
)

// instance is one start of one server, as gossip describes it. The view holds only living ones.
type instance struct {
	name, mark string
	member     Member
	leaving    bool
}

// maxLost bounds the remembered addresses of dead instances; lostFor is how long they are remembered.
const (
	maxLost = 256
	lostFor = 24 * time.Hour
)

type lostServer struct {
	server string
	at     time.Duration // mono
}

// maxReported bounds the foreign servers that are remembered as reported; beyond it they are not reported.
const maxReported = 256

// newer says whether a was started after b.
func newer(a, b *instance) bool { return a.mark > b.mark }

// current are the living instances that count, ours excepted: of our cluster, not leaving, the newest of
// each server. g.mu is held.
func (g *Gossip) current() map[string]*instance {
	out := make(map[string]*instance, len(g.instances))
	for _, inst := range g.instances {
		if !g.counts(inst) {
			continue
		}
		if other := out[inst.member.ServerID]; other == nil || newer(inst, other) {
			out[inst.member.ServerID] = inst
		}
	}
	return out
}

// counts says whether an instance is in the view of callers, others of its server aside. g.mu is held.
func (g *Gossip) counts(inst *instance) bool {
	return !inst.leaving && inst.member.ServerID != g.self.ServerID && !foreign(g.self.ClusterID, inst.member.ClusterID)
}

// Members are the living servers, this one included until it leaves, by NodeID and then ServerID. The
// result is the caller's. It does not block.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Member
	if !g.left {
		self := g.self.clone()
		self.GossipAddr = g.addr
		out = append(out, self)
	}
	for _, inst := range g.current() {
		out = append(out, inst.member.clone())
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.ServerID, b.ServerID))
	})
	return out
}

// Alive says whether Members has the server. It does not block.
func (g *Gossip) Alive(serverID string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if serverID == g.self.ServerID {
		return !g.left
	}
	return g.current()[serverID] != nil
}

// Changed receives once after something that Members, Alive or an epoch or a lead depends on has changed
// since the last receive. Clocks do not count as changes.
func (g *Gossip) Changed() <-chan struct{} { return g.changed }

func (g *Gossip) signal() { notify(g.changed) }

// notify leaves one token in a channel of capacity one. It does not block.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// The rest is called by memberlist under its lock. It must not call memberlist, and must not block.

// heard checks a gossip report about an instance; an error keeps it out of memberlist.
func (g *Gossip) heard(name, addr string, meta []byte) error {
	server, _, ok := splitName(name)
	if !ok {
		g.report.refused("a member of an unknown kind at " + addr)
		return errNotOurs
	}
	member, _, err := decodeMeta(meta)
	if err != nil {
		g.report.refused(err.Error() + " at " + addr)
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if name == g.name || !foreign(g.self.ClusterID, member.ClusterID) {
		return nil
	}
	member.ServerID, member.GossipAddr = server, addr
	if inst := g.instances[name]; inst != nil && inst.member.ClusterID == "" {
		// Fresh so far. memberlist keeps it as it was, so this is the only place that learns of it.
		inst.member.ClusterID = member.ClusterID
		g.signal()
	}
	g.reportForeign(member)
	return errForeign
}

// joined and updated store what memberlist has accepted.
func (g *Gossip) joined(name, addr string, meta []byte)  { g.store(name, addr, meta, true) }
func (g *Gossip) updated(name, addr string, meta []byte) { g.store(name, addr, meta, false) }

func (g *Gossip) store(name, addr string, meta []byte, join bool) {
	server, mark, ok := splitName(name)
	member, flags, err := decodeMeta(meta)
	g.mu.Lock()
	defer g.mu.Unlock()
	if name == g.name {
		g.spread = string(meta)
		return
	}
	if !ok || err != nil || g.closed {
		return // heard refuses such members
	}
	member.ServerID, member.GossipAddr = server, addr
	inst := g.instances[name]
	if inst == nil {
		inst = &instance{name: name, mark: mark}
		g.instances[name] = inst
		join = true
	} else if member.ClusterID == "" {
		member.ClusterID = inst.member.ClusterID // older word
	}
	left := !inst.leaving && flags&flagLeaving != 0
	inst.member, inst.leaving = member, flags&flagLeaving != 0
	delete(g.lost, addr)
	for lost, l := range g.lost {
		if l.server == server {
			delete(g.lost, lost) // it is here now
		}
	}
	switch {
	case server == g.self.ServerID:
		return // our previous instance, or a copy of this server: pings decide
	case foreign(g.self.ClusterID, member.ClusterID):
		g.reportForeign(member)
	case g.outdone(inst): // a rumour of an earlier run
	case left && !join:
		g.say(slog.LevelInfo, "member_left", "a member leaves", member)
	case left:
	case join:
		g.say(slog.LevelInfo, "member_joined", "a member is there", member)
	default:
		g.say(slog.LevelDebug, "member_updated", "a member has changed", member)
	}
	g.signal()
}

// gone forgets an instance that has left or died.
func (g *Gossip) gone(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	inst := g.instances[name]
	if inst == nil || g.closed {
		return
	}
	delete(g.instances, name)
	delete(g.clocks, name)
	if !g.counts(inst) {
		return
	}
	g.signal()
	if g.outdone(inst) {
		return
	}
	g.say(slog.LevelWarn, "member_failed", "a member does not answer", inst.member)
	g.lose(inst.member)
	notify(g.rejoin)
}

// lose remembers the address of a dead instance, to try it: the instance may still be alive.
func (g *Gossip) lose(m Member) {
	now := g.mono()
	oldest := ""
	for addr, l := range g.lost {
		if now-l.at > lostFor {
			delete(g.lost, addr)
		} else if oldest == "" || l.at < g.lost[oldest].at {
			oldest = addr
		}
	}
	if len(g.lost) >= maxLost {
		delete(g.lost, oldest)
	}
	g.lost[m.GossipAddr] = lostServer{m.ServerID, now}
}

// outdone says whether a living instance of the same server was started after inst. g.mu is held.
func (g *Gossip) outdone(inst *instance) bool {
	other := g.current()[inst.member.ServerID]
	return other != nil && newer(other, inst)
}

// hasAddr says whether we, or a living instance, are heard at addr. g.mu is held.
func (g *Gossip) hasAddr(addr string) bool {
	if addr == g.addr || addr == g.bound {
		return true
	}
	for _, inst := range g.instances {
		if inst.member.GossipAddr == addr {
			return true
		}
	}
	return false
}

// answered takes in a probe's answer.
func (g *Gossip) answered(name string, rtt time.Duration, payload []byte) {
	nanos, ok := decodeClock(payload)
	g.mu.Lock()
	defer g.mu.Unlock()
	inst := g.instances[name]
	if inst == nil || g.closed {
		return
	}
	if ok {
		g.clocks.observe(name, nanos, rtt, g.mono())
	}
	// An answer comes from the very instance, so it runs now, as we do.
	if inst.member.ServerID == g.self.ServerID && !g.twins[name] && len(g.twins) < maxReported {
		g.twins[name] = true
		g.say(slog.LevelError, "server_twice", "another process runs as this server: is its data directory a copy?", inst.member)
	}
}

// reportForeign logs a server of another cluster once. g.mu is held.
func (g *Gossip) reportForeign(m Member) {
	key := m.ClusterID + "/" + m.ServerID
	if g.foreigners[key] || len(g.foreigners) >= maxReported {
		return
	}
	g.foreigners[key] = true
	g.say(slog.LevelWarn, "foreign_cluster", "a node of another cluster is ignored", m, "own_cluster", g.self.ClusterID)
}

func (g *Gossip) say(level slog.Level, event, text string, m Member, more ...any) {
	g.report.event(level, event, text, append([]any{
		"node", m.NodeID, "server", m.ServerID, "cluster", m.ClusterID, "gossip", m.GossipAddr}, more...)...)
}
