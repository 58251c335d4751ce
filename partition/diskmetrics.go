package partition

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/partition/disk"
)

// diskMetrics are the metrics of the disk that holds a node's data.
type diskMetrics struct {
	guard    atomic.Pointer[disk.Guard]
	refusals prometheus.Counter
	gauges   []prometheus.Collector
}

func newDiskMetrics() *diskMetrics {
	m := &diskMetrics{refusals: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "disk", Name: "refusals_total",
		Help: "Commands refused because too little disk space was free."})}
	for _, g := range []struct {
		name, help string
		of         func(disk.Status) float64
	}{
		{"free_bytes", "Free space of the file system that holds the data; the reserve counts as used. 0 if unknown.",
			func(st disk.Status) float64 { return float64(st.Free) }},
		{"total_bytes", "Size of that file system; 0 if unknown.", func(st disk.Status) float64 { return float64(st.Total) }},
		{"low_mark_bytes", "Free space below which commands that grow the state are refused.", func(st disk.Status) float64 { return float64(st.Low) }},
		{"level", "0 enough space, 1 low, 2 critical, 3 full.", func(st disk.Status) float64 { return float64(st.Level) }},
		{"reserve_held", "1 while the reserve file is there.", func(st disk.Status) float64 {
			if st.Held {
				return 1
			}
			return 0
		}},
		{"waiting_writes", "Writes that wait for space.", func(st disk.Status) float64 { return float64(st.Waiting) }},
	} {
		m.gauges = append(m.gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "disk", Name: g.name, Help: g.help},
			func() float64 {
				if guard := m.guard.Load(); guard != nil {
					return g.of(guard.Status())
				}
				return 0
			}))
	}
	m.gauges = append(m.gauges, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "disk", Name: "syncs_total",
		Help: "Calls that synced a file of the log or of a state to the disk."}, func() float64 {
		if guard := m.guard.Load(); guard != nil {
			return float64(guard.Syncs())
		}
		return 0
	}))
	return m
}

// follow reads the metrics from a guard from now on.
func (m *diskMetrics) follow(g *disk.Guard) { m.guard.Store(g) }

func (m *diskMetrics) collectors() []prometheus.Collector {
	return append([]prometheus.Collector{m.refusals}, m.gauges...)
}
