package partition

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are one partition's figures.
type metrics struct {
	Leader        prometheus.Gauge
	Halted        prometheus.Gauge
	Elections     prometheus.Counter
	Commands      prometheus.Counter
	Entries       prometheus.Counter
	Sheds         prometheus.Counter
	QueueDepth    prometheus.Gauge
	Ticks         prometheus.Counter
	Shipped       prometheus.Counter
	CommitSeconds prometheus.Observer
}

// metricSet makes the figures of all partitions of a node.
type metricSet struct {
	leader, halted, queue                               *prometheus.GaugeVec
	elections, commands, entries, sheds, ticks, shipped *prometheus.CounterVec
	commit                                              *prometheus.HistogramVec
}

func newMetricSet(reg prometheus.Registerer) (*metricSet, error) {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "partition", Name: name, Help: help}, []string{"partition"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "partition", Name: name, Help: help}, []string{"partition"})
	}
	s := &metricSet{
		leader:    gauge("leader", "1 while this node leads the partition and serves it."),
		halted:    gauge("halted", "1 when the partition has stopped because its state cannot be trusted."),
		queue:     gauge("queue_depth", "Commands that wait for the log."),
		elections: counter("elections_won_total", "Times this node became the partition's leader."),
		commands:  counter("commands_total", "Commands applied for callers of this node."),
		entries:   counter("entries_total", "Log entries that carried them."),
		sheds:     counter("sheds_total", "Commands refused because too many were waiting."),
		ticks:     counter("ticks_total", "Ticks proposed because a deadline had passed."),
		shipped:   counter("messages_shipped_total", "Messages delivered to other partitions."),
		commit: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "perdure", Subsystem: "partition", Name: "commit_seconds",
			Help:    "Time from handing an entry to the log until it was applied.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}, []string{"partition"}),
	}
	if reg == nil {
		return s, nil
	}
	for _, c := range []prometheus.Collector{s.leader, s.halted, s.queue, s.elections, s.commands, s.entries, s.sheds, s.ticks, s.shipped, s.commit} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *metricSet) of(partition uint32) metrics {
	p := strconv.FormatUint(uint64(partition), 10)
	return metrics{
		Leader: s.leader.WithLabelValues(p), Halted: s.halted.WithLabelValues(p), QueueDepth: s.queue.WithLabelValues(p),
		Elections: s.elections.WithLabelValues(p), Commands: s.commands.WithLabelValues(p),
		Entries: s.entries.WithLabelValues(p), Sheds: s.sheds.WithLabelValues(p),
		Ticks: s.ticks.WithLabelValues(p), Shipped: s.shipped.WithLabelValues(p),
		CommitSeconds: s.commit.WithLabelValues(p),
	}
}
