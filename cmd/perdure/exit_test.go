package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// The contract: which exit code goes with which reason.
var exitOf = map[string]int{
	"UNSPECIFIED": 1, "CORRUPT": 1, "UNAUTHENTICATED": 1, "PERMISSION_DENIED": 1,
	"BAD_ID": 2, "ID_TOO_LONG": 2, "PAYLOAD_TOO_LARGE": 2, "TOO_MANY_TAGS": 2, "BAD_REQUEST": 2,
	"EXECUTION_NOT_FOUND": 3, "PROMISE_NOT_FOUND": 3, "FUNCTION_UNKNOWN": 3, "NODE_NOT_FOUND": 3, "PARTITION_NOT_FOUND": 3, "CHECKPOINT_NOT_FOUND": 3,
	"ID_CONFLICT": 4, "STALE_TASK": 4, "RULE_BROKEN": 4, "ALREADY_FINISHED": 4, "NOT_SETTLEABLE": 4, "MEMBERSHIP_REFUSED": 4, "FEATURE_LEVEL": 4,
	"NOT_LEADER": 5, "TRY_LATER": 5, "SHUTTING_DOWN": 5, "OVERLOADED": 5, "DISK_FULL": 5, "QUOTA_EXCEEDED": 5, "OUTCOME_UNKNOWN": 5,
}

func TestEveryReasonHasItsExitCode(t *testing.T) {
	for number := range perdurev1.Reason_name {
		reason := perdurev1.Reason(number)
		want, listed := exitOf[api.ReasonName(reason)]
		if !listed {
			t.Errorf("reason %s has no place among the exit codes", reason)
			continue
		}
		if got := exitOfReason(reason); got != want {
			t.Errorf("%s exits %d, want %d", reason, got, want)
		}
		// The gRPC code of a reason must agree with it, for clients that see only the code.
		if code := api.Code(reason); code != codes.Unknown && exitOfCode(code) != want {
			t.Errorf("%s exits %d, but its code %s exits %d", reason, want, code, exitOfCode(code))
		}
	}
	if got := exitOfReason(9999); got != exitFailed {
		t.Errorf("a reason of a later version exits %d, want %d", got, exitFailed)
	}
}

// The same over a connection, through the client's retries.
func TestRefusalsOverTheWire(t *testing.T) {
	for name, want := range exitOf {
		t.Run(name, func(t *testing.T) {
			timeout := deadline.String() // a refusal for good comes at once
			if want == exitUnavailable {
				t.Parallel()
				timeout = "2s" // one that is retried comes when the time is up
			}
			reason := perdurev1.Reason(perdurev1.Reason_value["REASON_"+name])
			s := shop()
			s.refuse = api.Errorf(reason, "refused for the test").With("id", "order-42")
			sh := &shell{addr: s.serve(t)}
			_, stderr, code := sh.run("signal", "order-42", "go", "--timeout", timeout)
			if code != want {
				t.Errorf("exit %d, want %d: %s", code, want, stderr)
			}
			// Also when the time is up while the server is being asked once more.
			if !strings.Contains(stderr, "refused for the test") {
				t.Errorf("the server's words are missing in %s", stderr)
			}
			if want != exitUnavailable && reason != 0 && !strings.Contains(stderr, "reason: "+name+"\n  id: order-42\n") {
				t.Errorf("reason and id are missing in %s", stderr)
			}
		})
	}
}

func TestComplaints(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	a := &app{addrs: []string{"a:1", "b:2"}, namespace: "acme", timeout: defaultTimeout}
	notFound := api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, "none")
	for _, c := range []struct {
		name   string
		ctx    context.Context
		err    error
		exit   int
		reason string
		says   string
	}{
		{"usage", nil, usagef("no"), 2, "BAD_USAGE", "no"},
		{"failed", nil, &client.ExecutionError{ID: "x", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, Failure: &perdurev1.Failure{Message: "m"}}, 1, "EXECUTION_FAILED", `execution "x" failed: m`},
		{"forbidden call", nil, &client.ExecutionError{ID: "x", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, Failure: &perdurev1.Failure{Type: "graph_failed",
			Message: `node "a" (http_forbidden: http_nodes: HTTP nodes are off) failed`}}, 1, "EXECUTION_FAILED", "--http-nodes, and with --http-hosts and --http-networks that allow the call; then perdure graph retry x continues the run"},
		{"graph refused for its calls", nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "off").With("rule", "http_nodes"), 2, "BAD_REQUEST", "--http-nodes, and"},
		{"cancelled", nil, &client.ExecutionError{ID: "x", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED}, 1, "EXECUTION_CANCELLED", "cancelled"},
		{"wrapped", nil, fmt.Errorf("while: %w", notFound), 3, "EXECUTION_NOT_FOUND", "namespace acme"},
		{"interrupted", done, context.Canceled, 1, "INTERRUPTED", "interrupted"},
		{"interrupted write", done, fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, context.Canceled), 1, "INTERRUPTED", "outcome of the request is unknown"},
		{"a finished answer beats an interrupt", done, &notFinishedError{what: "execution", id: "x"}, 5, "NOT_FINISHED", "describe x"},
		{"unavailable", nil, fmt.Errorf("%w: %w", client.ErrUnavailable, notFound), 5, "UNAVAILABLE", "at a:1, b:2: none"},
		{"unknown outcome", nil, fmt.Errorf("%w: broken pipe", client.ErrOutcomeUnknown), 5, "OUTCOME_UNKNOWN", "outcome of the request is unknown"},
		{"another server", nil, status.Error(codes.Unimplemented, "unknown service"), 1, "FAILED", "of this version"},
		{"no reason given", nil, status.Error(codes.NotFound, "no such thing"), 3, "FAILED", "no such thing (NotFound)"},
		{"anything else", nil, errors.New("disk full"), 1, "FAILED", "disk full"},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		got := a.complain(ctx, c.err)
		if got.exit != c.exit || got.reason != c.reason || !strings.Contains(got.message+" "+got.hint, c.says) {
			t.Errorf("%s: %+v, want exit %d, reason %s and %q", c.name, got, c.exit, c.reason, c.says)
		}
	}
}

// deadAddr is an address without a listener: the system assigns this port to no process.
const deadAddr = "127.0.0.1:1"

func TestNoNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	sh := &shell{addr: deadAddr}
	sh.story(t, "no_node",
		"list --timeout 500ms",
		"--json --timeout 500ms describe order-42",
		"--timeout 500ms start charge --id a --timeout 1h",
		"list --addr nowhere",
		"list --timeout 0s",
	)
}

// With several addresses the one that answers is found, in whichever way they are given.
func TestSeveralAddresses(t *testing.T) {
	s := shop()
	sh := &shell{addr: s.serve(t)}
	for _, args := range [][]string{
		{"list", "--addr", deadAddr, "--addr", sh.addr},
		{"list", "--addr", deadAddr + "," + sh.addr},
		{"--addr", sh.addr, "list"},
	} {
		if stdout, stderr, code := sh.run(args...); code != exitDone || !strings.Contains(stdout, "order-42") {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
	sh.env = map[string]string{envAddr: " " + deadAddr + ", " + sh.addr + ","}
	if stdout, stderr, code := sh.run("list"); code != exitDone || !strings.Contains(stdout, "order-42") {
		t.Errorf("from the environment: exit %d: %s", code, stderr)
	}
	if got := (&app{lookup: func(string) (string, bool) { return "", false }}).addresses(); len(got) != 1 || got[0] != client.DefaultAddr {
		t.Errorf("addresses by default: %v", got)
	}
}
