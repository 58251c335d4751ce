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

// newer reports whether a was started after b.
func newer(a, b *instance) bool { return a.mark > b.mark }

// current returns the living instances that count, ours excepted: of our cluster, not leaving, the newest of
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

// counts reports whether the view of callers may list an instance, regardless of other instances of its server. g.mu
// is held.
func (g *Gossip) counts(inst *instance) bool {
	return !inst.leaving && inst.member.ServerID != g.self.ServerID && !foreign(g.self.ClusterID, inst.member.ClusterID)
}

// Members returns the living servers, this one included until it leaves, by NodeID and then ServerID. The
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

// Alive reports whether Members lists the server. It does not block.
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
		// It had no cluster so far. memberlist does not call NotifyUpdate for a refused report.
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
		member.ClusterID = inst.member.ClusterID // an older report
	}
	left := !inst.leaving && flags&flagLeaving != 0
	inst.member, inst.leaving = member, flags&flagLeaving != 0
	delete(g.lost, addr)
	for lost, l := range g.lost {
		if l.server == server {
			delete(g.lost, lost) // the server answers again
		}
	}
	switch {
	case server == g.self.ServerID:
		return // our previous instance, or a copy of this server: pings decide
	case foreign(g.self.ClusterID, member.ClusterID):
		g.reportForeign(member)
	case g.superseded(inst): // a late report of an earlier instance
	case left && !join:
		g.logMember(slog.LevelInfo, "member_left", "member left", member)
	case left:
	case join:
		g.logMember(slog.LevelInfo, "member_joined", "member joined", member)
	default:
		g.logMember(slog.LevelDebug, "member_updated", "member updated", member)
	}
	g.signal()
}

// removed forgets an instance that has left or failed.
func (g *Gossip) removed(name string) {
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
	if g.superseded(inst) {
		return
	}
	g.logMember(slog.LevelWarn, "member_failed", "member failed", inst.member)
	g.rememberLost(inst.member)
	notify(g.rejoin)
}

// rememberLost stores the address of a failed instance, to try to join it: the instance may still be alive.
func (g *Gossip) rememberLost(m Member) {
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

// superseded reports whether a living instance of the same server was started after inst. g.mu is held.
func (g *Gossip) superseded(inst *instance) bool {
	other := g.current()[inst.member.ServerID]
	return other != nil && newer(other, inst)
}

// hasAddr reports whether this instance or another living one has the address. g.mu is held.
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

// answered records a probe's answer.
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
	// The instance itself answers, so it runs concurrently with this one.
	if inst.member.ServerID == g.self.ServerID && !g.copies[name] && len(g.copies) < maxReported {
		g.copies[name] = true
		g.logMember(slog.LevelError, "server_twice", "another process runs as this server", inst.member)
	}
}

// reportForeign logs a server of another cluster once. g.mu is held.
func (g *Gossip) reportForeign(m Member) {
	key := m.ClusterID + "/" + m.ServerID
	if g.foreigners[key] || len(g.foreigners) >= maxReported {
		return
	}
	g.foreigners[key] = true
	g.logMember(slog.LevelWarn, "foreign_cluster", "node of another cluster ignored", m, "own_cluster", g.self.ClusterID)
}

// logMember logs an event about a member.
func (g *Gossip) logMember(level slog.Level, event, text string, m Member, more ...any) {
	g.report.event(level, event, text, append([]any{
		"node", m.NodeID, "server", m.ServerID, "cluster", m.ClusterID, "gossip", m.GossipAddr}, more...)...)
}
