package suite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"perdure/bench/cluster"
	"perdure/bench/role"
	"perdure/bench/sdk"
	"perdure/bench/suite"
	"perdure/bench/workload"
	"perdure/internal/resonatesdk"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	if role.Asked(os.Args) {
		os.Exit(role.Main(os.Args[2:]))
	}
	testkit.ShareBuilds()
	testkit.WaitingTests(3) // for restarts, and for the time that sleepers sleep
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	testkit.Exit(code, goleak.IgnoreTopFunction("perdure/bench/cluster.spawning"))
}

var builtDir string

// node builds the server once, in a folder that TestMain removes.
var node = sync.OnceValues(func() (string, error) {
	var err error
	if builtDir, err = os.MkdirTemp("", "perdure-bench-test-"); err != nil {
		return "", err
	}
	path := filepath.Join(builtDir, "node")
	return path, cluster.Build(context.Background(), "../..", cluster.NodeCommand, path)
})

// options are those of tiny runs, with the test's own binary as worker and client.
func options(t *testing.T) suite.Options {
	t.Helper()
	node, err := node()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return suite.Options{Node: node, Load: self, Count: 10, Sleepers: 10, Rounds: 1, Parent: t.TempDir()}
}

// TestEachWorkload: each workload does ten operations on one node, finds its own results, and has figures of
// everything.
func TestEachWorkload(t *testing.T) {
	t.Parallel()
	o := options(t)
	var cells []suite.Cell
	for _, w := range workload.All() {
		if !w.Killed && !w.Large && !w.SDK { // a kill needs a window; TestSDK has the SDK
			cells = append(cells, suite.Cell{Workload: w, Nodes: 1, Concurrency: 4, Payload: 64})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	figures, err := suite.Run(ctx, o, cells)
	if err != nil {
		t.Fatal(err)
	}
	var keys, bytes float64 // what a short window writes may be stored behind it
	var silent []string
	for i, f := range figures {
		keys, bytes = keys+f.StateKeys, bytes+f.StateBytes
		if f.Workload != cells[i].Workload.Name || f.Begun != 10 || f.Counted != 10 {
			t.Errorf("%s: %d operations began and %d counted, not 10", f.Workload, f.Begun, f.Counted)
		}
		if f.PerSecond <= 0 || f.Latency.P50 <= 0 || f.Latency.Max < f.Latency.P50 || f.ServerRSS <= 0 || f.Allocations <= 0 {
			t.Errorf("%s: %+v", f.Workload, f)
		}
		// The fsync of a single entry may be counted before or after a short window.
		noFsyncs := f.Fsyncs <= 0 && f.Entries*float64(f.Counted) > 1
		if reads := f.Unit == "reads"; !reads && (f.Commands <= 0 || f.Entries <= 0 || f.LogBytes <= 0 || f.Syncs <= 0 || noFsyncs) {
			silent = append(silent, f.Workload)
			t.Logf("%s wrote nothing: %+v", f.Workload, f)
		}
	}
	// On a busy machine the reading at the beginning of ten operations may come behind them.
	if len(silent) > len(figures)/3 {
		t.Errorf("%q wrote nothing", silent)
	}
	if keys <= 0 || bytes < keys {
		t.Errorf("%g keys with %g bytes are stored", keys, bytes)
	}
	if len(figures) != len(cells) {
		t.Errorf("%d cells have figures, not %d", len(figures), len(cells))
	}
}

// TestSDK: each call of Resonate's SDK has its result, takes no more requests than the protocol needs, and counts the CPU of
// the SDK's processes.
func TestSDK(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.SDK = t.TempDir()
	switch err := sdk.Install(t.Context(), o.SDK); {
	case errors.Is(err, resonatesdk.ErrUnavailable):
		testkit.Lacks(t, "Resonate's SDK", err)
	case err != nil:
		t.Fatal(err)
	}
	// task.create, promise.register_listener and task.fulfill; two task.fence for each step. With rpc promise.create and
	// promise.register_listener; the rest is the worker's.
	requests := map[string]float64{"resonate-run": 3, "resonate-steps": 9, "resonate-rpc": 2}
	var cells []suite.Cell
	for _, w := range workload.All() {
		if w.SDK {
			cells = append(cells, suite.Cell{Workload: w, Nodes: 1, Concurrency: 4, Payload: 64})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	figures, err := suite.Run(ctx, o, cells)
	if err != nil || len(figures) != len(requests) {
		t.Fatalf("%d cells have figures, not %d: %v", len(figures), len(requests), err)
	}
	for _, f := range figures {
		if f.Counted != 10 || f.ClientCPU <= 0 || f.Commands <= 0 || f.Extra[workload.SDKRequests] != requests[f.Workload] {
			t.Errorf("%+v", f)
		}
	}
}

// TestStored: nodes that store different numbers of executions are measured in turns, each after a restart.
func TestStored(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Rounds = 2
	o.Count = 200 // CPU time is counted in hundredths of a second
	w, err := workload.Find("steps")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	figures, err := suite.Stored(ctx, o, suite.Cell{Workload: w[0], Nodes: 1, Concurrency: 4, Payload: 64}, []int64{20, 3000})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	files := map[string]float64{}
	for _, f := range figures {
		order = append(order, f.Binary)
		files[f.Binary] = f.Extra["files, MB"]
		for _, name := range []string{"restart to serving, ms", "memory of the idle server, MB", "server CPU per command, us"} {
			if f.Extra[name] <= 0 {
				t.Errorf("%s: %s is %v", f.Binary, name, f.Extra[name])
			}
		}
	}
	if want := []string{"20 stored", "3000 stored", "3000 stored", "20 stored"}; !slices.Equal(order, want) {
		t.Errorf("measured in the order %q, not %q", order, want)
	}
	if files["3000 stored"] < files["20 stored"]+0.5 { // an execution takes about 300 bytes
		t.Errorf("files in MB: %v", files)
	}
}

// TestStoredSleepers: sleepers that were stored before their node started wake after a restart of it.
func TestStoredSleepers(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Filled, o.Restart, o.Sleepers, o.Lead = true, true, 50, 15*time.Second
	w, err := workload.Find("sleepers")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	figures, err := suite.Run(ctx, o, []suite.Cell{{Workload: w[0], Nodes: 1, Concurrency: 4, Payload: 64}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if f.Counted != o.Sleepers || f.Extra["restart to serving, ms"] <= 0 || f.Extra["files per sleeper, bytes"] <= 0 {
			t.Errorf("%+v", f)
		}
	}
}
