package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// workerToCheck is the worker that this test checks: this very program, if replay-check has started it.
func workerToCheck() (code int, is bool) {
	if os.Getenv(durable.ReplayCheckIn) == "" {
		return 0, false
	}
	for _, arg := range os.Args {
		if arg == "silent" {
			return 3, true
		}
	}
	c, err := client.Dial(client.Options{Addrs: []string{"127.0.0.1:1"}})
	if err == nil {
		w := durable.NewWorker(c, durable.WorkerOptions{})
		w.Register(durable.NewFunction("charge", func(ctx durable.Context, _ int) (int, error) {
			return durable.Run(ctx, "pay", func(context.Context) (int, error) { panic("a check runs no step") })
		}))
		err = w.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// journalLine is a line of a file of journals: of an execution of charge that has run a step.
func journalLine(t *testing.T, id, function, step string) string {
	t.Helper()
	entry := func(seq uint64, ev *perdurev1.Event) *perdurev1.JournalEntry {
		return &perdurev1.JournalEntry{Seq: seq, Event: ev}
	}
	promise := id + ":0"
	line, err := protojson.Marshal(&perdurev1.Task{Token: &perdurev1.TaskToken{Namespace: "default", Id: id, Incarnation: 1}, Function: function, NextSeq: 4,
		Entries: []*perdurev1.JournalEntry{
			entry(0, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: []byte("1")}}}),
			entry(1, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: promise,
				Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: step}}}),
			entry(2, &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: 1}}}),
			entry(3, &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: promise, Attempt: 1,
				Result: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("2")}}}}}),
		}})
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// A worker's program is checked against a file of journals. Its function charge runs the step "pay" and
// nothing else: it fits the journal of order-42, differs from that of order-43, and the worker does not have
// the function of order-44.
func TestReplayCheck(t *testing.T) {
	self, err := os.Executable() // workerToCheck
	if err != nil {
		t.Fatal(err)
	}
	good, all := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "all")
	fits := journalLine(t, "order-42", "charge", "pay")
	for name, lines := range map[string]string{good: fits, all: fits + journalLine(t, "order-43", "charge", "reserve") + journalLine(t, "order-44", "ship", "pack")} {
		if err := os.WriteFile(name, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sh := &shell{addr: "127.0.0.1:1"}
	stdout, stderr, code := sh.run("replay-check", "--worker", self, "--file", good)
	if code != exitDone || stdout != "order-42 (charge) fits: 4 events, 1 operation\n" || stderr != "the code fits 1 journal\n" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	stdout, stderr, code = sh.run("replay-check", "--worker", self, "--file", all)
	want := `order-42 (charge) fits: 4 events, 1 operation
order-43 (charge) differs at order-43:0, event 1: step "reserve" is in the journal, the code asks for step "pay"
order-44 (ship) cannot be checked: the worker does not serve function "ship"
`
	if code != exitFailed || stdout != want || !strings.Contains(stderr, "the code does not fit 2 of 3 journals") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	stdout, _, code = sh.run("replay-check", "--worker", self, "--file", all, "--json")
	if code != exitFailed || !strings.Contains(stdout, `{"id":"order-43","function":"charge","fits":false,"events":4,"operations":0,"at":"order-43:0","event":1,`) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
}

// replay-check names what it cannot check: a program that is no worker, one that does not exist, and command lines
// that contradict themselves.
func TestReplayCheckRefuses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good")
	if err := os.WriteFile(good, []byte(journalLine(t, "order-42", "charge", "pay")), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := &shell{addr: "127.0.0.1:1"}
	if _, stderr, code := sh.run("replay-check", "--worker", "./worker --port 1", "--file", good); code != exitFailed || !strings.Contains(stderr, "goes to a --worker-arg of its own") {
		t.Errorf("a program with arguments: exit code %d\n%s", code, stderr)
	}
	if _, stderr, code := sh.run("replay-check", "--worker", self, "--worker-arg", "silent", "--file", good); code != exitFailed || !strings.Contains(stderr, "ended after 0 of 1 journal") {
		t.Errorf("a program without a worker: exit code %d\n%s", code, stderr)
	}
	for _, args := range [][]string{{}, {"--worker", self}, {"x"}, {"--worker", self, "--file", good, "x"}, {"--worker", self, "--export", good, "x"}} {
		if _, stderr, code := sh.run(append([]string{"replay-check"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d\n%s", args, code, stderr)
		}
	}
}

// The journals of a cluster are exported as a file that can be checked.
func TestReplayCheckExport(t *testing.T) {
	s := shop()
	s.journals["order-42"] = everyEvent()
	sh := &shell{addr: s.serve(t)}
	file := filepath.Join(t.TempDir(), "journals")
	if stdout, stderr, code := sh.run("replay-check", "--export", file, "order-42"); code != exitDone || !strings.Contains(stdout, "1 journal in ") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	data, err := os.ReadFile(file)
	task := &perdurev1.Task{}
	if err == nil {
		err = protojson.Unmarshal(data, task)
	}
	if err != nil || task.GetToken().GetId() != "order-42" || len(task.GetEntries()) == 0 || task.GetFunction() == "" {
		t.Errorf("%v: %v", err, task)
	}
	if _, _, code := sh.run("replay-check", "--export", file, "missing"); code != exitNotFound {
		t.Errorf("a missing execution: exit code %d", code)
	}
}
