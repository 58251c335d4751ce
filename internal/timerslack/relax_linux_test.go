package timerslack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary a program that relaxes its timers.
const childEnv = "TIMERSLACK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(childEnv) == "removed" {
		program, _ := os.Executable()
		_ = os.Remove(program)
	}
	if err := Relax(Server); err != nil {
		have, _ := current()
		fmt.Println("error, slack", have)
		return
	}
	slack, err := os.ReadFile("/proc/" + strconv.Itoa(second()) + "/timerslack_ns")
	fmt.Println(os.Getpid(), os.Args[1:], strings.TrimSpace(string(slack)), os.Getenv(again), err)
}

// second is the second thread of this process: the runtime's own.
func second() (least int) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, entry := range threads {
		if n, err := strconv.Atoi(entry.Name()); err == nil && n != os.Getpid() && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// child runs a program that relaxes its timers, with the given slack before, and returns its process's id and what it printed.
func child(t *testing.T, before time.Duration, env ...string) (pid int, out string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return run(t, self, before, env...)
}

func run(t *testing.T, program string, before time.Duration, env ...string) (pid int, out string) {
	t.Helper()
	cmd := exec.Command(program, "an argument", "another")
	cmd.Env = append(append(os.Environ(), childEnv+"=1"), env...)
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine; a child inherits its slack
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before.Nanoseconds()), 0, 0, 0); err != nil {
			done <- err
			return
		}
		done <- cmd.Run()
	}()
	if err := <-done; err != nil {
		t.Fatalf("%v: %s", err, printed.String())
	}
	return cmd.Process.Pid, strings.TrimSpace(printed.String())
}

// TestRelax: the thread of the runtime has the slack; process, arguments and environment are the same.
func TestRelax(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, want time.Duration
		env          []string
	}{
		{"default", kernelDefault, Server, nil},
		{"chosen", time.Millisecond, time.Millisecond, nil},
		{"executed-again", kernelDefault, kernelDefault, []string{again + "=1"}}, // once is enough
	} {
		t.Run(c.name, func(t *testing.T) {
			pid, out := child(t, c.before, c.env...)
			if want := strconv.Itoa(pid) + " [an argument another] " + strconv.FormatInt(c.want.Nanoseconds(), 10) + "  <nil>"; out != want {
				t.Errorf("%q, not %q", out, want)
			}
		})
	}
}

// TestRelaxRemoved: a program whose file is gone goes on as it was.
func TestRelaxRemoved(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, b, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, out := run(t, program, kernelDefault, childEnv+"=removed"); out != "error, slack 50µs" {
		t.Errorf("%q", out)
	}
}
