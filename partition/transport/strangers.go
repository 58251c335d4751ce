package transport

import (
	"net"
)

// strangerConns are the accepted connections of servers that are no members, past their handshake. The mux's
// lock guards it.
//
//	len(conns) <= Options.MaxStrangers
type strangerConns struct {
	conns map[*Conn]uint64 // value: order of arrival
	last  uint64
}

// member reports whether a server is a member of the cluster, as far as this node knows.
func (m *Mux) member(server string) bool { return m.opts.Member == nil || m.opts.Member(server) }

// hostOf is the address of a connection's other end without its port.
func hostOf(c net.Conn) string {
	addr := c.RemoteAddr()
	if addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

// crowding picks the oldest connection of the host that has the most, so that one host's connections give way to each
// other before they are closed for another host's. The zero value says that there is none.
func crowding[C interface {
	net.Conn
	comparable
}](conns map[C]uint64) (out C) {
	count := map[string]int{}
	for c := range conns {
		count[hostOf(c)]++
	}
	var none C
	most := 0
	for c, at := range conns {
		n := count[hostOf(c)]
		if out == none || n > most || n == most && at < conns[out] {
			out, most = c, n
		}
	}
	return out
}

// welcomeStranger admits the connection of a server that is no member. The caller closes the connection that
// gives way, if there is one, without the mux's lock.
func (m *Mux) welcomeStranger(c *Conn) (evicted *Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.strangerConns.conns == nil {
		m.strangerConns.conns = map[*Conn]uint64{}
	}
	if len(m.strangerConns.conns) >= m.opts.MaxStrangers {
		for g := range m.strangerConns.conns {
			if m.member(g.peer.ServerID) { // it has been admitted since
				delete(m.strangerConns.conns, g)
			}
		}
	}
	if len(m.strangerConns.conns) >= m.opts.MaxStrangers {
		evicted = crowding(m.strangerConns.conns)
		delete(m.strangerConns.conns, evicted)
		m.stats.Evicted++
	}
	m.strangerConns.last++
	m.strangerConns.conns[c] = m.strangerConns.last
	return evicted
}
