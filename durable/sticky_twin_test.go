package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
)

// stickyOps are what a random program is made of.
var stickyOps = []string{"step", "flaky", "intent", "sleep", "signal", "timeout", "child", "children", "any", "select", "joinset",
	"random", "now", "uuid", "version", "cleanup", "tell", "defer"}

// stickyProgram interprets its input and returns what the operations gave it. A program that ends with "fail"
// fails, one that ends with "hang" waits to be cancelled.
func stickyProgram() *Function[[]string, []string] {
	return NewFunction("program", func(ctx Context, ops []string) (saw []string, err error) {
		see := func(what any, e error) {
			saw = append(saw, fmt.Sprint(what))
			if err == nil {
				err = e
			}
		}
		number := func(i int) func(context.Context) (int, error) {
			return func(context.Context) (int, error) { return i, nil }
		}
		children := func(n int) []*Future[string] {
			futures := make([]*Future[string], n)
			for i := range futures {
				f, e := GoName[string](ctx, "echo", i)
				see(i, e)
				futures[i] = f
			}
			return futures
		}
		for i, op := range ops {
			if err != nil {
				return saw, err
			}
			switch op {
			case "step":
				see(Run(ctx, "step", number(i)))
			case "flaky":
				see(Run(ctx, "flaky", func(ctx context.Context) (int, error) {
					if StepInfo(ctx).Attempt < 3 {
						return 0, errors.New("not yet")
					}
					return i, nil
				}, WithRetry(RetryPolicy{MaxAttempts: 20, Initial: time.Millisecond, Max: time.Millisecond})))
			case "intent":
				see(Run(ctx, "intent", number(i), WithIntent(), WithRetry(RetryPolicy{MaxAttempts: 20, Initial: time.Millisecond})))
			case "sleep":
				see("slept", Sleep(ctx, time.Hour))
			case "signal":
				see(WaitSignal[int](ctx, "go"))
			case "timeout":
				_, e := WaitSignal[int](ctx, "never", Timeout(time.Minute))
				if !errors.Is(e, ErrTimeout) {
					see("no timeout", e)
				}
			case "child":
				see(CallName[string](ctx, "echo", i))
			case "children":
				see("all", AwaitAll(ctx, Awaitables(children(3))...))
			case "any":
				see(AwaitAny(ctx, Awaitables(children(3))...))
			case "select":
				timer, e := After(ctx, time.Hour)
				see("timer", e)
				see("select", Select(ctx, On(children(1)[0], func(s string, e error) error { see(s, e); return nil }),
					On(timer, func(_ struct{}, e error) error { see("late", e); return nil })))
			case "joinset":
				set, e := NewJoinSet[string](ctx)
				see("set", e)
				for _, f := range children(3) {
					see("submit", set.Submit(ctx, f))
				}
				for range 2 {
					f, e := set.Next(ctx)
					see(f.ID(), e)
				}
			case "random":
				see(Random(ctx))
			case "now":
				see(Now(ctx))
			case "uuid":
				see(UUID(ctx))
			case "version":
				see(Version(ctx, fmt.Sprint("change ", i), 0, 3))
			case "cleanup":
				Cleanup(ctx, func(ctx Context) error {
					_, e := Run(ctx, "undo", number(i))
					if e == nil {
						e = Sleep(ctx, time.Hour)
					}
					return e
				})
			case "tell":
				see("told", Signal(ctx, "other", "hello", i))
			case "defer":
				defer func() { saw = append(saw, "deferred") }()
			case "fail":
				return nil, &Error{Type: "broke", Message: "on purpose", NonRetryable: true}
			case "hang":
				see(WaitSignal[int](ctx, "hang"))
			}
		}
		return saw, err
	})
}

// stickyRun is how a program is run.
type stickyRun struct {
	programs [][]string
	workers  int
	sticky   int
	bytes    int
	whole    bool
	// faults are the disturbances of the commits that find a journal of that length.
	faults map[string]map[uint64]fault
}

// run runs programs to their ends, cancels those that hang, checks that a replay agrees with each journal,
// and returns the journals as text, without what differs between any two runs. continued counts the waits
// without a replay.
func (r stickyRun) run(t *testing.T) (journals map[string][]string, continued int) {
	f := newFake(t)
	defer f.grpc.Stop()
	f.spread, f.whole = r.workers > 1, r.whole
	f.children["echo"] = func(in []byte) *perdurev1.Outcome { return value(`"echo ` + string(in) + `"`) }
	for i := range 100 {
		f.signals["go"] = append(f.signals["go"], fmt.Sprint(i))
	}
	hit := map[string]bool{}
	f.onCommit = func(ex *fakeExec, c *perdurev1.Commit) fault {
		at := fmt.Sprint(ex.id, " ", ex.j.NextSeq())
		if !proto.Equal(c.GetTask(), ex.token()) || ex.state != perdurev1.TaskState_TASK_STATE_ACQUIRED || hit[at] {
			return fault{}
		}
		hit[at] = true
		return r.faults[ex.id][ex.j.NextSeq()]
	}
	events := make(chan EventKind, 100_000)
	var checker *Worker
	for range r.workers {
		w, stop := f.worker(WorkerOptions{StickyFunctions: r.sticky, StickyBytes: r.bytes, OnEvent: func(e Event) { events <- e.Kind }}, stickyProgram())
		defer stop()
		checker = w
	}
	for i, p := range r.programs {
		in, _ := json.Marshal(p)
		f.start(fmt.Sprint("p", i), "program", string(in))
	}
	for i, p := range r.programs {
		eid := fmt.Sprint("p", i)
		if p[len(p)-1] == "hang" {
			f.wait("the end of the program", func() bool {
				_, _, name, blocked := f.execs[eid].j.Wait()
				return blocked && name == "hang" || f.execs[eid].j.Status().Terminal()
			})
			f.cancel(eid, "enough")
		}
		f.finished(eid)
	}
	f.wait("the clean-ups", func() bool {
		for _, ex := range f.execs {
			if !ex.j.Status().Terminal() {
				return false
			}
		}
		return true
	})
	journals = map[string][]string{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for eid, ex := range f.execs {
		if ex.cleanupOf == nil {
			checkStickyReplay(t, checker, f.task(ex, 0))
		}
		for _, e := range ex.entries {
			journals[eid] = append(journals[eid], plainEvent(e.GetEvent()))
		}
	}
	for len(events) > 0 {
		if <-events == EventContinued {
			continued++
		}
	}
	return journals, continued
}

// checkStickyReplay checks that a replay asks for the same operations as the run and returns the same result: what the
// function saw of time, chance and order.
func checkStickyReplay(t *testing.T, w *Worker, task *perdurev1.Task) {
	line, err := protojson.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := w.CheckReplay(t.Context(), bytes.NewReader(line), &out); err != nil {
		t.Fatal(err)
	}
	var v ReplayVerdict
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if !v.Fits {
		t.Errorf("replay disagrees: %s", out.String())
	}
}

// plainEvent is an event as text, without time, chance and what follows from them.
func plainEvent(e *perdurev1.Event) string {
	e = proto.CloneOf(e)
	switch k := e.GetKind().(type) {
	case *perdurev1.Event_RandomGenerated:
		k.RandomGenerated.Value = nil
	case *perdurev1.Event_TimeRecorded:
		k.TimeRecorded.TimeMs = 0
	case *perdurev1.Event_InvokeRetrying:
		k.InvokeRetrying.RetryAtMs = 0
	case *perdurev1.Event_ExecutionCompleted:
		k.ExecutionCompleted.Result = nil
	}
	return strings.Join(strings.Fields(e.String()), " ")
}

// Functions that wait in memory write the journals of functions that are replayed after each wait, for any
// program, while the cache drops functions, workers take turns, streams break and leases end.
func TestStickyTwin(t *testing.T) {
	total := 0
	rapid.Check(t, func(rt *rapid.T) {
		var r stickyRun
		r.faults = map[string]map[uint64]fault{}
		for i := range rapid.IntRange(1, 4).Draw(rt, "programs") {
			ops := rapid.SliceOfN(rapid.SampledFrom(stickyOps), 1, 9).Draw(rt, "ops")
			r.programs = append(r.programs, append(ops, rapid.SampledFrom([]string{"end", "end", "fail", "hang"}).Draw(rt, "end")))
			faults := rapid.MapOfN(rapid.Uint64Range(1, 40), rapid.SampledFrom([]fault{{before: true}, {after: true}, {lost: true}, {after: true, lost: true}}), 0, 3).Draw(rt, "faults")
			r.faults[fmt.Sprint("p", i)] = faults
		}
		r.workers, r.sticky = 1, -1
		want, none := r.run(t)
		r.workers = rapid.IntRange(1, 2).Draw(rt, "workers")
		r.sticky = rapid.SampledFrom([]int{1, 2, 100}).Draw(rt, "sticky")
		r.bytes = rapid.SampledFrom([]int{0, 2 * stickyOverhead}).Draw(rt, "bytes")
		r.whole = rapid.Bool().Draw(rt, "whole")
		got, continued := r.run(t)
		total += continued
		if none != 0 {
			rt.Fatalf("%d functions continued in memory without a cache", none)
		}
		for eid := range want {
			if !slices.Equal(want[eid], got[eid]) {
				rt.Fatalf("%s\nreplayed\n  %s\nin memory\n  %s", eid, strings.Join(want[eid], "\n  "), strings.Join(got[eid], "\n  "))
			}
		}
		if len(got) != len(want) || t.Failed() {
			rt.Fatalf("%d executions, not %d", len(got), len(want))
		}
	})
	if total == 0 {
		t.Error("no function ever continued in memory")
	}
}
