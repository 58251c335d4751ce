package role

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"perdure/bench/baseline"
	"perdure/bench/load"
	"perdure/bench/workload"
	"perdure/internal/freeport"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	if Asked(os.Args) {
		os.Exit(Main(os.Args[2:]))
	}
	flag.Parse()
	testkit.Exit(m.Run(), goleak.IgnoreTopFunction("perdure/bench/cluster.spawning"))
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRefusals: what a process cannot do comes back as its error, and the process ends.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		role, want string
		job        any
	}{
		{"none", `there is no role "none"`, struct{}{}},
		{clientRole, `no workload is called "none"`, workload.Job{Workload: "none", Addrs: []string{"127.0.0.1:1"}}},
		{raftRole, "cannot unmarshal", "no configuration"},
	} {
		p, err := start(self(t), t.TempDir(), c.role, c.job)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Result(t.Context(), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.role, err, c.want)
		}
		if err := p.Wait(time.Minute); err == nil {
			t.Errorf("%s ended well", c.role)
		}
		if err := p.Close(); err != nil {
			t.Errorf("%s: %v", c.role, err)
		}
	}
}

// TestResultForm: a result arrives at the caller as it was made.
func TestResultForm(t *testing.T) {
	h := load.NewHistogram()
	load.Record(h, 3*time.Millisecond)
	data, err := encodeResult(&workload.Result{Result: &load.Result{Begun: 7, Counted: 5, Latency: h}, Units: 2, Extra: map[string]float64{"x": 1.5}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeResult(data)
	if err != nil || r.Begun != 7 || r.Counted != 5 || r.Units != 2 || r.Extra["x"] != 1.5 || !r.Latency.Equals(h) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRaft: a bare Raft server runs its load when it is told to, marks the window, and ends with its caller.
func TestRaft(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: an election takes 2 to 4 s")
	}
	p, err := StartRaft(self(t), t.TempDir(), baseline.Config{Addrs: []string{freeport.Bench.Addr(t)}, Dir: t.TempDir(), Commands: 1, CommandBytes: 10,
		Load: load.Options{Concurrency: 2, Count: 20}})
	if err != nil {
		t.Fatal(err)
	}
	if leads, err := p.Leads(t.Context()); err != nil || !leads {
		t.Fatalf("the only server leads: %v, %v", leads, err)
	}
	if err := p.Go(); err != nil {
		t.Fatal(err)
	}
	var marks []workload.Mark
	r, err := p.Result(t.Context(), func(m workload.Mark) error { marks = append(marks, m); return nil })
	if err != nil || r.Begun != 20 || len(marks) != 2 || marks[0] != workload.Begin || marks[1] != workload.End {
		t.Errorf("%+v, marks %v, %v", r, marks, err)
	}
	if err := p.Close(); err != nil || p.Running() {
		t.Errorf("it was closed: %v, runs: %v", err, p.Running())
	}
}
