package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}

// zeros is a source of randomness that has run dry of surprises.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// shell runs command lines against one server, as a user would.
type shell struct {
	addr  string
	stdin string
	env   map[string]string
	ctx   context.Context
	// now is the clock; nil: it stands at fakeNow.
	now func() time.Time
	// hide replaces what differs from run to run; nil: nothing does.
	hide func(text string) string
}

// run runs one command line.
func (s *shell) run(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	ctx := s.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	a := &app{
		stdin:  strings.NewReader(s.stdin),
		stdout: &out,
		stderr: &errs,
		lookup: func(name string) (string, bool) {
			if name == envAddr && s.env[name] == "" {
				return s.addr, true
			}
			value, ok := s.env[name]
			return value, ok
		},
		now:    s.now,
		zone:   time.UTC,
		random: zeros{},
	}
	if a.now == nil {
		a.now = func() time.Time { return fakeNow }
	}
	code = a.run(ctx, args)
	here, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	hide := func(text string) string {
		if s.hide != nil {
			text = s.hide(text)
		}
		return strings.ReplaceAll(strings.ReplaceAll(text, s.addr, "ADDR"), here, "HERE")
	}
	return hide(out.String()), hide(errs.String()), code
}

// story runs command lines one after the other and compares their output with a golden file. A line that
// begins with '#' is copied as it is; one that begins with '<' is the next command's standard input.
func (s *shell) story(t *testing.T, name string, lines ...string) {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		if strings.HasPrefix(line, "#") {
			b.WriteString(line + "\n")
			continue
		}
		if input, ok := strings.CutPrefix(line, "<"); ok {
			s.stdin = input
			continue
		}
		stdout, stderr, code := s.run(splitLine(line)...)
		fmt.Fprintf(&b, "$ perdure %s\n", line)
		b.WriteString(stdout)
		if stdout != "" && !strings.HasSuffix(stdout, "\n") {
			b.WriteString("⏎ (no line end)\n")
		}
		for _, said := range strings.Split(strings.TrimSuffix(stderr, "\n"), "\n") {
			if said != "" {
				b.WriteString("! " + said + "\n")
			}
		}
		fmt.Fprintf(&b, "exit %d\n\n", code)
		s.stdin = ""
	}
	golden(t, name+".txt", b.String())
}

// splitLine splits a command line at spaces outside single quotes.
func splitLine(line string) []string {
	var args []string
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				args = append(args, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		args = append(args, word.String())
	}
	return args
}

// shop is a server with executions in every status.
func shop() *fakeServer {
	s := newFakeServer()
	s.add(&perdurev1.Execution{Id: "order-40", Function: "charge", Incarnation: 7, CreatedMs: at(50 * time.Hour), ClosedMs: at(49 * time.Hour),
		Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, Outcome: valueOf([]byte(`{"charged": 5, "to": "Ann & Bob <ab>"}`)),
		JournalEvents: 5, WakeSource: "finished", Task: &perdurev1.TaskInfo{State: "fulfilled", Version: 2}, Partition: 3})
	s.add(&perdurev1.Execution{Id: "order-41", Function: "charge", Incarnation: 9, CreatedMs: at(3 * time.Hour), ClosedMs: at(2*time.Hour + 59*time.Minute),
		Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, Outcome: failureOf("declined", "the card was declined"), JournalEvents: 9})
	s.add(&perdurev1.Execution{Id: "order-42", Function: "charge", Incarnation: 12, CreatedMs: at(3*time.Minute + 5*time.Second), DeadlineMs: at(-time.Hour),
		Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED, JournalEvents: 20, ParentId: "cart-7:3", ComponentDigest: "sha256:beef",
		Steps: []*perdurev1.StepHeartbeat{{PromiseId: "order-42:3", Name: "copy", Attempt: 2, Details: []byte(`{"files": 7}`), AtMs: at(4 * time.Second)},
			{PromiseId: "order-42:5", Name: "poll", Attempt: 1, AtMs: at(time.Minute)}},
		Tags:       map[string]string{"team": "billing", "customer": "ann"},
		Waiting:    &perdurev1.ExecutionAwaiting{WaitingOn: []string{"order-42:4"}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: "approved"},
		Task:       &perdurev1.TaskInfo{State: "suspended", Version: 4, RetryAtMs: at(-20 * time.Second)},
		WakeSource: "signal", LastProblem: "panic: index out of range\n\x1b[31mred", Partition: 1})
	s.add(&perdurev1.Execution{Id: "night\x1b[2Jly", Function: "report", Incarnation: 13, CreatedMs: at(40 * time.Second),
		Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING, JournalEvents: 2, WakeSource: "no worker",
		Task: &perdurev1.TaskInfo{State: "acquired", Version: 1, Worker: "w-1", LeaseUntilMs: at(-8 * time.Second)}})
	s.add(&perdurev1.Execution{Namespace: "acme", Id: "parcel-1", Function: "ship", Incarnation: 14, CreatedMs: at(time.Second),
		Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED, Outcome: failureOf("cancelled", "")})
	return s
}
