package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestParseMetrics: samples are summed up by name over labels, and the directory is no partition.
func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader(`# HELP a_total text
a_total{partition="1",kind="x y"} 2
a_total{partition="2"} 3.5
a_total{partition="directory"} 100
b 1e3

`))
	if err != nil || len(got) != 2 || got["a_total"] != 5.5 || got["b"] != 1000 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseMetrics(strings.NewReader("a x\n")); err == nil {
		t.Error("a sample that is no number was read")
	}
}

// TestUsage: figures add up and subtract by name, and a process's own are those of /proc.
func TestUsage(t *testing.T) {
	one := Usage{CPU: time.Second, Written: 10, RSS: 100, Metrics: map[string]float64{"a": 1}}
	two := one.Add(Usage{CPU: time.Second, Written: 5, RSS: 50, Metrics: map[string]float64{"a": 2, "b": 3}})
	if d := two.Sub(Usage{CPU: time.Second, Written: 10, Metrics: map[string]float64{"a": 1}}); d.CPU != time.Second || d.Written != 5 || d.Metrics["a"] != 2 || d.Metrics["b"] != 3 {
		t.Errorf("%+v", d)
	}
	before, err := usageOf(os.Getpid())
	if os.IsNotExist(err) {
		t.Skipf("figures of processes come from /proc: %v", err)
	}
	if err != nil || before.RSS < 1<<20 {
		t.Fatalf("%+v, %v", before, err)
	}
	machine, err := ReadMachine()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; { // burn a few ticks
		used, err := usageOf(os.Getpid())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the process used %v, %v", used.CPU-before.CPU, err)
		}
		if used.CPU >= before.CPU+3*tick {
			break
		}
	}
	now, err := ReadMachine()
	if err != nil || now.Busy <= machine.Busy {
		t.Errorf("the machine was busy for %v, %v", now.Busy-machine.Busy, err)
	}
	if o := now.Others(machine, now.Busy-machine.Busy); o != 0 {
		t.Errorf("others used %g %% of what is ours", o)
	}
	if o := (Machine{At: now.At.Add(2 * time.Second), Busy: now.Busy + 3*time.Second}).Others(now, 2*time.Second); o != 50 {
		t.Errorf("others used %g %%, not 50", o)
	}
}

// TestProcess: a process's end and its log are known, and one that runs on is killed.
func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	spawn := func(how string) *Process {
		t.Helper()
		cmd := exec.Command(self, "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), child+"="+how)
		p, err := Spawn(cmd, log)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := spawn("ends")
	if err := p.Wait(time.Minute); err == nil || p.Running() || p.LastLog() != "its last words" {
		t.Errorf("it ended with %v, runs: %v, its log: %s", err, p.Running(), p.LastLog())
	}
	p = spawn("hangs")
	if err := p.Wait(time.Millisecond); err == nil || !p.Running() {
		t.Errorf("a process that hangs has ended: %v", err)
	}
	if err := p.Kill(); err != nil || p.Running() {
		t.Errorf("it was killed: %v, runs: %v", err, p.Running())
	}
}

// child is the variable that makes TestChild a process that ends badly or not at all.
const child = "PERDURE_BENCH_CHILD"

// TestChild is the process that TestProcess starts.
func TestChild(*testing.T) {
	switch os.Getenv(child) {
	case "ends":
		fmt.Fprintln(os.Stderr, "its last words")
		os.Exit(3)
	case "hangs":
		<-time.After(time.Hour) // until TestProcess kills it
	}
}
