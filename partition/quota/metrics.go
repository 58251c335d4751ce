package quota

import "github.com/prometheus/client_golang/prometheus"

var (
	labels      = []string{"namespace", "quota"}
	usedDesc    = prometheus.NewDesc("perdure_quota_used", "What a namespace uses of its quota in the partitions that this node leads.", labels, nil)
	allowedDesc = prometheus.NewDesc("perdure_quota_allowed", "The quota of the namespace in the whole cluster.", labels, nil)
	refusedDesc = prometheus.NewDesc("perdure_quota_refusals_total", "Commands refused because the namespace used all of its quota.", labels, nil)
)

// Describe implements prometheus.Collector.
func (q *Quota) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{usedDesc, allowedDesc, refusedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (q *Quota) Collect(out chan<- prometheus.Metric) {
	for _, s := range q.all() {
		s.mu.Lock()
		for _, row := range []struct {
			kind        string
			used, limit int64
		}{{kindOpen, int64(s.open()), int64(s.limits.Open)}, {kindBytes, s.bytes(), s.limits.Bytes}, {kindStarts, -1, int64(s.limits.Starts)}} {
			if row.limit == 0 {
				continue
			}
			if row.used >= 0 {
				out <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(row.used), s.namespace, row.kind)
			}
			out <- prometheus.MustNewConstMetric(allowedDesc, prometheus.GaugeValue, float64(row.limit), s.namespace, row.kind)
			out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(s.refused[row.kind]), s.namespace, row.kind)
		}
		s.mu.Unlock()
	}
}
