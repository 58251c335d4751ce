package schedule

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("perdure_backup_"+name, help, nil, nil)
}

var (
	lastDesc    = desc("last_success_timestamp_seconds", "When the cut of the newest backup was entered, in Unix time; on the node that makes backups.")
	ageDesc     = desc("age_seconds", "Time since then.")
	sizeDesc    = desc("last_size_bytes", "Bytes of the newest backup's states; backups share files.")
	runningDesc = desc("running", "1 while a backup is being made; on the node that makes backups.")
	madeDesc    = desc("made_total", "Backups that this node has made by its schedule.")
	failedDesc  = desc("failures_total", "Attempts of this node's schedule that failed.")
	storedDesc  = desc("stored_bytes_total", "Bytes that this node's schedule has written to the store.")
)

// Describe implements prometheus.Collector.
func (s *Schedule) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lastDesc, ageDesc, sizeDesc, runningDesc, madeDesc, failedDesc, storedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector. What only the node that makes backups knows, it shows alone.
func (s *Schedule) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := func(d *prometheus.Desc, n float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n)
	}
	count(madeDesc, float64(s.made))
	count(failedDesc, float64(s.failed))
	count(storedDesc, float64(s.stored))
	if !s.status.Leads {
		return
	}
	gauge := func(d *prometheus.Desc, n float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n)
	}
	running := 0.0
	if s.status.Running {
		running = 1
	}
	gauge(runningDesc, running)
	if s.status.LastName != "" {
		gauge(lastDesc, float64(s.status.LastMs)/1000)
		gauge(ageDesc, float64(s.o.Clock.Now().UnixMilli()-s.status.LastMs)/1000)
		gauge(sizeDesc, float64(s.status.LastBytes))
	}
}
