package partition

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/stable"
	"perdure/partition/transport"
)

const ns = "default"

// waitLimit is how long a test waits for a state that must come. It is long, since only a failure uses it up.
const waitLimit = 3 * time.Minute

// logBuffer keeps what a node has logged, for a test that fails.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 1<<20 {
		l.b.Reset()
	}
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) has(text string) bool { return strings.Contains(l.String(), text) }

// newLog is a logger whose lines are shown if the test fails.
func newLog(t *testing.T) (*slog.Logger, *logBuffer) {
	b := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() && b.String() != "" {
			t.Logf("logged:\n%s", b.String())
		}
	})
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelInfo})), b
}

// memConfig is the configuration of a node in memory, with short elections.
func memConfig(t *testing.T, fs vfs.FS, st stable.Store, partitions uint32) Config {
	log, _ := newLog(t)
	return Config{
		DataDir: "data", FS: fs, Stable: st, NodeID: "n1", PeerAddr: "127.0.0.1:0", NewPartitions: partitions, LogStore: "pebble",
		HeartbeatTimeout: 20 * time.Millisecond, ElectionTimeout: 20 * time.Millisecond, LeaderLease: 20 * time.Millisecond,
		CommitTimeout: 5 * time.Millisecond, MaxAppendEntries: 512,
		SnapshotThreshold: 8192, SnapshotInterval: time.Minute, TrailingLogs: 8192, SnapshotBytes: 64 << 20, TrailingBytes: 64 << 20,
		CacheBytes: 4 << 20, MemtableBytes: 4 << 20, MaxPendingCommands: 4096, CheckInvariants: true,
		Logger: log, Rand: rand.Reader,
	}
}

// startNode starts a node, waits until it serves, and closes it when the test ends.
func startNode(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := Start(cfg)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	ready(t, n)
	return n
}

func ready(t *testing.T, n *Node) {
	t.Helper()
	select {
	case <-n.Ready():
	case <-n.Done():
		t.Fatalf("the node has halted: %v", n.Err())
	case <-time.After(waitLimit):
		t.Fatalf("not ready: %v", n.NotReady())
	}
}

// closeNode closes a node that must close in time.
func closeNode(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// newMemNode is a node of its own in memory.
func newMemNode(t *testing.T, partitions uint32) *Node {
	t.Helper()
	return startNode(t, memConfig(t, vfs.NewMem(), stable.NewMemory(), partitions))
}

// waitFor waits until a state is there; see says it in words.
func waitFor(t testing.TB, what string, is func() bool, see func() string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, what, is, see)
}

func bg(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

func reasonOf(err error) perdurev1.Reason {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return perdurev1.Reason_REASON_UNSPECIFIED
}

// must proposes a command that must be accepted.
func must(t testing.TB, r *Router, cmd *commandv1.Command) *commandv1.Reply {
	t.Helper()
	reply, err := r.Propose(bg(t), cmd)
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return reply
}

// mustQuery reads what must be there.
func mustQuery(t testing.TB, r *Router, q *commandv1.Query) *commandv1.QueryReply {
	t.Helper()
	reply, _, err := r.Query(bg(t), Linearizable, q)
	if err != nil {
		t.Fatalf("%v: %v", q, err)
	}
	return reply
}

// idIn is an id that a partition owns.
func idIn(r *Router, partition uint32, name string) string {
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d", name, n)
		if r.Of(ns, id).ID() == partition {
			return id
		}
	}
}

// Commands.

func rid(id string) *perdurev1.RequestID { return &perdurev1.RequestID{Id: []byte(id)} }

func startCmd(request, id, function, input string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Request: rid(request), Kind: &commandv1.Command_Start{
		Start: &perdurev1.StartRequest{Id: id, Function: function, Input: []byte(input), AllowUnknownFunction: true}}}
}

func signalCmd(request, id, name, payload string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Request: rid(request), Kind: &commandv1.Command_Signal{
		Signal: &perdurev1.SignalRequest{Id: id, Name: name, Payload: []byte(payload)}}}
}

func cancelCmd(id string, graceMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_Cancel{
		Cancel: &perdurev1.CancelRequest{Id: id, Reason: "no longer wanted", GraceMs: graceMS}}}
}

func terminateCmd(id string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_Terminate{
		Terminate: &perdurev1.TerminateRequest{Id: id, Reason: "stopped"}}}
}

func promiseCmd(id string, timeoutMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_CreatePromise{
		CreatePromise: &perdurev1.CreatePromiseRequest{Id: id, TimeoutMs: timeoutMS, Param: []byte("param of " + id)}}}
}

func settleCmd(id, value string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_SettlePromise{
		SettlePromise: &perdurev1.SettlePromiseRequest{Id: id, State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED, Value: valueOf(value)}}}
}

func releaseCmd(token *perdurev1.TaskToken, problem string) *commandv1.Command {
	return &commandv1.Command{Namespace: token.Namespace, Id: token.Id, Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: token, Problem: problem}}}
}

func commitCmd(request string, c *perdurev1.Commit) *commandv1.Command {
	return &commandv1.Command{Namespace: c.Task.Namespace, Id: c.Task.Id, Request: rid(request), Kind: &commandv1.Command_Commit{Commit: c}}
}

func tickCmd() *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: 100}}}
}

func valueOf(s string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(s)}}
}

// Queries.

func describeQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: ns, Id: id, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{Id: id}}}
}

func resultQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: ns, Id: id, Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{Id: id}}}
}

func journalQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: ns, Id: id, Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{Id: id}}}
}

func promiseQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: ns, Id: id, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{Id: id}}}
}

func taskQuery(token *perdurev1.TaskToken) *commandv1.Query {
	return &commandv1.Query{Namespace: token.Namespace, Id: token.Id, Kind: &commandv1.Query_Task{
		Task: &commandv1.TaskQuery{Incarnation: token.Incarnation, Version: token.Version}}}
}

// Events.

func stepEvents(promise, name, result string) []*perdurev1.Event {
	return []*perdurev1.Event{
		{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name}}},
		{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: 1}}},
		{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: promise, Attempt: 1, Result: valueOf(result)}}},
	}
}

func childEvent(promise, function, input string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, FunctionName: function, Input: []byte(input)}}}
}

func timerEvent(promise string, ms int64) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: promise, DurationMs: ms}}}
}

func awaitEvent(kind perdurev1.AwaitKind, signal string, on ...string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
		Kind: kind, SignalName: signal, WaitingOn: on}}}
}

func returnEvent(result string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(result)}}}
}

// wide are the timeouts of a cluster in one busy process.
const wide = 400 * time.Millisecond

func transportOptions() transport.Options { return transport.Options{} }
