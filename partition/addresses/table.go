package addresses

import (
	"cmp"
	"slices"
)

// table says which node has a stream of which process. It is pure: its caller guards it. Streams of this node have
// the server "".
//
//	groups[g].pids[p] is not empty, and has a server once
//	groups[g].here and there have each (pid, server) of pids once
type table struct {
	groups map[group]*members
	// size is the number of entries.
	size int
}

// members are the streams of one group.
type members struct {
	pids map[string][]place
	// here are the processes with a stream of this node, there those of other nodes. A choice among equals takes the
	// next one in turn.
	here, there         []seat
	nextHere, nextThere int
}

// place is where a process has its newest stream of one node. since orders the streams of a process.
type place struct {
	server string
	since  int64
}

type seat struct{ pid, server string }

func newTable() *table { return &table{groups: map[group]*members{}} }

// add records a stream, or when a later one of the same process began at the same server. It reports whether the entry
// is new or later than before.
func (t *table) add(n name, server string, since int64) bool {
	g := t.groups[n.group]
	if g == nil {
		g = &members{pids: map[string][]place{}}
		t.groups[n.group] = g
	}
	places := g.pids[n.pid]
	if i := slices.IndexFunc(places, func(p place) bool { return p.server == server }); i >= 0 {
		later := since > places[i].since
		places[i].since = since
		return later
	}
	g.pids[n.pid] = append(places, place{server, since})
	t.size++
	if s := (seat{n.pid, server}); server == "" {
		g.here = append(g.here, s)
	} else {
		g.there = append(g.there, s)
	}
	return true
}

// remove forgets the streams of a process at a server.
func (t *table) remove(n name, server string) {
	g := t.groups[n.group]
	if g == nil {
		return
	}
	places := g.pids[n.pid]
	i := slices.IndexFunc(places, func(p place) bool { return p.server == server })
	if i < 0 {
		return
	}
	t.size--
	if places = slices.Delete(places, i, i+1); len(places) > 0 {
		g.pids[n.pid] = places
	} else {
		delete(g.pids, n.pid)
	}
	without := func(list []seat) []seat {
		at := slices.Index(list, seat{n.pid, server})
		return slices.Delete(list, at, at+1)
	}
	if server == "" {
		g.here = without(g.here)
	} else {
		g.there = without(g.there)
	}
	if len(g.pids) == 0 {
		delete(t.groups, n.group)
	}
}

// has reports whether a group has any stream.
func (t *table) has(g group) bool { return t.groups[g] != nil }

// holds reports whether pick would find a stream.
func (t *table) holds(namespace string, to target) bool {
	g := t.groups[group{namespace, to.group}]
	return to.scheme == schemePoll && g != nil && (!to.only || len(g.pids[to.pid]) > 0)
}

// pick chooses the stream for an address of a namespace: of a named process the newest, else one of the group, of this
// node if it has any, the next one in turn.
func (t *table) pick(namespace string, to target) (pid, server string, ok bool) {
	g := t.groups[group{namespace, to.group}]
	if to.scheme != schemePoll || g == nil {
		return "", "", false
	}
	if places := g.pids[to.pid]; to.pid != "" && len(places) > 0 {
		newest := slices.MaxFunc(places, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(b.server, a.server)) // of equals this node's
		})
		return to.pid, newest.server, true
	}
	if to.only {
		return "", "", false
	}
	if len(g.here) > 0 {
		pid, _ = t.pickHere(namespace, target{scheme: schemePoll, group: to.group})
		return pid, "", true
	}
	s := g.there[g.nextThere%len(g.there)]
	g.nextThere = (g.nextThere + 1) % len(g.there)
	return s.pid, s.server, true
}

// pickHere is pick among the streams of this node.
func (t *table) pickHere(namespace string, to target) (pid string, ok bool) {
	g := t.groups[group{namespace, to.group}]
	if to.scheme != schemePoll || g == nil {
		return "", false
	}
	if to.pid != "" && slices.ContainsFunc(g.pids[to.pid], func(p place) bool { return p.server == "" }) {
		return to.pid, true
	}
	if to.only || len(g.here) == 0 {
		return "", false
	}
	s := g.here[g.nextHere%len(g.here)]
	g.nextHere = (g.nextHere + 1) % len(g.here)
	return s.pid, true
}
