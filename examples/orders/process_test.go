package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure/examples/internal/cluster"
	"perdure/internal/testkit"
)

// testTime bounds every test that has processes.
const testTime = 3 * time.Minute

// beExample, in the environment, makes the test binary the example: nothing has to be built for its processes.
const beExample = "ORDERS_TEST_BE_EXAMPLE"

// noNode is an address at which no node listens. A process with it does not wait for as long as a user may have to.
const noNode = "127.0.0.1:1"

func TestMain(m *testing.M) {
	if os.Getenv(beExample) != "" {
		if slices.Contains(os.Args, noNode) {
			cluster.AnswerTime = 2 * time.Second
		}
		main()
	}
	testkit.WaitingTests(8)
	testkit.Main(m)
}

// process is the example as a process of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout output
	stderr output
	ended  chan struct{}
}

// output is the text that a process has printed so far.
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

// start starts the example. It does not outlive the test.
func start(t *testing.T, ctx context.Context, args ...string) *process {
	t.Helper()
	return startIn(t, ctx, "", args...)
}

// startIn starts it in a folder.
func startIn(t *testing.T, ctx context.Context, dir string, args ...string) *process {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.CommandContext(ctx, path, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), beExample+"=1")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		var exited *exec.ExitError
		if err := p.cmd.Wait(); err != nil && !errors.As(err, &exited) && ctx.Err() == nil {
			t.Errorf("waiting for the process: %v", err)
		}
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill() // nothing to do if it has ended
		<-p.ended
		if t.Failed() {
			t.Logf("%v said:\n%s%s", args, p.stdout.String(), tail(p.stderr.String(), 4096))
		}
	})
	return p
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v: %v", sig, err)
	}
}

// exit waits for the end and returns the exit code; -1 for a process that was killed.
func (p *process) exit(ctx context.Context) int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.t.Fatalf("the process has not ended in time")
	}
	return p.cmd.ProcessState.ExitCode()
}

// finish waits for the end of a process that was started with --json, which must be a good one, and
// returns the summary.
func (p *process) finish(ctx context.Context) Summary {
	p.t.Helper()
	code := p.exit(ctx)
	var s Summary
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil {
		p.t.Fatalf("exit %d, and no summary: %v", code, err)
	}
	if code != exitDone || s.Check != "ok" || len(s.Differences) != 0 {
		p.t.Fatalf("exit %d, check %q:\n%s", code, s.Check, strings.Join(s.Differences, "\n"))
	}
	if s.RerunsAfter != 0 {
		p.t.Fatalf("%d steps ran again after they had been acknowledged", s.RerunsAfter)
	}
	return s
}

// waitFor calls ok until it returns true, and names what in its failure.
func waitFor(t *testing.T, ctx context.Context, what string, ok func() (yes bool, seen string)) {
	t.Helper()
	limit := testTime
	if deadline, bounded := ctx.Deadline(); bounded {
		limit = time.Until(deadline)
	}
	seen, yes := "", false
	testkit.Eventually(t, limit, what, func() bool { yes, seen = ok(); return yes }, func() string { return seen })
}

// follower reads a growing file of effects.
type follower struct {
	t    *testing.T
	path string
	at   int64
	rest string
	all  []Effect
}

func follow(t *testing.T, work string) *follower {
	return &follower{t: t, path: filepath.Join(work, effectsFile)}
}

// read returns all effects so far.
func (f *follower) read() []Effect {
	f.t.Helper()
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	more, err := io.ReadAll(io.NewSectionReader(file, f.at, 1<<40))
	if err != nil {
		f.t.Fatal(err)
	}
	f.at += int64(len(more))
	lines := strings.SplitAfter(f.rest+string(more), "\n")
	f.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if e, err := ParseEffect(strings.TrimSuffix(line, "\n")); err == nil {
			f.all = append(f.all, e)
		}
	}
	return f.all
}

// resultsOf reads the results file of a run, without what chance decides.
func resultsOf(t *testing.T, work string) map[string]Result {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(work, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Result{}
	for line := range bytes.Lines(data) {
		var r Result
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		r.Tracking = ""
		out[r.Order] = r
	}
	return out
}
