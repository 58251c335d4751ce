package partition

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/group"
	"perdure/partition/grouptest"
	"perdure/partition/stable"
	"perdure/partition/transport"
)

const ns = grouptest.Namespace

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
		CacheBytes: 4 << 20, MemtableBytes: 4 << 20, MaxPendingCommands: 4096, MaxStreams: 1000, CheckInvariants: true,
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

// Commands, queries and events.
var (
	rid           = grouptest.RequestID
	startCmd      = grouptest.StartCmd
	signalCmd     = grouptest.SignalCmd
	cancelCmd     = grouptest.CancelCmd
	terminateCmd  = grouptest.TerminateCmd
	promiseCmd    = grouptest.PromiseCmd
	settleCmd     = grouptest.SettleCmd
	releaseCmd    = grouptest.ReleaseCmd
	commitCmd     = grouptest.CommitCmd
	tickCmd       = grouptest.TickCmd
	describeQuery = grouptest.DescribeQuery
	resultQuery   = grouptest.ResultQuery
	journalQuery  = grouptest.JournalQuery
	promiseQuery  = grouptest.PromiseQuery
	taskQuery     = grouptest.TaskQuery
	stepEvents    = grouptest.StepEvents
	childEvent    = grouptest.ChildEvent
	timerEvent    = grouptest.TimerEvent
	awaitEvent    = grouptest.AwaitEvent
	returnEvent   = grouptest.ReturnEvent
	callCmd       = grouptest.CallCmd
	childID       = grouptest.ChildID
	scrape        = grouptest.Scrape
)

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

// must proposes a command that must be accepted. It is repeated when no leader is known, and with a request id while its
// outcome is unknown, as a client would do: a leadership may end meanwhile.
func must(t testing.TB, r *Router, cmd *commandv1.Command) *commandv1.Reply {
	t.Helper()
	for ctx := bg(t); ; {
		reply, err := r.Propose(ctx, cmd)
		if err == nil {
			return reply
		}
		again := strings.Contains(err.Error(), "no leader has been known") ||
			cmd.GetRequest() != nil && api.Is(err, perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
		if !again || ctx.Err() != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
	}
}

// mustQuery reads what must be there.
func mustQuery(t testing.TB, r *Router, q *commandv1.Query) *commandv1.QueryReply {
	t.Helper()
	reply, _, err := r.Query(bg(t), group.Linearizable, q)
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

// wide are the timeouts of a cluster in one busy process.
var wide = testkit.Scaled(400 * time.Millisecond)

func transportOptions() transport.Options { return transport.Options{} }

// optionsOf are those of a server at the network of a node.
func optionsOf(m *member) transport.Options { return transport.Options{Network: m.cfg.Network} }

// anotherAddr is an address at which a successor of a node can listen.
func anotherAddr(t *testing.T, m *member) string {
	t.Helper()
	if m.cfg.Network == nil {
		return freeAddr(t)
	}
	host, port, err := net.SplitHostPort(m.cfg.PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, strconv.Itoa(n+1))
}
