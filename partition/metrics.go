package partition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/partition/groupmetrics"
)

// metricSet holds the metrics of a node and of its groups. METRICS.md explains all of them.
type metricSet struct {
	groups  *groupmetrics.Set
	disk    *diskMetrics
	peers   *peerMetrics
	logSync prometheus.Histogram
}

// newMetricSet makes the metrics of a node and registers them, if reg is not nil. pending is how many bytes of
// commands the node holds, quarantined how many of a partition's former replicas.
func newMetricSet(reg prometheus.Registerer, c Clock, pending func() int64, quarantined func(partition uint32) uint64) (*metricSet, error) {
	s := &metricSet{disk: newDiskMetrics(), peers: newPeerMetrics()}
	s.groups = groupmetrics.New(c, s.disk.refusals, quarantined)
	s.logSync = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "perdure", Name: "log_sync_seconds",
		Help:    "Time to write entries to the log that all partitions of the node share, and to sync them.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
	})
	node := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "node", Name: "pending_bytes",
		Help: "Bytes of commands that this node holds: waiting, in flight, or being forwarded."},
		func() float64 { return float64(pending()) })
	if reg == nil {
		return s, nil
	}
	for _, set := range [][]prometheus.Collector{s.groups.Collectors(), s.disk.collectors(), s.peers.collectors(), {s.logSync, node}} {
		for _, c := range set {
			if err := reg.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// synced is raftlog.Options.OnSync.
func (s *metricSet) synced(d time.Duration) { s.logSync.Observe(d.Seconds()) }
