package partition

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/partition/peers"
	"perdure/partition/transport"
)

// peerMetrics are the metrics of a node's peer port, and of what the node queues for other nodes.
type peerMetrics struct {
	peers  atomic.Pointer[peers.Peers]
	node   atomic.Pointer[Node]
	unread prometheus.Counter
	shown  []prometheus.Collector
}

func newPeerMetrics() *peerMetrics {
	m := &peerMetrics{unread: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "peer", Name: "unread_total",
		Help: "Calls of other nodes ended before their request was read."})}
	gauge := func(name, help string, of func(p *peers.Peers, port transport.Stats) float64) {
		m.shown = append(m.shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "peer", Name: name, Help: help}, m.read(of)))
	}
	gauge("connections", "Connections that other nodes have opened.", func(_ *peers.Peers, port transport.Stats) float64 { return float64(port.Open) })
	gauge("strangers", "Connections of servers that are no members.", func(_ *peers.Peers, port transport.Stats) float64 { return float64(port.Strangers) })
	gauge("handshakes", "Connections that have not said yet who they are.", func(_ *peers.Peers, port transport.Stats) float64 { return float64(port.Pending) })
	gauge("calls", "Calls of other nodes under way.", func(p *peers.Peers, _ transport.Stats) float64 { return float64(p.Stats().Calls) })
	gauge("receiving_bytes", "Bytes granted to what other nodes send: requests being received or handled, large messages of groups.",
		func(p *peers.Peers, port transport.Stats) float64 { return float64(p.Stats().Bytes + port.Receiving) })
	m.shown = append(m.shown, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "peer", Name: "evicted_total",
		Help: "Connections closed for others, in their handshake or of servers that are no members."},
		m.read(func(_ *peers.Peers, port transport.Stats) float64 { return float64(port.Evicted) })))
	for _, g := range []struct {
		name, help string
		of         func(*Node) int64
	}{
		{"task_bytes", "Bytes of other nodes' tasks that wait for workers of this node.", func(n *Node) int64 { return n.dispatch.TaskBytes() }},
		{"watches", "Calls of this node and of others that wait for a promise or a run.", func(n *Node) int64 { return n.shared.Watches.Waiting() }},
	} {
		m.shown = append(m.shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "node", Name: g.name, Help: g.help}, func() float64 {
			if n := m.node.Load(); n != nil {
				return float64(g.of(n))
			}
			return 0
		}))
	}
	return m
}

// read returns a metric of the node's peer port; 0 until there is one.
func (m *peerMetrics) read(of func(*peers.Peers, transport.Stats) float64) func() float64 {
	return func() float64 {
		if p := m.peers.Load(); p != nil {
			return of(p, p.Port())
		}
		return 0
	}
}

// follow reads the metrics from a node from now on.
func (m *peerMetrics) follow(n *Node) {
	m.peers.Store(n.peers)
	m.node.Store(n)
}

func (m *peerMetrics) collectors() []prometheus.Collector {
	return append([]prometheus.Collector{m.unread}, m.shown...)
}
