package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/client"
	"perdure/graph"
	"perdure/graph/source"
	"perdure/internal/testkit"
)

const (
	// testTime bounds every test that runs the example.
	testTime = 3 * time.Minute
	// longLease is for workers that the test does not kill: no stall of a busy machine is as long, so each
	// function runs once.
	longLease = "1m"
)

// TestGraphInGo holds the graph that is written in Go against the file that is run.
func TestGraphInGo(t *testing.T) {
	file, err := LoadGraph(false)
	if err != nil {
		t.Fatal(err)
	}
	built, err := NewShop("", "", 0, nil).BuildGraph().Build()
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(file, built) {
		t.Errorf("graph.go builds\n%s\nand graph.yaml says\n%s", source.Format(built), source.Format(file))
	}
}

func TestStrictGraph(t *testing.T) {
	usual, err := LoadGraph(false)
	if err != nil {
		t.Fatal(err)
	}
	strict, err := LoadGraph(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Validate(strict); err != nil {
		t.Error(err)
	}
	if proto.Equal(usual, strict) {
		t.Error("the strict graph is the usual one")
	}
}

// output is the text that a run has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// inProcess runs the example in this process, to its end.
func inProcess(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	o, err := parse(args, &out, &errs)
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	code = o.run(ctx, &out, &errs)
	return code, out.String(), errs.String()
}

// waitFor calls ok until it returns true; seen is the last state.
func waitFor(t *testing.T, ctx context.Context, what string, ok func() (yes bool, seen string)) {
	t.Helper()
	limit := testTime
	if deadline, bounded := ctx.Deadline(); bounded {
		limit = time.Until(deadline)
	}
	seen, yes := "", false
	testkit.Eventually(t, limit, what, func() bool { yes, seen = ok(); return yes }, func() string { return seen })
}

// works are the lines of work.log: the execution of each time that a function ran.
func works(t *testing.T, work string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(work, worksName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 3 && strings.HasSuffix(line, "\n") {
			out = append(out, fields[1]+" "+fields[2])
		}
	}
	return out
}

// golden compares a file with the one that is kept in testdata.
func golden(t *testing.T, path, kept string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kept = filepath.Join("testdata", kept)
	if *update {
		if err := os.WriteFile(kept, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not %s:\n%s", path, kept, got)
	}
}

var (
	nodeOfPicture = regexp.MustCompile(`data-node="([^"]*)" data-state="([^"]*)"`)
	howToSignal   = regexp.MustCompile(`perdure signal (\S+) approved .* --addr (\S+)`)
)

// TestRun runs the example as a user does who gives the approval: suspended, approved, at its end, and again.
func TestRun(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	work := filepath.Join(t.TempDir(), "run")
	var out, errs output
	o, err := parse([]string{"--work", work, "--latency", "10ms", "--lease", longLease, "--wait-for-signal"}, io.Discard, &errs)
	if err != nil {
		t.Fatal(err)
	}
	code := make(chan int, 1)
	go func() { code <- o.run(ctx, &out, &errs) }()

	var how []string
	waitFor(t, ctx, "the run to be suspended", func() (bool, string) {
		how = howToSignal.FindStringSubmatch(out.String())
		return how != nil, out.String() + errs.String()
	})
	comparePicture(t, filepath.Join(work, pictureName))
	if _, err := os.Stat(filepath.Join(work, outName, reportMarkdown)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a report before the approval: %v", err)
	}

	c, err := client.Dial(client.Options{Addrs: []string{how[2]}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Signal(ctx, how[1], signalApproved, []byte(`{"by": "Ann"}`)); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != exitDone || !strings.HasSuffix(out.String(), "\ncheck: ok\n") {
		t.Fatalf("exit %d:\n%s%s", got, out.String(), errs.String())
	}
	for _, says := range []string{
		`\n  legacy-import +skipped +2 +legacy.csv: line 12: `, `\n  legacy-totals +skipped +1 +nothing was imported\n`,
		`\n  approve +completed +1 +{"by": "Ann"}\n`, `\n  archive +completed +1 `, `now approve \(waits for "approved"\)`, ` 17/17  `,
	} {
		if !regexp.MustCompile(says).MatchString(out.String()) {
			t.Errorf("it does not say %q:\n%s", says, out.String())
		}
	}
	golden(t, filepath.Join(work, outName, reportMarkdown), "report.md")
	golden(t, filepath.Join(work, outName, rejectedFile), "rejected.csv")

	// 16 functions ran, one of them twice; and none when there is nothing to do.
	before := works(t, work)
	if len(before) != 17 {
		t.Errorf("functions ran %d times, expected 17: %v", len(before), before)
	}
	again, said, failed := inProcess(t, ctx, "--work", work)
	if again != exitDone || !strings.Contains(said, "there was nothing to do") || !strings.HasSuffix(said, "\ncheck: ok\n") {
		t.Errorf("again: exit %d:\n%s%s", again, said, failed)
	}
	if after := works(t, work); !slices.Equal(after, before) {
		t.Errorf("with nothing to do, functions ran: %v", after[len(before):])
	}

	// The folder is this run's.
	if got, _, said := inProcess(t, ctx, "--work", work, "--id", "other"); got != exitFailed || !strings.Contains(said, "is of the run report-2025-06") {
		t.Errorf("another run in the same folder: exit %d: %s", got, said)
	}
}

// comparePicture holds the picture in the repository against that of a run which is suspended: the same nodes
// in the same states.
func comparePicture(t *testing.T, path string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(pictureName, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(pictureName)
	if err != nil {
		t.Fatal(err)
	}
	nodes := func(svg []byte) (out []string) {
		for _, m := range nodeOfPicture.FindAllSubmatch(svg, -1) {
			out = append(out, fmt.Sprintf("%s %s", m[1], m[2]))
		}
		slices.Sort(out)
		return out
	}
	if g, k := nodes(got), nodes(kept); len(g) != 17 || !slices.Equal(g, k) {
		t.Errorf("the run's picture has %v\nand %s has %v\ngo test ./examples/graph -run TestRun -update writes it", g, pictureName, k)
	}
}

// TestStrict lets the run fail with its branch, and has it retried.
func TestStrict(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	work := filepath.Join(t.TempDir(), "run")
	code, out, errs := inProcess(t, ctx, "--work", work, "--latency", "10ms", "--lease", longLease, "--strict", "--json")
	if code != exitDone {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	for _, says := range []string{
		"failed with what it comes after legacy-totals, approve, report, archive", "5 nodes start over, 12 are kept",
		`The run has failed: node "legacy-import"`,
	} {
		if !strings.Contains(errs, says) {
			t.Errorf("it does not say %q:\n%s", says, errs)
		}
	}
	var s runSummary
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, n := range s.Nodes {
		if n.State != "completed" {
			t.Errorf("%s is %s", n.ID, n.State)
		}
		if n.Kept {
			kept++
		}
	}
	// 12 functions once; the import twice and, retried, once; the totals, the report, the archive.
	if ran := works(t, work); kept != 12 || len(ran) != 18 {
		t.Errorf("%d nodes were kept, expected 12; functions ran %d times, expected 18: %v", kept, len(ran), ran)
	}
}

// TestRepairedByTheUser has a run fail because a file that it needs is broken. The user repairs the file, and
// the same command continues the run.
func TestRepairedByTheUser(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	work := filepath.Join(t.TempDir(), "run")
	rates := filepath.Join(work, dataName, ratesFile)
	if err := writeFile(rates, []byte(`{"base": "USD"}`)); err != nil {
		t.Fatal(err)
	}
	code, out, errs := inProcess(t, ctx, "--work", work, "--latency", "0")
	if code != exitFailed || !strings.Contains(errs, `the base is "USD", expected EUR`) || !strings.Contains(out, "what it comes after has failed") {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	if err := os.Remove(rates); err != nil { // it is copied again
		t.Fatal(err)
	}
	code, out, errs = inProcess(t, ctx, "--work", work, "--latency", "0")
	if code != exitDone || !strings.Contains(out, "had failed, and is retried") || !strings.HasSuffix(out, "\ncheck: ok\n") {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"now", `"now"`},
		{"--latency -1s", "--latency -1s"},
		{"--lease 10ms", "--lease 10ms"},
		{"--fresh --addr 127.0.0.1:1", "--fresh"},
		{"--nonsense", "nonsense"},
		{"--addr x", `--addr "x": not host:port`},
	} {
		var errs output
		_, err := parse(strings.Fields(c.args), io.Discard, &errs)
		said := errs.String()
		if err == nil || !strings.Contains(said, c.says) || strings.Count(said, "\n") != 2 || !strings.HasSuffix(said, "\nsee graph --help\n") {
			t.Errorf("graph %s: %v, said %q", c.args, err, said)
		}
	}
}

// TestNoNode connects to an address without a cluster.
func TestNoNode(t *testing.T) {
	t.Parallel() // it is all waiting
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	work := filepath.Join(t.TempDir(), "run")
	p := start(t, ctx, "--addr", noNode, "--work", work)
	select {
	case <-p.ended:
	case <-ctx.Done():
		t.Fatal("the process does not end")
	}
	code, out, errs := p.cmd.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()
	if code != exitFailed || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "graph: no node answers at 127.0.0.1:1 (") {
		t.Errorf("exit %d, said %q and %q", code, out, errs)
	}
	if _, err := os.Stat(work); !os.IsNotExist(err) {
		t.Errorf("it has left a work folder: %v", err)
	}
}

// TestApproval holds the small graph that the README submits to what it says of it: it needs no worker.
func TestApproval(t *testing.T) {
	data, err := os.ReadFile("approval.yaml")
	if err != nil {
		t.Fatal(err)
	}
	g, err := source.Parse("approval.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Validate(g); err != nil {
		t.Error(err)
	}
	for _, n := range g.GetNodes() {
		if n.GetFunction() != nil {
			t.Errorf("%s is a function", n.GetId())
		}
	}
}
