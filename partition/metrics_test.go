package partition

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state/keys"
	"perdure/partition/groupmetrics"
	"perdure/partition/grouptest"
	"perdure/partition/quota"
	"perdure/partition/stable"
	"perdure/partition/workers"
)

// shows waits until a figure is as it must be.
func shows(t testing.TB, reg prometheus.Gatherer, name, what string, is func(v float64) bool) {
	t.Helper()
	var last float64
	var there bool
	waitFor(t, name+" to be "+what, func() bool {
		last, there = scrape(t, reg)[name]
		return there && is(last)
	}, func() string { return fmt.Sprint(last, there) })
}

func equals(want float64) func(float64) bool { return func(v float64) bool { return v == want } }

const goldenMetrics = "testdata/metrics.txt"

// Operators' dashboards and alerts rely on names and types.
func TestMetricNames(t *testing.T) {
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 2)
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	startNode(t, cfg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var names []string
	for _, f := range families {
		kind := strings.ToLower(f.GetType().String())
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if len(labels) > 0 && len(f.GetMetric()) != 2 {
			t.Errorf("%s has %d samples for two partitions", f.GetName(), len(f.GetMetric()))
		}
		names = append(names, f.GetName())
		fmt.Fprintf(&b, "%s{%s} %s\n    %s\n", f.GetName(), strings.Join(labels, ","), kind, f.GetHelp())
	}
	if *update {
		if err := os.WriteFile(goldenMetrics, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(goldenMetrics)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(golden) {
		t.Errorf("the metrics are\n%s\nand not, as in %s (rewrite it with -update),\n%s", b.String(), goldenMetrics, golden)
	}

	// METRICS.md names each of them, and no other.
	doc, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	// Some gauges have no value before something has happened, and the callers' figures are package rpc's.
	descs := make(chan *prometheus.Desc, 100)
	for _, c := range groupmetrics.New(SystemClock{}, nil, nil).Collectors() {
		c.Describe(descs)
	}
	quota.New(quota.Options{}).Describe(descs)
	close(descs)
	for d := range descs {
		if name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	own, _, _ := strings.Cut(string(doc), "\n## Callers\n")
	var named []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(perdure_[a-z_]+)`").FindAllStringSubmatch(own, -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	if !slices.Equal(named, names) {
		t.Errorf("METRICS.md names\n%v, there are\n%v", named, names)
	}
}

// The page of bounds names metrics that exist, files that exist, and settings by their flags.
func TestBoundsPage(t *testing.T) {
	doc, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	before, bounds, ok := strings.Cut(string(doc), "\n## Bounds\n")
	if !ok {
		t.Fatal("METRICS.md has no section of bounds")
	}
	// The tables above it are held against the figures themselves, here and in package rpc.
	exist := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(perdure_[a-z_]+)`").FindAllStringSubmatch(before, -1) {
		exist[m[1]] = true
	}
	// Package rpc, which this one cannot ask, makes the callers' figures: its sources say their names.
	var rpc strings.Builder
	sources, err := os.ReadDir("../rpc")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sources {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") {
			text, err := os.ReadFile("../rpc/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			rpc.Write(text)
		}
	}
	_, callers, _ := strings.Cut(before, "\n## Callers\n")
	callers, _, _ = strings.Cut(callers, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `perdure_([a-z_]+)`").FindAllStringSubmatch(callers, -1) {
		if text := rpc.String(); !strings.Contains(text, `"`+m[1]+`"`) && !strings.Contains(text, `"`+strings.TrimPrefix(m[1], "grpc_")+`"`) {
			t.Errorf("package rpc makes no %s", m[1])
		}
	}
	rows := 0
	for line := range strings.Lines(bounds) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| what ") {
			continue
		}
		rows++
		if p, b := strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4]); p == "–" && b == "–" {
			t.Errorf("nothing bounds%s", cells[1])
		}
		for _, m := range regexp.MustCompile("`(perdure_[a-z_]+)`").FindAllStringSubmatch(line, -1) {
			if !exist[m[1]] {
				t.Errorf("%s names %s, which there is not", strings.TrimSpace(cells[1]), m[1])
			}
		}
		for _, m := range regexp.MustCompile("`([a-z]+/[a-z_/]+\\.go)`").FindAllStringSubmatch(cells[2], -1) {
			if _, err := os.Stat("../" + m[1]); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(cells[1]), err)
			}
		}
	}
	if rows < 30 {
		t.Errorf("the page has %d rows", rows)
	}
}

// The page of bounds says for every family of keys what bounds it, once, and names no other.
func TestBoundsPageFamilies(t *testing.T) {
	doc, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(doc), "\n| families | what |\n")
	if !ok {
		t.Fatal("METRICS.md has no table of families")
	}
	page, _, _ = strings.Cut(page, "\n\n")
	var named, want []string
	for line := range strings.Lines(page) {
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			named = append(named, m[1])
		}
	}
	for _, row := range keys.Table() {
		want = append(want, row.Name)
	}
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("METRICS.md names the families\n%q, there are\n%q", named, want)
	}
}

// A node cannot register its figures twice in one registry.
func TestMetricsRegisteredTwice(t *testing.T) {
	reg := prometheus.NewRegistry()
	register := func() error {
		_, err := newMetricSet(reg, SystemClock{}, func() int64 { return 0 }, func(uint32) uint64 { return 0 })
		return err
	}
	if err := register(); err != nil {
		t.Fatal(err)
	}
	if register() == nil {
		t.Error("and again")
	}
}

// Three nodes' figures fit together, a lost leadership and a state sent whole are counted.
func TestClusterMetrics(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 1, neverActs, func(cfg *Config) {
		cfg.Registerer = prometheus.NewRegistry()
		cfg.TrailingLogs = 16
	})
	registry := func(m *member) *prometheus.Registry { return m.cfg.Registerer.(*prometheus.Registry) }
	// sum is over the nodes, whichever leads: that may change at any time.
	sum := func(name string) (v float64) {
		for _, m := range all {
			v += scrape(t, registry(m))[name]
		}
		return v
	}
	reaches := func(name string, least float64) {
		t.Helper()
		waitFor(t, fmt.Sprintf("all %s to be at least %v", name, least), func() bool { return sum(name) >= least },
			func() string { return fmt.Sprint(sum(name)) })
	}
	propose := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := all[2].router.Propose(bg(t), createCmd(fmt.Sprintf("p%d", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	propose(0, 20)
	equalReplicas(t, all, 0)
	waitFor(t, "one leader", func() bool { return sum("leader{0}") == 1 }, func() string { return fmt.Sprint(sum("leader{0}")) })
	reaches("commands_total{0}", 20)
	reaches("commit_seconds{0}", 1)
	reaches("elections_won_total{0}", 1)
	if bytes, entries := sum("entry_bytes_total{0}"), sum("entries_total{0}"); bytes < 20*10 || bytes < 10*entries {
		t.Errorf("%v entries have %v bytes", entries, bytes)
	}
	at := all[0].router.slots[0].Load().Store().Present().Index
	for _, m := range all {
		shows(t, registry(m), "state_index{0}", fmt.Sprint(at), equals(float64(at)))
		for _, name := range []string{"applied_index{0}", "commit_index{0}", "last_index{0}"} {
			shows(t, registry(m), name, fmt.Sprint(at, " at least"), func(v float64) bool { return v >= float64(at) })
		}
		shows(t, registry(m), "replica_lag_entries{0}", "0", equals(0))
		if err := m.router.slots[0].Load().Store().Flush(); err != nil { // what is pending is written
			t.Fatal(err)
		}
		have := scrape(t, registry(m))
		// A promise is a few keys, and nothing is stuck, whatever the index is.
		if keys, bytes := have["state_writes_total{0}"], have["state_write_bytes_total{0}"]; keys < 20 || bytes < 10*keys || have["stuck_executions{0}"] != 0 {
			t.Errorf("%s: %v keys of %v bytes, %v executions stuck", m.cfg.NodeID, keys, bytes, have["stuck_executions{0}"])
		}
		if have["term{0}"] < 1 || have["perdure_log_sync_seconds"] < 1 || have["halted{0}"] != 0 {
			t.Errorf("%s: %v", m.cfg.NodeID, have)
		}
		leads := m.router.slots[0].Load().Raft().State() == raft.Leader // and so it does to the end, see neverActs
		if c := scrape(t, registry(m))["leader_contact_seconds{0}"]; c < 0 || c > waitLimit.Seconds() || c == 0 && !leads {
			t.Errorf("%s heard from the leader %v s ago", m.cfg.NodeID, c)
		}
	}

	// A follower that was away is sent the state, unless a request was on its way that has all entries it lacks: Raft makes
	// one each time it tries to reach the follower.
	gone := all[1]
	for from := 20; scrape(t, registry(gone))["snapshots_received_total{0}"] == 0; from += 100 {
		if from > 520 {
			t.Fatal("the state was never sent")
		}
		gone.stop(t)
		gone.cfg.Registerer = prometheus.NewRegistry()
		propose(from, from+100)
		equalReplicas(t, []*member{all[0], all[2]}, 0) // so that both cut their logs, whichever leads
		for _, m := range []*member{all[0], all[2]} {
			if err := m.router.slots[0].Load().Cover(); err != nil {
				t.Fatal(err)
			}
		}
		gone.start(t)
		equalReplicas(t, all, 0)
	}
	reaches("snapshots_sent_total{0}", 1)
	shows(t, registry(gone), "snapshots_received_total{0}", "1", func(v float64) bool { return v >= 1 })
	for _, m := range []*member{all[0], all[2]} {
		if have := scrape(t, registry(m))["snapshots_received_total{0}"]; have != 0 {
			t.Errorf("%s, which was there, has received %v states", m.cfg.NodeID, have)
		}
	}

	// The directory's group has its figures, too; what it does not have is not shown.
	waitFor(t, "one leader of the directory", func() bool { return sum("leader{directory}") == 1 }, func() string { return fmt.Sprint(sum("leader{directory}")) })
	reaches("elections_won_total{directory}", 1)
	reaches("term{directory}", 3)
	for _, m := range []*member{all[0], all[2]} {
		shows(t, registry(m), "applied_index{directory}", "more than 0", func(v float64) bool { return v > 0 })
		have := scrape(t, registry(m))
		for _, name := range []string{"last_index{directory}", "commit_index{directory}", "replica_lag_entries{directory}", "leader_contact_seconds{directory}"} {
			if _, there := have[name]; !there {
				t.Errorf("%s is not shown", name)
			}
		}
		for _, name := range []string{"state_index{directory}", "queue_depth{directory}", "kept_bytes{directory}", "commands_total{directory}", "halted{directory}"} {
			if v, there := have[name]; there {
				t.Errorf("%s is %v", name, v)
			}
		}
	}
	lost, term := sum("leadership_lost_total{directory}"), sum("term{directory}")
	for _, m := range all {
		if m.cluster.Leads() {
			if err := m.cluster.Raft().LeadershipTransfer().Error(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	reaches("leadership_lost_total{directory}", lost+1)
	reaches("term{directory}", term+1)

	lost, term = sum("leadership_lost_total{0}"), sum("term{0}")
	if err := leaderOf(t, all, 0).router.slots[0].Load().Raft().LeadershipTransfer().Error(); err != nil {
		t.Fatal(err)
	}
	reaches("leadership_lost_total{0}", lost+1)
	reaches("term{0}", term+1)
}

// Tasks that workers give back are counted, those with a problem apart, and queues that wait for workers.
func TestWorkMetrics(t *testing.T) {
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 1)
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	n := startNode(t, cfg)
	r := n.Router()
	must(t, r, startCmd("s1", "a", "f", ""))
	must(t, r, startCmd("s2", "b", "f", ""))
	must(t, r, startCmd("s3", "c", "g", ""))
	shows(t, reg, "waiting_queues{0}", "2", equals(2))
	w := n.Dispatcher().Attach(spec("w", 10, "f", "g"))
	first, second, third := deliver(t, w), deliver(t, w), deliver(t, w)
	shows(t, reg, "waiting_queues{0}", "0", equals(0))
	w.Detach() // so that nothing comes back to it
	must(t, r, releaseCmd(first, ""))
	must(t, r, releaseCmd(second, "it does not work"))
	if _, err := r.Propose(bg(t), releaseCmd(second, "and again")); reasonOf(err) != perdurev1.Reason_REASON_STALE_TASK {
		t.Fatalf("given back twice: %v", err)
	}
	finish(t, r, third)
	have := scrape(t, reg)
	if have["releases_total{0}"] != 2 || have["problems_total{0}"] != 1 {
		t.Errorf("%v released, %v with a problem", have["releases_total{0}"], have["problems_total{0}"])
	}
}

// A worker that is silent until its lease ends is counted, and one that keeps its task is not.
func TestLeaseExpiryMetrics(t *testing.T) {
	clock, reg := grouptest.NewHandClock(), prometheus.NewRegistry()
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 1)
	cfg.Clock, cfg.Registerer = clock, reg
	n := startNode(t, cfg)
	r := n.Router()
	must(t, r, startCmd("s1", "a", "f", ""))
	must(t, r, startCmd("s2", "b", "g", ""))
	silent, lively := n.Dispatcher().Attach(spec("silent", 1, "f")), n.Dispatcher().Attach(workers.Spec{ID: "lively", Namespace: ns, Functions: []string{"g"}, LeaseMS: 3_600_000, Capacity: 1})
	defer silent.Detach()
	defer lively.Detach()
	deliver(t, silent)
	deliver(t, lively)
	waitFor(t, "the timer to wait for the lease", func() bool { return clock.Armed(10 * time.Minute) }, func() string { return "" })
	if have := scrape(t, reg)["lease_expiries_total{0}"]; have != 0 {
		t.Errorf("%v leases have ended, none was due", have)
	}
	clock.Advance(10 * time.Minute)
	shows(t, reg, "lease_expiries_total{0}", "1", equals(1))
	if have := scrape(t, reg)["releases_total{0}"]; have != 0 {
		t.Errorf("%v releases", have)
	}
}
