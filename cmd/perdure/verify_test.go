package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// journalOf numbers events as a journal.
func journalOf(events ...*perdurev1.Event) []*perdurev1.JournalEntry {
	out := make([]*perdurev1.JournalEntry, len(events))
	for i, e := range events {
		out[i] = &perdurev1.JournalEntry{Seq: uint64(i), TimeMs: at(time.Minute), Event: e}
	}
	return out
}

// Events of the journals below, all of the execution they are given for.
func evStarted() *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{}}}
}

func evScheduled(promise string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: "pay"}}}
}

func evAttempt(promise string, n uint32) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: n}}}
}

func evDone(promise string, n uint32) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{
		PromiseId: promise, Attempt: n, Result: valueOf([]byte("1"))}}}
}

func evWait(promise, signal string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
		WaitingOn: []string{promise}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: signal}}}
}

func evCompleted(result string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(result)}}}
}

func evFailed(f *perdurev1.Outcome) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: f.GetFailure()}}}
}

func evCancelAsked() *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_CancelRequested{CancelRequested: &perdurev1.CancelRequested{Reason: "why"}}}
}

func evCancelled() *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: "why"}}}
}

// put adds an execution with its journal; it is described as having so many entries as it has.
func (s *fakeServer) put(e *perdurev1.Execution, entries []*perdurev1.JournalEntry) *perdurev1.Execution {
	e.JournalEvents = uint64(len(entries))
	s.journals[e.Id] = entries
	return s.add(e)
}

// sound is a cluster in which everything is as it must be.
func sound() *fakeServer {
	s := newFakeServer()
	// Longer than a page.
	long := []*perdurev1.Event{evStarted()}
	for _, promise := range []string{"long:0", "long:1", "long:2", "long:3", "long:4", "long:5"} {
		long = append(long, evScheduled(promise), evAttempt(promise, 1), evDone(promise, 1))
	}
	s.put(&perdurev1.Execution{Id: "long", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}, journalOf(long...))
	s.put(&perdurev1.Execution{Id: "done", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, ClosedMs: 5, Outcome: valueOf([]byte("x"))},
		journalOf(evStarted(), evCompleted("x")))
	failure := failureOf("declined", "no")
	s.put(&perdurev1.Execution{Id: "failed", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, ClosedMs: 5, Outcome: failure},
		journalOf(evStarted(), evFailed(failure)))
	s.put(&perdurev1.Execution{Id: "cancelled", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED, ClosedMs: 5, Outcome: failureOf("cancelled", "why")},
		journalOf(evStarted(), evCancelAsked(), evCancelled()))
	s.put(&perdurev1.Execution{Id: "asking", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED, WakeSource: "signal go"},
		journalOf(evStarted(), evWait("asking:0", "go")))
	// Its deadline has passed, but no expiration is recorded yet.
	s.put(&perdurev1.Execution{Id: "overdue", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED, DeadlineMs: at(time.Second),
		Outcome: failureOf("timeout", "timed out")}, journalOf(evStarted()))
	// It advanced after it was described.
	s.put(&perdurev1.Execution{Id: "busy", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING},
		journalOf(evStarted(), evScheduled("busy:0"), evAttempt("busy:0", 1), evDone("busy:0", 1), evCompleted("x"))).JournalEvents = 2
	s.put(&perdurev1.Execution{Id: "parcel", Namespace: "acme", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}, journalOf(evStarted()))
	s.statuses = []*perdurev1.ClusterStatus{wellCluster()}
	return s
}

// broken is a cluster in which every execution has something wrong with it.
func broken() *fakeServer {
	s := newFakeServer()
	running, completed := perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING, perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	s.put(&perdurev1.Execution{Id: "twice", Status: running}, journalOf(evStarted(), evScheduled("twice:0"), evAttempt("twice:0", 1), evDone("twice:0", 1), evDone("twice:0", 1)))
	s.put(&perdurev1.Execution{Id: "never-started", Status: running}, journalOf(evStarted(), evScheduled("never-started:0"), evDone("never-started:0", 1)))
	// The end does not hide later entries, on the same page or on the next.
	after := journalOf(evStarted(), evCompleted("x"))
	for range 8 {
		after = append(after, &perdurev1.JournalEntry{Seq: uint64(len(after)), Event: evCancelAsked()})
	}
	s.put(&perdurev1.Execution{Id: "after-the-end", Status: completed, Outcome: valueOf([]byte("x"))}, after)
	gap := journalOf(evStarted(), evScheduled("gap:0"), evAttempt("gap:0", 1))
	s.put(&perdurev1.Execution{Id: "gap", Status: running}, append(gap[:1:1], gap[2]))
	s.put(&perdurev1.Execution{Id: "status", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED}, journalOf(evStarted()))
	s.put(&perdurev1.Execution{Id: "result", Status: completed, Outcome: valueOf([]byte("y"))}, journalOf(evStarted(), evCompleted("x")))
	s.put(&perdurev1.Execution{Id: "no-result", Status: completed}, journalOf(evStarted(), evCompleted("x")))
	s.put(&perdurev1.Execution{Id: "too-early", Status: running, Outcome: valueOf([]byte("x"))}, journalOf(evStarted()))
	s.put(&perdurev1.Execution{Id: "failure", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, Outcome: failureOf("a", "b")},
		journalOf(evStarted(), evFailed(failureOf("a", "c"))))
	s.put(&perdurev1.Execution{Id: "short", Status: running}, journalOf(evStarted())).JournalEvents = 3
	s.put(&perdurev1.Execution{Id: "st\x1b[2Juck", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED, WakeSource: "stuck"},
		journalOf(evStarted(), evWait("st\x1b[2Juck:0", "go")))
	s.statuses = []*perdurev1.ClusterStatus{unhealthyCluster()}
	return s
}

func TestVerify(t *testing.T) {
	t.Parallel() // it waits most of the time
	good, bad := &shell{addr: sound().serve(t)}, &shell{addr: broken().serve(t)}
	good.story(t, "verify",
		"# A cluster in which everything is as it must be.",
		"verify",
		"verify --json",
		"# Other namespaces are verified when they are named.",
		"verify --namespace acme",
		"verify --namespace acme,default --namespace acme --json",
		"--namespace acme verify",
		"verify --namespace missing",
		"# Invalid arguments.",
		"verify order-42",
		"verify --parallel 0",
		"verify --compare-within 0s",
		"verify --data ''",
		"verify --data . --addr 127.0.0.1:7400",
		"verify --data . --namespace acme",
		"--namespace acme verify --data .",
		"# No such directory, and one that is no node's.",
		"verify --data testdata/nowhere",
		"verify --data testdata/nowhere --json",
		"verify --data testdata",
	)
	bad.story(t, "verify_broken", "verify --compare-within 2s", "verify --compare-within 2s --json")
	all, _, _ := bad.run("verify", "--compare-within", "2s")
	if one, _, code := bad.run("verify", "--parallel", "1", "--compare-within", "2s"); one != all || code != exitFailed {
		t.Errorf("one at a time, exit %d:\n%s\nseveral:\n%s", code, one, all)
	}
}

func TestVerifyUnavailable(t *testing.T) {
	t.Parallel() // it waits most of the time
	sh := &shell{addr: "127.0.0.1:1"}
	if stdout, stderr, code := sh.run("verify", "--timeout", "300ms"); code != exitUnavailable || stdout != "" || !strings.Contains(stderr, "UNAVAILABLE") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

// An event of a kind that this binary does not know is not taken for a violation, nor passed over.
func TestVerifyUnknownEvent(t *testing.T) {
	s := sound()
	s.put(&perdurev1.Execution{Id: "newer"}, journalOf(evStarted(), &perdurev1.Event{}))
	sh := &shell{addr: s.serve(t)}
	if stdout, stderr, code := sh.run("verify"); code != exitFailed || stdout != "" || !strings.Contains(stderr, `"newer", entry 1`) {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

// An execution that is listed and purged before it is read is counted, not checked.
func TestVerifyGone(t *testing.T) {
	s := sound()
	s.put(&perdurev1.Execution{Id: "purged"}, nil)
	s.purged = "purged"
	sh := &shell{addr: s.serve(t)}
	stdout, stderr, code := sh.run("verify")
	if code != exitDone || !strings.Contains(stdout, "executions  7\n") || !strings.Contains(stdout, "gone        1\n") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

// People see how far a long verification is; programs do not.
func TestVerifyProgress(t *testing.T) {
	addr := sound().serve(t)
	for _, json := range []bool{false, true} {
		var stdout, stderr strings.Builder
		now := fakeNow
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, zone: time.UTC, random: zeros{},
			lookup: func(string) (string, bool) { return "", false },
			now: func() time.Time {
				now = now.Add(progressEvery)
				return now
			}}
		args := []string{"verify", "--addr", addr, "--parallel", "1"}
		if json {
			args = append(args, "--json")
		}
		if code := a.run(t.Context(), args); code != exitDone {
			t.Fatalf("exit %d: %s", code, stderr.String())
		}
		if reported := strings.Contains(stderr.String(), "verifying: 7 executions, 34 events so far\n"); reported == json {
			t.Errorf("--json %t: on stderr: %q", json, stderr.String())
		}
	}
}

// Directories that hold something else are named.
func TestVerifyForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	sh := &shell{addr: "127.0.0.1:1"}
	if err := os.WriteFile(filepath.Join(dir, "IDENTITY"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := sh.run("verify", "--data", dir); code != exitFailed || !strings.Contains(stderr, "IDENTITY") || !strings.Contains(stderr, "CORRUPT") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
