package suite

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perdure/bench/cluster"
	"perdure/bench/workload"
)

// Figures are what one measurement of a cell has shown. "Per unit" means per execution, or whatever the
// workload counts.
type Figures struct {
	Workload    string `json:"workload"`
	Letter      string `json:"letter"`
	Title       string `json:"title"`
	Unit        string `json:"unit"`
	Nodes       int    `json:"nodes"`
	Concurrency int    `json:"concurrency"`
	Payload     int    `json:"payload"`
	// Rate is the rate at which operations began; 0 for a closed loop.
	Rate  float64 `json:"rate,omitempty"`
	Round int     `json:"round"`
	// Binary tells two servers apart that were compared.
	Binary string `json:"binary,omitempty"`

	Seconds float64 `json:"seconds"`
	Begun   int64   `json:"begun"`
	Counted int64   `json:"counted"`
	// PerSecond is units per second inside the window.
	PerSecond float64 `json:"per_second"`
	// Latency is of operations, in milliseconds.
	Latency   Latency                 `json:"latency_ms"`
	latencies *hdrhistogram.Histogram // of which Latency is; nil for what was read from a file

	// CPU time per unit, in milliseconds.
	ServerCPU float64 `json:"server_cpu_ms"`
	WorkerCPU float64 `json:"worker_cpu_ms"`
	ClientCPU float64 `json:"client_cpu_ms"`
	// Commands and the fields below count what all nodes together did per unit. Syncs are synced appends to the log,
	// Fsyncs the calls of the file system for them.
	Commands       float64 `json:"commands"`
	Entries        float64 `json:"entries"`
	Syncs          float64 `json:"syncs"`
	Fsyncs         float64 `json:"fsyncs"`
	LogBytes       float64 `json:"log_bytes"`
	StateKeys      float64 `json:"state_keys"`
	StateBytes     float64 `json:"state_bytes"`
	DiskBytes      float64 `json:"disk_bytes"`
	Allocations    float64 `json:"allocations"`
	AllocatedBytes float64 `json:"allocated_bytes"`
	// ServerRSS is the memory of all nodes at the end, in bytes.
	ServerRSS float64 `json:"server_rss"`
	// Others is the share of the machine that other processes and the kernel used, in percent of one core.
	Others float64 `json:"others_percent"`

	// OutageMs is the longest time without a completion after a leader was killed.
	OutageMs float64            `json:"outage_ms,omitempty"`
	Extra    map[string]float64 `json:"extra,omitempty"`
	Timeline []int64            `json:"timeline,omitempty"`
}

// Latency is a distribution in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	// Curve is the latency at each of Percentiles.
	Curve []float64 `json:"curve"`
}

// Percentiles are the points of a latency's curve.
var Percentiles = []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100}

// The counters of a node that figures come from.
const (
	commandsMetric   = "perdure_partition_commands_total"
	entriesMetric    = "perdure_partition_entries_total"
	syncsMetric      = "perdure_log_sync_seconds_count"
	fsyncsMetric     = "perdure_disk_syncs_total"
	logBytesMetric   = "perdure_partition_entry_bytes_total"
	stateKeysMetric  = "perdure_partition_state_writes_total"
	stateBytesMetric = "perdure_partition_state_write_bytes_total"
	mallocsMetric    = "go_memstats_mallocs_total"
	allocatedMetric  = "go_memstats_alloc_bytes_total"
	heapMetric       = "go_memstats_heap_inuse_bytes"
	purgedMetric     = "perdure_partition_purged_total"
)

// latencyOf reads a histogram of microseconds.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	point := func(p float64) float64 { return float64(h.ValueAtPercentile(p)) / 1000 }
	l := Latency{P50: point(50), P90: point(90), P99: point(99), P999: point(99.9), Max: point(100)}
	for _, p := range Percentiles {
		l.Curve = append(l.Curve, point(p))
	}
	return l
}

// figures computes what a job has shown from the readings at its marks.
func figures(cell Cell, job workload.Job, r *workload.Result, at map[workload.Mark]reading) Figures {
	begin, end := at[workload.Begin], at[workload.End]
	servers := end.servers.Sub(begin.servers)
	worker, client := end.worker.Sub(begin.worker), end.client.Sub(begin.client)
	units := float64(r.Counted) * float64(r.Units)
	per := func(v float64) float64 {
		if units == 0 {
			return 0
		}
		return v / units
	}
	ms := func(u cluster.Usage) float64 { return per(float64(u.CPU) / float64(time.Millisecond)) }
	metric := func(name string) float64 { return per(servers.Metrics[name]) }
	w := cell.Workload
	f := Figures{
		Workload: w.Name, Letter: w.Letter, Title: w.Title, Unit: w.Unit, Nodes: cell.Nodes, Concurrency: cell.Concurrency, Payload: cell.Payload,
		Rate: job.Load.Rate, Seconds: r.Window.Seconds(), Begun: r.Begun, Counted: r.Counted,
		PerSecond: r.Rate() * float64(r.Units),
		ServerCPU: ms(servers), WorkerCPU: ms(worker), ClientCPU: ms(client),
		Commands: metric(commandsMetric), Entries: metric(entriesMetric), Syncs: metric(syncsMetric), Fsyncs: metric(fsyncsMetric),
		LogBytes: metric(logBytesMetric), StateKeys: metric(stateKeysMetric), StateBytes: metric(stateBytesMetric),
		DiskBytes: per(float64(servers.Written)), Allocations: metric(mallocsMetric), AllocatedBytes: metric(allocatedMetric),
		ServerRSS: float64(end.servers.RSS), Extra: r.Extra,
	}
	f.Others = end.machine.Others(begin.machine, servers.CPU+worker.CPU+client.CPU)
	f.Latency, f.latencies = latencyOf(r.Latency), r.Latency
	if w.Killed {
		f.Timeline = r.Timeline
	}
	if asleep, ok := at[workload.Asleep]; ok {
		n := float64(job.Load.Count)
		if empty, ok := at[workload.Empty]; ok {
			f.extra("server memory per sleeper, bytes", float64(asleep.servers.RSS-empty.servers.RSS)/n)
			f.extra("written to disk per sleeper, bytes", float64(asleep.servers.Written-empty.servers.Written)/n)
		}
		f.extra("server memory while all sleep, MB", float64(asleep.servers.RSS)/1e6)
		if d := begin.machine.At.Sub(asleep.machine.At); d > 0 {
			f.extra("server CPU asleep, percent of a core", 100*float64(begin.servers.CPU-asleep.servers.CPU)/float64(d))
		}
	}
	return f
}

func (f *Figures) extra(name string, v float64) {
	if f.Extra == nil {
		f.Extra = map[string]float64{}
	}
	f.Extra[name] = v
}
