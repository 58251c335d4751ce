package durable

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// Operations that need no answer travel with the next commit, unless the buffer is full.
func TestBuffer(t *testing.T) {
	f := everythingServer(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, n int) (int, error) {
		var fs []Awaitable
		for i := range n {
			if _, err := Random(ctx); err != nil {
				return 0, err
			}
			future, err := Go(ctx, echo, fmt.Sprint(i), Spread(), CallTimeout(time.Minute))
			if err != nil {
				return 0, err
			}
			fs = append(fs, future)
		}
		return n, AwaitAll(ctx, fs...)
	}))
	for n, commits := range map[int]int{10: 2, 300: 4} {
		f.mu.Lock()
		f.commits = nil
		f.mu.Unlock()
		id := fmt.Sprint("x", n)
		f.start(id, "f", fmt.Sprint(n))
		f.finished(id)
		if len(f.commits) != commits {
			t.Errorf("%d children took %d commits, want %d", n, len(f.commits), commits)
		}
		options := 0
		for _, m := range f.commits {
			for _, o := range m.GetChildren() {
				if !o.GetSpread() || o.GetTimeoutMs() != 60_000 {
					t.Errorf("options %v", o)
				}
				options++
			}
		}
		if options != n {
			t.Errorf("%d options", options)
		}
	}
}

// Operations whose results a step could act upon are recorded before it runs.
func TestBufferIsCommittedBeforeAStep(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (bool, error) {
		r, err := Random(ctx)
		if err != nil {
			return false, err
		}
		return Run(ctx, "s", func(context.Context) (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			last := f.execs["x"].entries[len(f.execs["x"].entries)-1].GetEvent().GetRandomGenerated()
			return last != nil && fmt.Sprintf("%016x", r) == fmt.Sprintf("%x", last.GetValue()), nil
		})
	}))
	f.start("x", "f", "")
	if o := f.finished("x"); string(o.GetValue()) != "true" {
		t.Error(o)
	}
}

// A refusal that repeating cannot help is a problem; after one that stays unknown the task is released too.
func TestCommitRefused(t *testing.T) {
	for _, reason := range []perdurev1.Reason{perdurev1.Reason_REASON_BAD_REQUEST, perdurev1.Reason_REASON_RULE_BROKEN, perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE} {
		f := newFake(t)
		refuse := true
		f.onCommit = func(*fakeExec, *perdurev1.Commit) fault {
			if refuse {
				refuse = false
				return fault{reason: reason}
			}
			return fault{}
		}
		var n counter
		f.worker(WorkerOptions{}, flaky(&n, 0))
		f.start("x", "flaky", "")
		if r := f.released(1); !strings.HasPrefix(r.GetProblem(), "durable: a commit of x was refused: fault") {
			t.Errorf("released with %q", r.GetProblem())
		}
		f.wake("x")
		f.finished("x")
	}
	f := newFake(t)
	clock := newFakeClock()
	asked := 0
	f.onCommit = func(*fakeExec, *perdurev1.Commit) fault {
		if asked++; asked <= maxUnknown {
			return fault{reason: perdurev1.Reason_REASON_OUTCOME_UNKNOWN}
		}
		return fault{}
	}
	var n counter
	f.worker(WorkerOptions{Clock: clock, Lease: time.Hour}, flaky(&n, 0))
	f.start("x", "flaky", "")
	pause := askBackoffMin
	for range maxUnknown - 1 {
		clock.pass(t, pause)
		pause = min(2*pause, askBackoffMax)
	}
	if r := f.released(1); !strings.Contains(r.GetProblem(), "OUTCOME_UNKNOWN") {
		t.Errorf("released with %q", r.GetProblem())
	}
}
