package addresses

import (
	"github.com/prometheus/client_golang/prometheus"

	commandv1 "perdure/api/command/v1"
)

// metrics count what the dispatcher of a node does. partition/METRICS.md explains them.
type metrics struct {
	executes, unblocks, dropped, refused prometheus.Counter
	gauges                               []prometheus.Collector
}

func newMetrics(d *Dispatcher) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "node", Name: name, Help: help})
	}
	m := &metrics{
		executes: counter("executes_delivered_total", "Executes that this node has written to clients' streams or that HTTP targets have accepted."),
		unblocks: counter("unblocks_delivered_total", "Unblocks that this node has written to clients' streams or that HTTP targets have accepted."),
		dropped:  counter("messages_dropped_total", "Executes and unblocks that a full queue, an ended stream or an HTTP target did not take."),
		refused:  counter("streams_refused_total", "Streams refused because the node had as many as it may."),
	}
	gauge := func(name, help string, of func() int) {
		m.gauges = append(m.gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "node", Name: name, Help: help}, func() float64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return float64(of())
		}))
	}
	gauge("streams", "Streams of clients at this node.", func() int { return d.open })
	gauge("stream_bytes", "Bytes of messages that wait for clients' streams of this node and of others.", func() int { return int(d.bytes) })
	gauge("unblocks_in_flight", "Unblocks that this node has chosen for delivery and that their partitions have not forgotten.", func() (n int) {
		for _, l := range d.led {
			n += len(l.flying)
		}
		return n
	})
	return m
}

// ended counts a message that was delivered or dropped.
func (m *metrics) ended(of *commandv1.AddressMessage, ok bool) {
	switch {
	case !ok:
		m.dropped.Inc()
	case of.GetExecute() != nil:
		m.executes.Inc()
	default:
		m.unblocks.Inc()
	}
}

// Collectors are the metrics of the dispatcher.
func (d *Dispatcher) Collectors() []prometheus.Collector {
	return append([]prometheus.Collector{d.metrics.executes, d.metrics.unblocks, d.metrics.dropped, d.metrics.refused}, d.metrics.gauges...)
}
