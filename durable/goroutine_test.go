package durable

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestGoroutine: the number of a goroutine stays the same while its stack grows, shrinks and changes threads, and no
// two living goroutines share one.
func TestGoroutine(t *testing.T) {
	const many = 200
	var mu sync.Mutex
	seen := map[uintptr]bool{}
	var all, done sync.WaitGroup
	all.Add(many)
	release := make(chan struct{})
	for range many {
		done.Go(func() {
			own := goroutine()
			mu.Lock()
			if own == 0 || seen[own] {
				t.Errorf("goroutine() = %#x, which is zero or a living goroutine's", own)
			}
			seen[own] = true
			mu.Unlock()
			all.Done()
			<-release
			if deep := goroutineAt(5000); deep != own {
				t.Errorf("goroutine() = %#x on a deep stack, %#x before", deep, own)
			}
			runtime.Gosched()
			if again := goroutine(); again != own {
				t.Errorf("goroutine() = %#x afterwards, %#x before", again, own)
			}
		})
	}
	all.Wait()
	runtime.GC() // stacks shrink, and move
	close(release)
	done.Wait()
}

//go:noinline
func goroutineAt(depth int) uintptr {
	if depth == 0 {
		return goroutine()
	}
	var pad [64]byte
	n := goroutineAt(depth - 1)
	runtime.KeepAlive(&pad)
	return n
}

// TestForeignGoroutineAtReplay: while recorded operations are replayed, another goroutine's operation takes none of
// them, although kind and name fit, also when the two goroutines alternate.
func TestForeignGoroutineAtReplay(t *testing.T) {
	recorded := journalOfSteps("x", "a", "b")
	for _, c := range []struct {
		name string
		body func(ctx Context, foreign func() error) (string, error)
	}{
		{"first", func(ctx Context, foreign func() error) (string, error) {
			return "", foreign()
		}},
		{"between", func(ctx Context, foreign func() error) (string, error) {
			if _, err := Run(ctx, "a", func(context.Context) (int, error) { return 0, errors.New("runs again") }); err != nil {
				return "", err
			}
			return "", foreign()
		}},
		{"last", func(ctx Context, foreign func() error) (string, error) {
			for _, step := range []string{"a", "b"} {
				if _, err := Run(ctx, step, func(context.Context) (int, error) { return 0, errors.New("runs again") }); err != nil {
					return "", err
				}
			}
			return "", foreign()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			step := "a"
			if c.name == "between" {
				step = "b"
			}
			answers := make(chan error, 1)
			f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
				return c.body(ctx, func() error {
					done := make(chan error, 1)
					go func() {
						_, err := Run(ctx, step, func(context.Context) (int, error) { return 2, nil })
						done <- err
					}()
					err := <-done
					select {
					case answers <- err:
					default:
					}
					return nil
				})
			}))
			f.restore("x", "f", recorded)
			want := `durable: Run("` + step + `") of x was called from another goroutine than the function's own`
			f.wait("the activation to end", func() bool { return len(f.releases) > 0 || f.execs["x"].j.Status().Terminal() })
			if got := f.journalOf("x"); len(got) != len(recorded) {
				t.Fatalf("the journal has %d entries, not %d", len(got), len(recorded))
			}
			if r := f.released(1); r.GetProblem() != want {
				t.Errorf("released with %q\nwant %q", r.GetProblem(), want)
			}
			var m *MisuseError
			if err := <-answers; !errors.As(err, &m) || m.Error() != want {
				t.Errorf("the other goroutine got %v", err)
			}
		})
	}
}

// journalOfSteps is the journal of an execution that has finished steps of these names, each with the result 1.
func journalOfSteps(eid string, names ...string) []*perdurev1.JournalEntry {
	events := []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{}}}}
	for n, name := range names {
		p := childID(eid, n)
		events = append(events, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: p, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name, RetryPolicy: "attempts=4"}}},
			started(p, 1), completed(p, 1, value("1")))
	}
	return entriesOf(events)
}
