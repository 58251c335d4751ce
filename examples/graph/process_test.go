package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"perdure/client"
	"perdure/examples/internal/cluster"
	"perdure/internal/testkit"
)

// process is the example as a process of its own.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{}
}

// beExample, in the environment, makes the test binary the example: nothing has to be built for its processes.
const beExample = "GRAPH_TEST_BE_EXAMPLE"

// noNode is an address at which no node listens. A process with it does not wait for as long as a user may have to.
const noNode = "127.0.0.1:1"

func TestMain(m *testing.M) {
	if os.Getenv(beExample) != "" {
		if slices.Contains(os.Args, noNode) {
			cluster.AnswerTime = 2 * time.Second
		}
		main()
	}
	testkit.WaitingTests(4)
	testkit.Main(m)
}

func start(t *testing.T, ctx context.Context, args ...string) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(ctx, binary, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), beExample+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill() // nothing to do if it has ended
		<-p.ended
		if t.Failed() {
			t.Logf("process %d said:\n%s%s", p.cmd.Process.Pid, p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

var (
	// countOfLine is how many nodes have ended by a line of the progress.
	countOfLine = regexp.MustCompile(`(?m) s +([0-9]+)/17 `)
	// addrOfLine is where the process's node listens.
	addrOfLine = regexp.MustCompile(`cluster at (\S+),`)
)

// completedNodes are the nodes of the run that have completed, as the cluster at addr says.
func completedNodes(t *testing.T, ctx context.Context, addr string) (nodes []string) {
	t.Helper()
	c, err := client.Dial(client.Options{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.GraphStatus(ctx, "report-"+TheMonth.Period)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s.GetNodes() {
		if n.GetStatus() == completed {
			nodes = append(nodes, n.GetId())
		}
	}
	return nodes
}

// TestKilled kills the process with everything in it (the functions, the worker, the node) at three points of
// the run, and starts it again. Completed nodes do not run again; the report is the same.
func TestKilled(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	work := filepath.Join(t.TempDir(), "run")
	args := []string{"--work", work, "--latency", "150ms", "--lease", "1s", "--json"}

	// The killed processes do not approve, so none of them can end before the kill.
	done := map[string]int{} // nodes that were seen to have completed, and how much had run when they were
	for number, target := range []int{3, 7, 11} {
		p := start(t, ctx, append(args, "--wait-for-signal")...)
		waitFor(t, ctx, fmt.Sprintf("%d nodes to have ended in process %d", target, number+1), func() (bool, string) {
			select {
			case <-p.ended:
				t.Fatalf("process %d ended by itself:\n%s", number+1, p.stderr.String())
			default:
			}
			said := p.stderr.String()
			ended := 0
			for _, m := range countOfLine.FindAllStringSubmatch(said, -1) {
				ended, _ = strconv.Atoi(m[1]) // digits
			}
			return ended >= target, said
		})
		completed := completedNodes(t, ctx, addrOfLine.FindStringSubmatch(p.stderr.String())[1])
		if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		if code := p.cmd.ProcessState.ExitCode(); code != -1 {
			t.Fatalf("process %d ended with exit code %d before it could be killed", number+1, code)
		}
		for _, node := range completed {
			if _, known := done[node]; !known {
				done[node] = len(works(t, work))
			}
		}
	}
	p := start(t, ctx, args...)
	select {
	case <-p.ended:
	case <-ctx.Done():
		t.Fatal("the last process does not end")
	}
	var s runSummary
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil {
		t.Fatalf("no summary: %v", err)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != exitDone || s.Check != "ok" || s.Status != "completed" {
		t.Fatalf("exit %d: %+v", code, s)
	}
	if !strings.Contains(p.stderr.String(), "continues: ") {
		t.Error("the last process does not say that it continues")
	}
	if len(done) < 6 {
		t.Errorf("before the last process only %d nodes were seen to have completed", len(done))
	}
	ran := works(t, work)
	for _, n := range s.Nodes {
		if at, before := done[n.ID]; before && n.Attempt != "" {
			for _, line := range ran[at:] {
				if strings.HasSuffix(line, " "+n.Attempt) {
					t.Errorf("%s had completed and ran again: %s", n.ID, line)
				}
			}
		}
	}
	golden := func(name string) {
		got, err := os.ReadFile(filepath.Join(work, outName, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []byte(strings.ReplaceAll(string(want), "by Ann.", "by the example."))) {
			t.Errorf("%s differs from that of an undisturbed run:\n%s", name, got)
		}
	}
	golden(reportMarkdown)
	golden(rejectedFile)
}
