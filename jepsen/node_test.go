package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure/internal/testkit"
)

// fakeCluster is a cluster of fake nodes.
func fakeCluster(t *testing.T, how string, o Options) *Cluster {
	t.Helper()
	t.Setenv(fakeNode, how)
	var err error
	if o.Binary, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// testTimeout bounds every wait of these tests; no test waits for it to pass.
const testTimeout = 2 * time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// processState is R, S, T (stopped), … as the kernel reports it.
func processState(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		testkit.Lacks(t, "the state of a process", err)
	}
	_, after, _ := strings.Cut(string(data), ") ")
	return after[:1]
}

func TestNodeLife(t *testing.T) {
	ctx := within(t, testTimeout)
	c := fakeCluster(t, "good", Options{Nodes: 3})
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	n := c.Nodes()[1]
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(ctx, "the process to be stopped", func(context.Context) error {
		if s := processState(t, n.cmd.Process.Pid); s != "T" {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(ctx); err == nil {
		t.Error("a stopped node is ready")
	}
	if err := n.Wipe(); err == nil {
		t.Error("the data of a running node was wiped")
	}
	if err := n.Kill(); err != nil { // paused as it is
		t.Fatal(err)
	}
	if n.Running() {
		t.Error("it runs after a kill")
	}
	if err := n.Pause(); err == nil {
		t.Error("a node that does not run was paused")
	}
	if err := os.MkdirAll(filepath.Join(n.DataDir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.Wipe(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.DataDir); !os.IsNotExist(err) {
		t.Errorf("after a wipe: %v", err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if s := c.UnexpectedEvents(); len(s) > 0 {
		t.Errorf("unexpected events: %q", s)
	}
	log, err := os.ReadFile(n.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(log), "fake node start --node-id n2"); got != 2 {
		t.Errorf("the log has %d starts, expected 2: %s", got, log)
	}
}

// TestDeathIsNoticed: a node that ends by itself is recorded as unexpected, and ends the wait for it.
func TestDeathIsNoticed(t *testing.T) {
	c := fakeCluster(t, "weak", Options{Nodes: 1})
	err := c.WaitReady(within(t, testTimeout))
	if err == nil || !strings.Contains(err.Error(), "oh no") {
		t.Errorf("the wait ended with %v", err)
	}
	if s := c.UnexpectedEvents(); len(s) != 1 || !strings.Contains(s[0], "n1 ended by itself") {
		t.Errorf("unexpected events: %q", s)
	}
}

func TestComplaints(t *testing.T) {
	c := fakeCluster(t, "good", Options{Nodes: 1, Args: []string{"--check-invariants"}})
	if err := c.WaitReady(within(t, testTimeout)); err != nil {
		t.Fatal(err)
	}
	if got := c.Complaints(); len(got) > 0 {
		t.Errorf("complaints about a good node: %q", got)
	}
	f, err := os.OpenFile(c.Nodes()[0].LogFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "level=ERROR msg=\"invariant S-3 is broken\"")
	f.Close()
	if got := c.Complaints(); len(got) != 1 || !strings.Contains(got[0], "S-3") {
		t.Errorf("complaints: %q", got)
	}
}

func TestFlip(t *testing.T) {
	c := &Cluster{}
	n := &Node{process: process{c: c, Name: "n1"}, DataDir: t.TempDir()}
	rng := rand.New(rand.NewPCG(1, 1))
	state := filepath.Join(n.DataDir, "state-0001")
	if _, err := n.Flip(1, rng); err == nil {
		t.Error("a state that is not there was damaged")
	}
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	before := map[string][]byte{"1.sst": make([]byte, 100), "2.sst": make([]byte, 4000), "MANIFEST": make([]byte, 9000)}
	for name, data := range before {
		if err := os.WriteFile(filepath.Join(state, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := n.Flip(1, rng)
	if err != nil {
		t.Fatal(err)
	}
	if f.File != filepath.Join("state-0001", "2.sst") || f.Offset >= 2000 {
		t.Errorf("damaged %v", f)
	}
	for name, old := range before {
		data, err := os.ReadFile(filepath.Join(state, name))
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for i := range data {
			if data[i] != old[i] {
				changed++
			}
		}
		if want := map[bool]int{true: 1}[name == "2.sst"]; changed != want || len(data) != len(old) {
			t.Errorf("%s: %d bytes differ, expected %d", name, changed, want)
		}
	}
}

// TestDisturb: a server reads its disturbances, and one without the patches refuses them.
func TestDisturb(t *testing.T) {
	c := &Cluster{dir: t.TempDir()}
	n := &Node{process: process{c: c, Name: "n1"}}
	if err := n.Disturb(func(*Disturbance) {}); !errors.Is(err, ErrNeedsPatches) {
		t.Errorf("disturbing a server of the usual build: %v", err)
	}
	c.opts.Patched = true
	for _, step := range []struct {
		change func(*Disturbance)
		want   string
	}{
		{func(d *Disturbance) { d.Clock = -time.Second }, "-1000000000 0\n"},
		{func(d *Disturbance) { d.Sync = time.Millisecond }, "-1000000000 1000000\n"},
		{func(d *Disturbance) { *d = Disturbance{} }, "0 0\n"},
	} {
		if err := n.Disturb(step.change); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(n.faultsFile()); err != nil || string(data) != step.want {
			t.Errorf("the file holds %q, %v, expected %q", data, err, step.want)
		}
	}
	if err := errors.Join(n.FillDisk(), n.FreeDisk()); !errors.Is(err, ErrNeedsDisk) {
		t.Errorf("filling a disk that is not the node's own: %v", err)
	}
}

// TestFullDisk fills a node's own disk and frees it.
func TestFullDisk(t *testing.T) {
	c := &Cluster{dir: t.TempDir()}
	n := &Node{process: process{c: c, Name: "n1"}}
	if err := n.mount(t.Context(), 8<<20); err != nil {
		testkit.Lacks(t, "a file system to mount", err)
	}
	t.Cleanup(func() {
		if err := n.unmount(); err != nil {
			t.Error(err)
		}
	})
	write := func() error {
		return errors.Join(os.MkdirAll(n.DataDir, 0o755), os.WriteFile(filepath.Join(n.DataDir, "x"), make([]byte, 100), 0o644))
	}
	if err := n.FillDisk(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err == nil {
		t.Error("a full disk takes a file")
	}
	if err := errors.Join(n.FreeDisk(), write()); err != nil {
		t.Errorf("after it was freed: %v", err)
	}
}

func TestFindFaults(t *testing.T) {
	got, err := FindFaults("cut, pause,kill-all")
	if err != nil || len(got) != 3 || got[0].Name != "cut-leader" || got[1].Name != "pause-leader" || got[2].Name != "kill-all" {
		t.Errorf("%v, %v", got, err)
	}
	if !NeedsNetns(got) || NeedsNetns(got[1:]) {
		t.Error("only the cut needs a network")
	}
	if both, err := FindFaults("bridge"); err != nil || len(both) != 2 || both[0].Target != LeaderAnd || both[1].Target != Followers {
		t.Errorf("bridge is %v, %v", both, err)
	}
	if all, err := FindFaults("all"); err != nil || len(all) != len(Faults)-1 {
		t.Errorf("all are %d of %d faults, %v", len(all), len(Faults), err)
	}
	all, err := FindFaults("all")
	if err != nil {
		t.Fatal(err)
	}
	if nodes, left := OfNodes(all); len(nodes)+len(left) != len(all) || strings.Join(left, ",") != "kill-worker,pause-worker,stop-worker" {
		t.Errorf("%d faults of nodes and %q of %d", len(nodes), left, len(all))
	}
	var o Options
	if o.Need(all); !o.Netns || !o.Patched || o.DiskBytes == 0 || len(o.Args) != len(SavedOften) {
		t.Errorf("all faults need %+v", o)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for name, want := range map[string][2]time.Duration{"kill": {time.Second, time.Second}, "late": {1600 * time.Millisecond, 2800 * time.Millisecond},
		"stop-worker": {5 * time.Second, 5 * time.Second}} {
		f, err := FindFaults(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := f[0].holds(time.Second, 4*time.Second, rng); d < want[0] || d > want[1] {
			t.Errorf("%s lasts %v, expected %v", name, d, want)
		}
	}
	if _, err := FindFaults("kill,meteor"); err == nil {
		t.Error("an unknown fault was found")
	}
	for _, f := range Faults {
		if len(f.Break) > 0 && len(f.Heal) == 0 {
			t.Errorf("%s is never healed", f.Name)
		}
	}
}
