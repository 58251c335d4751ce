package membership

import (
	"encoding/binary"
	"slices"
	"time"
)

// A probe's answer carries the answering node's clock: a version byte and unix nanoseconds.
const (
	clockVersion = 1
	clockBytes   = 9
	// maxClock bounds a clock that is believed (the year 2116), so that differences cannot overflow.
	maxClock = 1 << 62
)

// sampleAge is how long a sample counts, in addition to two rounds of probes.
const sampleAge = 30 * time.Second

// driftSlack is by how much two clocks may part between two samples without one of them having been set.
const driftSlack = 2 * time.Millisecond

func encodeClock(now time.Time) []byte {
	b := make([]byte, 0, clockBytes)
	b = append(b, clockVersion)
	return binary.BigEndian.AppendUint64(b, uint64(now.UnixNano()))
}

func decodeClock(b []byte) (nanos int64, ok bool) {
	if len(b) < clockBytes || b[0] != clockVersion {
		return 0, false
	}
	n := binary.BigEndian.Uint64(b[1:])
	return int64(n), n > 0 && n < maxClock
}

// clocks keeps the best sample of each instance's clock. A sample is the other clock minus this process's
// monotonic time, so that a step of our own clock shows at once, and not when all samples are renewed.
type clocks map[string]sample

type sample struct {
	lead int64         // the other clock minus mono, nanoseconds
	rtt  time.Duration // the error is at most half of it
	at   time.Duration // mono when it was taken
}

// observe records that the clock of name showed nanos, half a round trip before mono. Of samples that agree
// within their errors the one with the shortest round trip stays; one that disagrees shows that the clock
// was set, and wins.
func (c clocks) observe(name string, nanos int64, rtt, mono time.Duration) {
	next := sample{lead: nanos + int64(rtt/2) - int64(mono), rtt: rtt, at: mono}
	if old, ok := c[name]; ok && old.rtt <= rtt && mono-old.at < sampleAge {
		apart := time.Duration(next.lead - old.lead).Abs()
		if apart <= (old.rtt+rtt)/2+driftSlack {
			return
		}
	}
	c[name] = next
}

// ahead is by how much the clock of name is ahead of wall, which reads our own at mono.
func (c clocks) ahead(name string, wall int64, mono, age time.Duration) (time.Duration, bool) {
	s, ok := c[name]
	if !ok || mono-s.at > age {
		return 0, false
	}
	return time.Duration(s.lead + int64(mono) - wall), true
}

// median is the middle of ds, which has at least one element and is reordered; of an even number, halfway
// between the middle two.
func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	n := len(ds)
	if n%2 == 1 {
		return ds[n/2]
	}
	low, high := ds[n/2-1], ds[n/2]
	return low + (high-low)/2
}

// Offsets is by how much the clock of each server is ahead of ours (negative: behind), by server id, as
// far as it was measured in the last half minute. Our own is in it, as 0. Servers of our cluster count;
// while we have no cluster, all do. The error of each is at most half of a probe's round trip.
func (g *Gossip) Offsets() map[string]time.Duration {
	offsets, _ := g.offsets()
	return offsets
}

// Offset is our own clock minus the median of the clocks of all living servers, ours included: positive if
// ours is ahead. It is known once another clock was measured and the measured ones, with ours, are more
// than half of the living servers. With two servers the median lies halfway between them: gossip cannot know
// which one is right.
func (g *Gossip) Offset() (d time.Duration, known bool) {
	offsets, alive := g.offsets()
	if len(offsets) < 2 || 2*len(offsets) <= alive {
		return 0, false
	}
	ds := make([]time.Duration, 0, len(offsets))
	for _, o := range offsets {
		ds = append(ds, o)
	}
	return -median(ds), true
}

// offsets are the measured clocks and how many servers, ours included, could have been measured.
func (g *Gossip) offsets() (map[string]time.Duration, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	current := g.current()
	age := sampleAge + 2*time.Duration(len(current))*g.timing.ProbeInterval
	wall, mono := g.clock.Now().UnixNano(), g.mono()
	offsets := map[string]time.Duration{g.self.ServerID: 0}
	alive := 1
	for server, inst := range current {
		if g.self.ClusterID != "" && inst.member.ClusterID != g.self.ClusterID {
			continue
		}
		alive++
		if d, ok := g.clocks.ahead(inst.name, wall, mono, age); ok {
			offsets[server] = d
		}
	}
	return offsets, alive
}
