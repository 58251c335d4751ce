package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"perdure/internal/clock"
)

const (
	acceptDelayMin = 5 * time.Millisecond
	acceptDelayMax = time.Second
)

func (m *Mux) acceptLoop() {
	defer m.wg.Done()
	delay := acceptDelayMin
	for {
		raw, err := m.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || m.ctx.Err() != nil {
				return
			}
			// Usually the process is out of file descriptors, and other connections may close some.
			m.log.Error("cannot accept connection", "event", "accept_failed", "error", err)
			if !clock.Wait(m.ctx, m.clock, delay) {
				return
			}
			delay = min(2*delay, acceptDelayMax)
			continue
		}
		delay = acceptDelayMin
		if !m.admit(raw) {
			_ = raw.Close()
			return
		}
		go m.welcome(raw)
	}
}

// admit registers a connection that begins its handshake; false when the Mux is closed.
func (m *Mux) admit(raw net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if len(m.pending) >= m.opts.MaxPending {
		out := crowding(m.pending)
		delete(m.pending, out)
		m.stats.Evicted++
		_ = out.Close()
	}
	m.arrivals++
	m.pending[raw] = m.arrivals
	m.wg.Add(1)
	return true
}

// welcome is the accepting side of TLS and handshake; it ends when the connection was handed over.
func (m *Mux) welcome(raw net.Conn) {
	defer m.wg.Done()
	began := m.clock.Now()
	_ = raw.SetDeadline(clock.Deadline(m.opts.HandshakeTimeout))
	c, e, err := m.shakeIn(raw)
	m.mu.Lock()
	delete(m.pending, raw)
	if err != nil {
		m.stats.Refused++
	}
	m.mu.Unlock()
	if err != nil {
		_ = raw.Close()
		m.refused(raw.RemoteAddr(), err)
		return
	}
	if e == nil {
		// A probe: it has its answer.
		_ = raw.Close()
		return
	}
	if !e.deliver(c, m.opts.HandshakeTimeout-m.clock.Now().Sub(began)) {
		_ = c.Close()
	}
}

// shakeIn reads the hello and answers it. On success the connection is tracked under the endpoint it
// names, which is nil for a probe.
func (m *Mux) shakeIn(raw net.Conn) (*Conn, *endpoint, error) {
	conn := raw
	if m.opts.TLS != nil {
		tc := tls.Server(raw, m.opts.TLS)
		if err := tc.HandshakeContext(m.ctx); err != nil {
			return nil, nil, err
		}
		conn = tc
	}
	h, err := readHello(conn)
	if err == nil {
		var c *Conn
		var e *endpoint
		if c, e, err = m.acceptHello(conn, h); err == nil {
			if _, err = conn.Write(encodeAnswer(CodeOK, m.opts.ServerID)); err == nil {
				err = conn.SetDeadline(time.Time{})
			}
			if err != nil && c != nil {
				_ = c.Close()
			}
			return c, e, err
		}
	}
	var no *refusal
	if errors.As(err, &no) {
		_, _ = conn.Write(encodeAnswer(no.code, no.text))
		// Say goodbye properly: closing with bytes unread would reset the connection, and the answer
		// could be lost before it is read.
		if t, ok := raw.(*net.TCPConn); ok && conn == raw {
			drain(t)
		}
	}
	return nil, nil, err
}

// drain ends our side and waits, within the connection's deadline and a bound, for the other to end.
func drain(t *net.TCPConn) {
	if t.CloseWrite() != nil {
		return
	}
	var buf [512]byte
	for range 8 {
		if _, err := t.Read(buf[:]); err != nil {
			return
		}
	}
}

// acceptHello decides whether a well-formed hello gets a connection.
func (m *Mux) acceptHello(conn net.Conn, h hello) (*Conn, *endpoint, error) {
	if h.cluster != m.opts.ClusterID {
		return nil, nil, refuse(CodeForeignCluster, "this node is of cluster %s, not %s", m.opts.ClusterID, h.cluster)
	}
	if h.server == "" {
		return nil, nil, refuse(CodeBadHandshake, "no server id")
	}
	if h.target != "" && h.target != m.opts.ServerID {
		return nil, nil, refuse(CodeAnotherServer, "this is server %s, not %s", m.opts.ServerID, h.target)
	}
	if h.kind == KindProbe {
		m.mu.Lock()
		m.stats.Accepted++
		m.mu.Unlock()
		return nil, nil, nil
	}
	if h.kind == KindGroup && m.opts.Removed != nil && m.opts.Removed(h.server) {
		return nil, nil, refuse(CodeRemoved, "server %s is not a member of the cluster any more", h.server)
	}
	key := endpointKey{kind: h.kind, group: h.group, service: h.service}
	m.mu.Lock()
	e := m.endpoints[key]
	full := m.accepted >= m.opts.MaxConns
	// One server id does not use up the connections of the others.
	greedy := m.servers[h.server] >= m.opts.perServer()
	if e != nil && !full && !greedy {
		m.accepted++
		m.servers[h.server]++
		m.stats.Accepted++
	}
	m.mu.Unlock()
	code := CodeUnknownGroup
	if h.kind == KindService {
		code = CodeUnknownService
	}
	switch {
	case e == nil:
		return nil, nil, refuse(code, "%s is not open on %s", key, m.opts.ServerID)
	case full:
		return nil, nil, refuse(CodeBusy, "%d connections are open", m.opts.MaxConns)
	case greedy:
		return nil, nil, refuse(CodeBusy, "%d connections of server %s are open", m.opts.perServer(), h.server)
	}
	c := &Conn{Conn: conn, owner: e, counted: true,
		peer: Peer{ServerID: h.server, Addr: h.address, Group: h.group, Kind: h.kind, Stranger: !m.member(h.server)}}
	if h.kind == KindGroup {
		c.meter = newMeter(m.members, true)
		if c.peer.Stranger {
			c.meter = newMeter(m.strangers, false)
			c.meter.admitted = func() *permits {
				if m.member(h.server) {
					return m.members
				}
				return nil
			}
		}
	}
	if err := e.track(c); err != nil {
		m.released(c)
		return nil, nil, refuse(code, "%s is closing on %s", key, m.opts.ServerID)
	}
	if c.peer.Stranger {
		if out := m.welcomeStranger(c); out != nil {
			_ = out.Close()
		}
	}
	return c, e, nil
}

// released counts an accepted connection that ended.
func (m *Mux) released(c *Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accepted--
	if m.servers[c.peer.ServerID]--; m.servers[c.peer.ServerID] == 0 {
		delete(m.servers, c.peer.ServerID)
	}
	delete(m.strangerConns.conns, c)
}

// reportEvery bounds how often refused connections are logged: strangers must not fill the log.
const reportEvery = 2 * time.Second

// refused logs a refused connection, with the number of refusals since the last report. A temporary refusal
// of a peer of this cluster (a group that is not open yet, a node that is stopping) is a debug line.
func (m *Mux) refused(from net.Addr, why error) {
	var no *refusal
	if m.ctx.Err() != nil || errors.As(why, &no) && (no.code == CodeUnknownGroup || no.code == CodeUnknownService || no.code == CodeBusy || no.code == CodeAnotherServer) {
		m.log.Debug("connection refused", "event", "connection_refused", "remote", from, "reason", why)
		return
	}
	m.mu.Lock()
	now := m.clock.Now()
	silent := now.Sub(m.reported) < reportEvery
	if silent {
		m.unreported++
	}
	passed := m.unreported
	if !silent {
		m.reported, m.unreported = now, 0
	}
	m.mu.Unlock()
	if !silent {
		m.log.Warn("connection refused", "event", "connection_refused", "remote", from, "reason", why, "others", passed)
	}
}
