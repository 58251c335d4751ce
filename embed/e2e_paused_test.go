package embed_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// pausedEnv makes the test's program a worker: it has the node's address, the namespace and the folder of the
// world.
const pausedEnv = "PERDURE_TEST_PAUSED_WORKER"

// pausedIn is the input of the function whose worker is paused.
type pausedIn struct {
	Folder   string
	Continue bool // with a new incarnation after the first step
}

// pausedFunction writes a line into the world for each step: its name and its worker's. The first step of the
// worker "a" ends when the world has a gate.
func pausedFunction(worker string) *durable.Function[pausedIn, string] {
	return durable.NewFunction("paused", func(ctx durable.Context, in pausedIn) (string, error) {
		step := func(name string) (string, error) {
			return durable.Run(ctx, name, func(context.Context) (string, error) {
				if err := writeWorld(in.Folder, name+" "+worker); err != nil {
					return "", err
				}
				look := time.NewTicker(time.Millisecond)
				defer look.Stop()
				for range look.C { // the step ignores its context: only the gate ends it
					if worker != "a" {
						break
					}
					if _, err := os.Stat(filepath.Join(in.Folder, "gate")); err == nil {
						break
					}
				}
				return worker, nil
			})
		}
		who, err := step("one")
		if err != nil {
			return "", err
		}
		if in.Continue {
			return "", durable.ContinueAsNew(ctx, pausedIn{Folder: in.Folder})
		}
		_, err = step("two")
		return who, err
	})
}

func writeWorld(folder, line string) error {
	f, err := os.OpenFile(filepath.Join(folder, "world"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return err
	}
	return f.Close()
}

// pausedWorker is the worker's process, if this is one.
func pausedWorker() (code int, is bool) {
	how := strings.SplitN(os.Getenv(pausedEnv), " ", 3)
	if len(how) != 3 {
		return 0, false
	}
	folder := how[2]
	c, err := client.Dial(client.Options{Addrs: []string{how[0]}, Namespace: how[1]})
	if err == nil {
		w := durable.NewWorker(c, durable.WorkerOptions{Name: "a", Lease: time.Second, OnEvent: func(e durable.Event) {
			if e.Kind == durable.EventActivationEnded {
				_ = writeWorld(folder, "ended a") // the test fails without it
			}
		}})
		w.Register(pausedFunction("a"), pausedEffects("a"))
		err = w.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1, true
}

// pausedProcess is the process of the worker "a", and the folder of its world.
type pausedProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	folder string
}

// startPaused starts the worker "a" in a process, which ends with the test.
func startPaused(w *world) *pausedProcess {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &pausedProcess{w.t, exec.Command(self), w.t.TempDir()}
	p.cmd.Env = append(os.Environ(), pausedEnv+"="+strings.Join([]string{w.addr, w.Namespace(), p.folder}, " "))
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be paused
		_ = p.cmd.Wait()
	})
	return p
}

// world returns the lines that steps have written.
func (p *pausedProcess) world() string {
	data, _ := os.ReadFile(filepath.Join(p.folder, "world"))
	return string(data)
}

// has waits until a step has written a line.
func (p *pausedProcess) has(line string) {
	p.t.Helper()
	until(p.t, line, func() error {
		if !strings.Contains(p.world(), line+"\n") {
			return fmt.Errorf("the world is %q", p.world())
		}
		return nil
	})
}

// pause stops the process in its step.
func (p *pausedProcess) pause() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
}

// resume opens the gate that the step waits for, and continues the process.
func (p *pausedProcess) resume() {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.folder, "gate"), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// TestPausedFormerWorker stops a worker's process in a step while its execution begins a new incarnation: by
// a restart, or because another worker got its task and continued as new. When the process continues, it
// effects nothing: no further step begins, and the new incarnation has its own results alone.
func TestPausedFormerWorker(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"restart", "continue"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := startPaused(w)
			f := pausedFunction("b")
			h := begin(w, f, "x", pausedIn{Folder: a.folder, Continue: by == "continue"}, durable.AllowUnknownFunction())
			a.has("one a")
			a.pause()
			if by == "restart" {
				if _, err := w.Restart(soon(t), "x", client.RestartOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			b := w.work(durable.WorkerOptions{Name: "b"}, f)
			if got := result(t, h); got != "b" {
				t.Errorf("the result is of %q", got)
			}
			journal := w.validJournal("x")
			a.resume()
			a.has("ended a")
			if got := a.world(); strings.Contains(got, "two a") || strings.Count(got, "one a") != 1 || strings.Count(got, "two b") != 1 {
				t.Errorf("the steps ran as\n%s", got)
			}
			if after := w.validJournal("x"); after["InvokeCompleted"] != journal["InvokeCompleted"] || journal["InvokeCompleted"] != 2 {
				t.Errorf("the journal had %v, has %v", journal, after)
			}
			b.noProblems()
			b.stop()
		})
	}
}

// TestPausedWorkerOfPurged stops a worker's process in a step, and has its execution purged and its id started again. When the
// process continues, the new incarnation runs at another worker, with a task of the same version and nothing in its journal but
// the start. The former worker changes nothing of it, and begins no further step.
func TestPausedWorkerOfPurged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := startPaused(w)
	begin(w, pausedFunction("b"), "x", pausedIn{Folder: a.folder}, durable.AllowUnknownFunction())
	a.has("one a")
	first := w.describe("x").GetIncarnation()
	a.pause()
	began, gate := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(began) })
	f := durable.NewFunction("paused", func(ctx durable.Context, _ pausedIn) (string, error) {
		return durable.Run(ctx, "one", func(context.Context) (string, error) {
			once()
			<-gate
			return "b", nil
		})
	})
	h := w.purgeAndBegin(f, pausedIn{Folder: a.folder})
	b := w.work(durable.WorkerOptions{Name: "b"}, f)
	<-began
	if now := w.describe("x").GetIncarnation(); now == first {
		t.Fatalf("the id has the incarnation %d again", now)
	}
	journal := fmt.Sprint(w.validJournal("x"))
	a.resume()
	a.has("ended a")
	if after := fmt.Sprint(w.validJournal("x")); after != journal {
		t.Errorf("the journal had %v, has %v", journal, after)
	}
	close(gate)
	if got := result(t, h); got != "b" {
		t.Errorf("the result is of %q", got)
	}
	if got := a.world(); strings.Contains(got, "two a") || strings.Count(got, "one a") != 1 {
		t.Errorf("the steps ran as\n%s", got)
	}
	b.noProblems()
	b.stop()
}
