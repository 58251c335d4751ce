package partition

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/partition/transport"
)

// peerMetrics are the figures of a node's peer port.
type peerMetrics struct {
	peers  atomic.Pointer[peers]
	tasks  atomic.Pointer[Dispatcher]
	unread prometheus.Counter
	shown  []prometheus.Collector
}

func newPeerMetrics() *peerMetrics {
	m := &peerMetrics{unread: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "peer", Name: "unread_total",
		Help: "Calls of other nodes ended before their request was read."})}
	gauge := func(name, help string, of func(p *peers, port transport.Stats) float64) {
		m.shown = append(m.shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "peer", Name: name, Help: help}, m.read(of)))
	}
	gauge("connections", "Connections that other nodes have opened.", func(_ *peers, port transport.Stats) float64 { return float64(port.Open) })
	gauge("strangers", "Connections of servers that are no members.", func(_ *peers, port transport.Stats) float64 { return float64(port.Strangers) })
	gauge("handshakes", "Connections that have not said yet who they are.", func(_ *peers, port transport.Stats) float64 { return float64(port.Pending) })
	gauge("calls", "Calls of other nodes under way.", func(p *peers, _ transport.Stats) float64 { return float64(p.stats().Calls) })
	gauge("receiving_bytes", "Bytes granted to what other nodes send: requests being received or handled, large messages of groups.",
		func(p *peers, port transport.Stats) float64 { return float64(p.stats().Bytes + port.Receiving) })
	m.shown = append(m.shown, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "peer", Name: "evicted_total",
		Help: "Connections closed for others, in their handshake or of servers that are no members."},
		m.read(func(_ *peers, port transport.Stats) float64 { return float64(port.Evicted) })))
	m.shown = append(m.shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "node", Name: "task_bytes",
		Help: "Bytes of other nodes' tasks that wait for workers of this node."}, func() float64 {
		if d := m.tasks.Load(); d != nil {
			return float64(d.taskBytes())
		}
		return 0
	}))
	return m
}

// read is a figure of the node's peer port; 0 until there is one.
func (m *peerMetrics) read(of func(*peers, transport.Stats) float64) func() float64 {
	return func() float64 {
		if p := m.peers.Load(); p != nil {
			return of(p, p.mux.Stats())
		}
		return 0
	}
}

// follow has the figures read from the node's peers and dispatcher.
func (m *peerMetrics) follow(p *peers, d *Dispatcher) {
	m.peers.Store(p)
	m.tasks.Store(d)
}

func (m *peerMetrics) collectors() []prometheus.Collector {
	return append([]prometheus.Collector{m.unread}, m.shown...)
}
