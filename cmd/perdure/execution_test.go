package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// deadline bounds every wait of a test; nothing waits for it to pass.
const deadline = time.Minute

func TestStart(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "start",
		"# The id is printed, so that a script can keep it.",
		`start charge --id order-50 --input '{"amount": 5}'`,
		"# The same start again finds it; another one under this id does not.",
		`start charge --id order-50 --input '{"amount": 5}'`,
		`start charge --id order-50 --input '{"amount": 6}'`,
		`start charge --id order-50 --input '{"amount": 6}' --json`,
		"# Without an id one is drawn.",
		"start charge",
		"start echo --id e1 --json",
		"# A function without a worker is probably a typing error.",
		"start unknown-one --id u1",
		"start unknown-one --id u1 --allow-unknown-function",
		"# Waiting prints the result alone.",
		`start echo --id e2 --input '{"deep": [1, 2]}' --wait`,
		`start echo --id e3 --input '{"deep": [1, 2]}' --wait --json`,
		`start echo --id e4 --input 'plain text' --raw --wait --json`,
		"<[1,2,3]",
		"start echo --id e5 --input - --wait",
		"start echo --id e6 --input @testdata/in.json --wait",
		"# A wait with a bound ends with exit 5; the execution continues.",
		"start charge --id w1 --wait --wait-timeout 0s",
		"start charge --id w1 --wait-timeout 1ms --json",
		"start echo --id e7 --wait-timeout 1m",
		"# Invalid arguments are refused before anything is sent.",
		"start",
		"start charge again",
		"start charge --input plain",
		"start charge --input @testdata/none.json",
		"start charge --tag billing",
		"start charge --tag a=1 --tag a=2",
		"start charge --id order-42:1",
		"start charge --id ''",
		"start charge --timeout -1s",
		"start charge --timeout soon",
		"start charge --wait-timeout -1s",
		"start charge --reuse often",
	)
}

// The request carries the values of start's flags.
func TestStartSends(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t), env: map[string]string{envNamespace: "from-env"}}
	if _, stderr, code := sh.run("--timeout", "5s", "start", "charge", "--id", "x", "--timeout", "90s", "--tag", "team=billing", "--tag", "a=b=c",
		"--digest", "d1", "--namespace", "acme", "--input", `{"a": 1}`); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	r := s.last["StartRequest"].(*perdurev1.StartRequest)
	if r.Namespace != "acme" || r.Function != "charge" || r.TimeoutMs != 90_000 || r.Tags["team"] != "billing" || r.Tags["a"] != "b=c" ||
		r.ComponentDigest != "d1" || string(r.Input) != `{"a": 1}` || r.AllowUnknownFunction || len(r.GetRequest().GetId()) != 16 {
		t.Errorf("sent %v", r)
	}
	if _, stderr, code := sh.run("start", "charge", "--id", "y"); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if r := s.last["StartRequest"].(*perdurev1.StartRequest); r.Namespace != "from-env" || r.TimeoutMs != 0 || r.Input != nil {
		t.Errorf("sent %v, want the environment's namespace, no time-out and no input", r)
	}
	sh.env = nil
	sh.run("start", "charge", "--id", "z")
	if r := s.last["StartRequest"].(*perdurev1.StartRequest); r.Namespace != "default" {
		t.Errorf("sent namespace %q, want default", r.Namespace)
	}
}

func TestPayloadBound(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t), stdin: `"` + strings.Repeat("x", id.MaxPayloadBytes-2) + `"`}
	if _, stderr, code := sh.run("start", "charge", "--id", "largest", "--input", "-"); code != exitDone {
		t.Errorf("a payload of just the limit: exit %d: %s", code, stderr)
	}
	sh.stdin += " "
	if _, stderr, code := sh.run("start", "charge", "--id", "larger", "--input", "-"); code != exitUsage || !strings.Contains(stderr, "4194304 bytes") {
		t.Errorf("one byte more: exit %d: %s", code, stderr)
	}
	if s.executions["larger"] != nil {
		t.Error("the larger one was sent")
	}
}

func TestResult(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "result",
		"# A result is printed byte for byte.",
		"result order-40",
		"result order-40 --json",
		"# An execution that failed is exit 1, with its failure on stderr.",
		"result order-41",
		"result order-41 --json",
		"result parcel-1 --namespace acme",
		"# One that has not finished is exit 5: ask again.",
		"result order-42 --wait 0s",
		"result order-42 --wait 20ms",
		"result order-42 --wait 20ms --json",
		"# One that does not exist is exit 3.",
		"result order-43",
		"result order-40 --namespace acme",
		"result order-43 --json",
		"result order-42 --wait -1s",
		"result",
	)
}

func TestResultWaitsForTheEnd(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t)}
	printed := make(chan string, 1)
	go func() {
		stdout, stderr, code := sh.run("result", "order-42")
		if code != exitDone {
			stdout = stderr
		}
		printed <- stdout
	}()
	select {
	case <-s.asked:
	case <-time.After(deadline):
		t.Fatal("no call asks for the result")
	}
	s.finish("order-42", []byte("at last"))
	select {
	case got := <-printed:
		if got != "at last" {
			t.Errorf("printed %q", got)
		}
	case <-time.After(deadline):
		t.Fatal("the result is not printed")
	}
}

func TestInterruptedWait(t *testing.T) {
	s := shop()
	ctx, cancel := context.WithCancel(context.Background())
	sh := &shell{addr: s.serve(t), ctx: ctx}
	ended := make(chan string, 1)
	go func() {
		_, stderr, code := sh.run("result", "order-42")
		if code != exitFailed {
			stderr = "wrong exit code: " + stderr
		}
		ended <- stderr
	}()
	select {
	case <-s.asked:
	case <-time.After(deadline):
		t.Fatal("no call asks for the result")
	}
	cancel()
	select {
	case got := <-ended:
		if got != "perdure: interrupted\n  reason: INTERRUPTED\n" {
			t.Errorf("stderr: %q", got)
		}
	case <-time.After(deadline):
		t.Fatal("an interrupt does not end the wait")
	}
}

func TestLineEndForTerminals(t *testing.T) {
	for _, c := range []struct{ payload, terminal, pipe string }{
		{"x", "x\n", "x"}, {"x\n", "x\n", "x\n"}, {"", "", ""},
	} {
		for _, terminal := range []bool{true, false} {
			var out bytes.Buffer
			a := testApp(&out)
			a.terminal = terminal
			if err := a.printRaw([]byte(c.payload)); err != nil {
				t.Fatal(err)
			}
			a.out.Flush()
			want := c.pipe
			if terminal {
				want = c.terminal
			}
			if out.String() != want {
				t.Errorf("payload %q, terminal %v: printed %q", c.payload, terminal, out.String())
			}
		}
	}
}

func TestDescribe(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "describe",
		"describe order-40",
		"describe order-41",
		"describe order-42",
		"describe 'night\x1b[2Jly'",
		"describe parcel-1 --namespace acme",
		"describe order-40 --json",
		"describe order-41 --json",
		"describe order-42 --json",
		"describe missing",
		"describe",
	)
}

func TestList(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "list",
		"list",
		"list --json",
		"list --problem",
		"list --status failed,blocked",
		"list --status completed --status running --json",
		"list --function charge --prefix order-4 --limit 2",
		"list --limit 3 --json",
		"list --limit 0",
		"list --prefix nothing",
		"list --prefix nothing --json",
		"list --status sleeping",
		"list --limit -1",
		"list --limit many",
		"list everything",
	)
}

func TestSignalCancelTerminate(t *testing.T) {
	s := shop()
	for id, cleanup := range map[string]perdurev1.ExecutionStatus{
		"trip-1": perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, "trip-2": perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
	} {
		s.add(&perdurev1.Execution{Namespace: "default", Id: id, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING,
			Cleanup: &perdurev1.Cleanup{Id: id + ":4294967295"}})
		s.add(&perdurev1.Execution{Namespace: "default", Id: id + ":4294967295", Status: cleanup, Outcome: failureOf("bank", "no refund today")})
	}
	s.executions["trip-1:4294967295"].Outcome = valueOf(nil)
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "steer",
		`signal order-42 approved --payload '{"by": "ann"}'`,
		"signal order-42 stop",
		"signal order-42 stop --json",
		`signal cart-7 add --payload '"book"' --start cart --input '{}'`,
		`signal cart-7 add --payload '"pen"' --start cart --json`,
		"signal cart-8 add",
		"signal cart-8 add --input 1",
		"signal order-40 approved",
		"signal order-42",
		"signal order-42 approved --payload yes",
		"cancel order-42 --reason 'customer withdrew'",
		"cancel order-42 --json",
		"cancel order-40",
		"cancel missing",
		"cancel order-42 --grace 0s",
		"cancel trip-1 --reason storm --wait",
		"cancel trip-2 --reason storm --wait",
		"terminate order-42 --reason loop",
		"terminate order-42 --json",
		"terminate order-41 --json",
		"restart order-42 --from-event 17 --new-children --digest v2",
		"restart missing",
		"retry order-42 --json",
	)
	if r := s.last["SignalRequest"].(*perdurev1.SignalRequest); r.Name != "approved" || r.Id != "order-40" {
		t.Errorf("the last signal sent is %v", r)
	}
	if r := s.last["TerminateRequest"].(*perdurev1.TerminateRequest); len(r.GetRequest().GetId()) != 16 {
		t.Errorf("terminate sent %v, without a request id", r)
	}
	if r := s.last["RestartRequest"].(*perdurev1.RestartRequest); r.From != perdurev1.RestartFrom_RESTART_FROM_FAILURE || len(r.GetRequest().GetId()) != 16 {
		t.Errorf("retry sent %v", r)
	}
	sh.run("restart", "order-42", "--from-event", "17", "--new-children", "--digest", "v2")
	if r := s.last["RestartRequest"].(*perdurev1.RestartRequest); r.From != perdurev1.RestartFrom_RESTART_FROM_EVENT || r.Event != 17 || !r.NewChildren || r.ComponentDigest != "v2" {
		t.Errorf("restart sent %v", r)
	}
	sh.run("cancel", "order-42", "--reason", "why not", "--grace", "5m")
	if r := s.last["CancelRequest"].(*perdurev1.CancelRequest); r.Reason != "why not" || r.GraceMs != 300_000 {
		t.Errorf("cancel sent %v", r)
	}
	sh.run("signal", "order-42", "n", "--payload", "not JSON", "--raw")
	if r := s.last["SignalRequest"].(*perdurev1.SignalRequest); string(r.Payload) != "not JSON" {
		t.Errorf("signal sent %v", r)
	}
}

// All output under --json is JSON, one object on each line.
func TestJSONIsJSON(t *testing.T) {
	s := shop()
	s.journals["order-42"] = everyEvent()
	sh := &shell{addr: s.serve(t)}
	for _, args := range [][]string{
		{"list"}, {"describe", "order-40"}, {"describe", "order-42"}, {"journal", "order-42"}, {"result", "order-40"}, {"result", "order-41"},
		{"start", "echo"}, {"signal", "order-42", "a"}, {"cancel", "order-42"}, {"promise", "create", "p", "--timeout", "1h"}, {"version"},
		{"describe", "missing"}, {"start"}, {"--addr", "nowhere", "list"},
	} {
		stdout, stderr, _ := sh.run(append([]string{"--json"}, args...)...)
		if stdout == "" && stderr == "" {
			t.Errorf("%v: printed nothing", args)
		}
		for _, text := range []string{stdout, stderr} {
			for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
				var object map[string]any
				if line != "" && json.Unmarshal([]byte(line), &object) != nil {
					t.Errorf("%v: not a JSON object: %s", args, line)
				}
			}
		}
	}
}

// A wait says what ends it.
func TestAwaitingText(t *testing.T) {
	for want, w := range map[string]*perdurev1.ExecutionAwaiting{
		"o:1":                  {Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE, WaitingOn: []string{"o:1"}},
		"any of o:1, o:2":      {Kind: perdurev1.AwaitKind_AWAIT_KIND_ANY, WaitingOn: []string{"o:1", "o:2"}},
		"all of o:1, o:2":      {Kind: perdurev1.AwaitKind_AWAIT_KIND_ALL, WaitingOn: []string{"o:1", "o:2"}},
		`signal "paid" as o:3`: {Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, WaitingOn: []string{"o:3"}, SignalName: "paid"},
		"the next of join set o:0, o:7 or another member": {Kind: perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET, WaitingOn: []string{"o:7"}, JoinSetId: "o:0"},
	} {
		if got := awaitingText(w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// describe warns of a long journal from the event on from which the metric counts it.
func TestDescribeLongJournal(t *testing.T) {
	for events, long := range map[uint64]bool{0: false, id.JournalWarnEvents - 1: false, id.JournalWarnEvents: true, 1_000_000: true} {
		if got := journalText(events); strings.Contains(got, "it is long") != long || !strings.HasPrefix(got, fmt.Sprint(events)+" events") {
			t.Errorf("%d events: %q", events, got)
		}
	}
}
