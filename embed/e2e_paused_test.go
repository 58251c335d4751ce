package embed_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestPausedFormerWorker stops a worker's process in a step while its execution begins a new incarnation: by
// a restart, or because another worker got its task and continued as new. When the process continues, it
// effects nothing: no further step begins, and the new incarnation has its own results alone.
func TestPausedFormerWorker(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"restart", "continue"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w, folder := newWorld(t), t.TempDir()
			world := func() string {
				data, _ := os.ReadFile(filepath.Join(folder, "world"))
				return string(data)
			}
			has := func(line string) {
				t.Helper()
				until(t, line, func() error {
					if !strings.Contains(world(), line+"\n") {
						return fmt.Errorf("the world is %q", world())
					}
					return nil
				})
			}
			a := exec.Command(self)
			a.Env = append(os.Environ(), pausedEnv+"="+strings.Join([]string{w.addr, w.Namespace(), folder}, " "))
			if err := a.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = a.Process.Kill() // it may be paused
				_ = a.Wait()
			})
			f := pausedFunction("b")
			h := begin(w, f, "x", pausedIn{Folder: folder, Continue: by == "continue"}, durable.AllowUnknownFunction())
			has("one a")
			if err := a.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
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
			if err := os.WriteFile(filepath.Join(folder, "gate"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := a.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			has("ended a")
			if got := world(); strings.Contains(got, "two a") || strings.Count(got, "one a") != 1 || strings.Count(got, "two b") != 1 {
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
