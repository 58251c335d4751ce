package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure/internal/testkit"
)

// longLease is for workers that the test does not kill: no stall of a busy machine is as long.
const longLease = "1m"

// size is how many orders the tests with processes take.
func size() int {
	return testkit.Choose(30, 60, 120)
}

// undisturbed is a run without kills, to compare the others with. It is made once.
var undisturbed struct {
	sync.Once
	results map[string]Result
	summary Summary
	effects int
	said    string // on stderr
}

func undisturbedRun(t *testing.T, ctx context.Context) {
	t.Helper()
	undisturbed.Do(func() {
		work := filepath.Join(t.TempDir(), "run")
		p := start(t, ctx, "--work", work, "--only", strconv.Itoa(size()), "--lease", longLease, "--json")
		undisturbed.summary = p.finish(ctx)
		undisturbed.effects = len(follow(t, work).read())
		undisturbed.said = p.stderr.String()
		undisturbed.results = resultsOf(t, work)
	})
	if undisturbed.results == nil {
		t.Fatal("the undisturbed run has failed before")
	}
}

func TestUndisturbed(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	undisturbedRun(t, ctx)

	book, err := LoadBook("", size())
	if err != nil {
		t.Fatal(err)
	}
	s := undisturbed.summary
	if s.Orders != size() || s.AlreadyDone != 0 || s.Emails != size() || s.Repeats != 0 || s.Torn != 0 {
		t.Errorf("summary: %+v", s)
	}
	// The progress and the summary count the same.
	if s.Retries == 0 || s.Steps+s.Retries != undisturbed.effects {
		t.Errorf("%d steps and %d retries in %d effects", s.Steps, s.Retries, undisturbed.effects)
	}
	if said := fmt.Sprintf("; %d steps\n", s.Steps); !strings.HasSuffix(undisturbed.said, said) {
		t.Errorf("the progress does not end with %q:\n%s", said, tail(undisturbed.said, 200))
	}
	if len(s.Failed) != len(Reasons) {
		t.Errorf("failed: %v; every reason should occur", s.Failed)
	}
	for _, o := range book.Orders {
		want := Expect(o, book.Stock)
		got := undisturbed.results[o.ID()]
		if got.Status != want.Status || got.Reason != want.Reason || got.Charged != want.Charged || got.Refunded != want.Refunded {
			t.Errorf("%s: %+v, expected %+v", o.ID(), got, want)
		}
	}
}

// TestKilled kills the process with everything in it (the functions, the warehouse, the node) at random
// points and starts it again. Set ORDERS_SEED to repeat a run's points.
func TestKilled(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	undisturbedRun(t, ctx)

	kills, concurrency := testkit.Choose(3, 4, 10), 16
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ORDERS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ORDERS_SEED: %v", err)
		}
	}
	fmt.Printf("TestKilled: ORDERS_SEED=%d\n", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	work := filepath.Join(t.TempDir(), "run")
	args := []string{"--work", work, "--only", strconv.Itoa(size()), "--concurrency", strconv.Itoa(concurrency), "--lease", "1s", "--json"}
	effects := follow(t, work)
	killed := 0
	for number := 1; number <= kills; number++ {
		p := start(t, ctx, args...)
		// So few that no process finishes the orders, unless this one is paused for as long as that takes.
		target := len(effects.read()) + 1 + rng.IntN(undisturbed.effects/(kills+1))
		waitFor(t, ctx, fmt.Sprintf("%d effects in process %d", target, number), func() (bool, string) {
			select {
			case <-p.ended:
				return true, ""
			default:
			}
			n := len(effects.read())
			return n >= target, fmt.Sprintf("%d effects", n)
		})
		_ = p.cmd.Process.Kill() // it fails if the process has ended, which its exit code says
		code := p.exit(ctx)
		if code == exitDone {
			t.Logf("process %d finished the orders before it could be killed", number)
			break
		}
		if code != -1 {
			t.Fatalf("process %d ended by itself with exit code %d", number, code)
		}
		killed++
	}
	if killed == 0 {
		t.Fatal("no process was killed")
	}
	s := start(t, ctx, args...).finish(ctx)
	// On a busy machine a worker may also be silent for longer than its lease: each execution that it loses so may
	// repeat the step that was running.
	said, err := os.ReadFile(filepath.Join(work, logName))
	if err != nil {
		t.Fatal(err)
	}
	lost := strings.Count(string(said), "execution lost")
	t.Logf("%d kills, %d executions lost to running workers, %d steps, %d repeats, %d torn lines, %d orders done before the last process",
		killed, lost, s.Steps, s.Repeats, s.Torn, s.AlreadyDone)

	if s.Repeats > killed*concurrency+lost {
		t.Errorf("%d steps were repeated after %d kills with at most %d steps running, and %d executions that were lost",
			s.Repeats, killed, concurrency, lost)
	}
	if got, want := resultsOf(t, work), undisturbed.results; !maps.Equal(got, want) {
		for id, w := range want {
			if got[id] != w {
				t.Errorf("%s: %+v, undisturbed %+v", id, got[id], w)
			}
		}
	}
	u := undisturbed.summary
	if !maps.Equal(s.Revenue, u.Revenue) || !maps.Equal(s.Refunded, u.Refunded) || s.Emails != u.Emails || s.Shipped != u.Shipped {
		t.Errorf("totals: %+v, undisturbed %+v", s, u)
	}
}

// TestInterrupted stops the process in order, continues, and starts it again when all is done.
func TestInterrupted(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	work := filepath.Join(t.TempDir(), "run")
	// The order that is never picked keeps the first run going until it is interrupted.
	args := []string{"--work", work, "--only", "30", "--latency", "20ms", "--pick-timeout", "6s", "--lease", longLease}

	p := start(t, ctx, args...)
	effects := follow(t, work)
	waitFor(t, ctx, "50 effects", func() (bool, string) {
		n := len(effects.read())
		return n >= 50, fmt.Sprintf("%d effects", n)
	})
	p.signal(syscall.SIGINT)
	if code := p.exit(ctx); code != exitFailed {
		t.Errorf("exit code %d of an interrupted run", code)
	}
	if said := p.stderr.String(); !strings.Contains(said, fmt.Sprintf("orders: process %d, ", p.cmd.Process.Pid)) {
		t.Errorf("the run does not say which process it is:\n%s", said)
	}
	if said := p.stderr.String(); !strings.Contains(said, "of 30 orders finished; run the same command again to continue") {
		t.Errorf("the interrupted run does not say how to continue:\n%s", said)
	}

	// An orderly stop loses no step: nothing is repeated.
	if s := start(t, ctx, append(args, "--json")...).finish(ctx); s.Orders != 30 || s.Repeats != 0 {
		t.Errorf("after an interruption: %+v", s)
	}
	before := len(effects.read())

	again := start(t, ctx, args...)
	if code := again.exit(ctx); code != exitDone {
		t.Errorf("exit code %d of a run with nothing to do", code)
	}
	said := again.stdout.String()
	if !strings.HasPrefix(said, "All 30 orders had ended in an earlier run") || !strings.HasSuffix(said, "\ncheck: ok\n") {
		t.Errorf("a run with nothing to do says:\n%s", said)
	}
	if n := len(effects.read()); n != before {
		t.Errorf("a run with nothing to do did %d steps", n-before)
	}

	if s := start(t, ctx, "--work", work, "--only", "5", "--fresh", "--json").finish(ctx); s.Orders != 5 || s.AlreadyDone != 0 {
		t.Errorf("a fresh run: %+v", s)
	}
}

// TestUsage runs the binary with command lines that cannot be.
func TestUsage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	for _, c := range []struct{ args, says string }{
		{"--only -1", "--only -1"},
		{"--concurrency 0", "--concurrency 0"},
		{"--lease 10ms", "--lease 10ms"},
		{"--worker", "--addr"},
		{"--worker --driver --addr 127.0.0.1:1", "--worker and --driver"},
		{"--driver --fresh --addr 127.0.0.1:1", "--fresh"},
		{"--latency 30s", "--latency 30s"},
		{"--addr x", `--addr "x": not host:port`},
		{"--addr 127.0.0.1:1,", `--addr "": not host:port`},
		{"--nonsense", "nonsense"},
		{"now", `"now"`},
	} {
		p := start(t, ctx, strings.Fields(c.args)...)
		if code := p.exit(ctx); code != exitUsage || !strings.Contains(p.stderr.String(), c.says) {
			t.Errorf("orders %s: exit %d, said %q", c.args, code, p.stderr.String())
		}
		if said := p.stderr.String(); strings.Count(said, "\n") != 2 || !strings.HasSuffix(said, "\nsee orders --help\n") {
			t.Errorf("orders %s: not one line and where the help is: %q", c.args, said)
		}
	}
	p := start(t, ctx, "--orders", filepath.Join(t.TempDir(), "none.json"), "--work", t.TempDir())
	if code := p.exit(ctx); code != exitFailed || !strings.Contains(p.stderr.String(), "none.json") {
		t.Errorf("an orders file that is not there: exit %d, said %q", code, p.stderr.String())
	}
}
