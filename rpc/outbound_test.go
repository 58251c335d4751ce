package rpc

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition"
	"perdure/partition/group"
)

// testTimeout bounds the waits of these tests.
const testTimeout = time.Minute

// outboundNode is partitions, with an Outbound and nothing else.
type outboundNode struct {
	t     *testing.T
	parts *partition.Node
	out   *Outbound
}

func newOutboundNode(t *testing.T, lease, idle time.Duration) *outboundNode {
	t.Helper()
	parts, err := partition.Start(partition.Config{
		DataDir: t.TempDir(), NodeID: "n1", PeerAddr: "127.0.0.1:0", NewPartitions: 3, LogStore: "pebble",
		HeartbeatTimeout: 50 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond, LeaderLease: 50 * time.Millisecond,
		CommitTimeout: 5 * time.Millisecond, MaxAppendEntries: 64, SnapshotThreshold: 8192, SnapshotInterval: time.Minute,
		TrailingLogs: 8192, SnapshotBytes: 64 << 20, TrailingBytes: 64 << 20, CacheBytes: 4 << 20, MemtableBytes: 4 << 20, MaxPendingCommands: 4096,
		CheckInvariants: true, Rand: rand.Reader, DiskReserve: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &outboundNode{t: t, parts: parts}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if n.out != nil {
			n.out.Close(ctx)
		}
		if err := parts.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	select {
	case <-parts.Ready():
	case <-time.After(testTimeout):
		t.Fatal(parts.NotReady())
	}
	n.serve(lease, idle)
	return n
}

func (n *outboundNode) serve(lease, idle time.Duration) {
	n.t.Helper()
	var err error
	n.out, err = ServeOutbound(OutboundConfig{NodeID: "n1", Lease: lease, Policy: loopback, Idle: idle, Version: "(test)", Logger: slog.New(slog.DiscardHandler)},
		n.parts.Router(), n.parts.Dispatcher())
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *outboundNode) propose(cmd *commandv1.Command) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var err error
	if cmd.Request, err = request(nil); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.parts.Router().Propose(ctx, cmd); err != nil {
		n.t.Fatal(err)
	}
}

// submit submits a graph of one call.
func (n *outboundNode) submit(ns, id, url string) {
	n.t.Helper()
	n.propose(&commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_SubmitGraph{SubmitGraph: &perdurev1.SubmitGraphRequest{
		Id: id, Graph: &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{{Id: "a", Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: url}}}}}}}})
}

// status reads how a run is.
func (n *outboundNode) status(ns, id string) *perdurev1.GraphStatus {
	n.t.Helper()
	reply, _, err := n.parts.Router().Query(n.t.Context(), group.Linearizable, &commandv1.Query{Namespace: ns, Id: id,
		Kind: &commandv1.Query_GraphStatus{GraphStatus: &perdurev1.GraphStatusRequest{Namespace: ns, Id: id}}})
	if err != nil {
		n.t.Fatal(err)
	}
	return reply.GetGraphStatus()
}

// unreserved is the credit that no session has reserved, and the number of sessions.
func (n *outboundNode) unreserved() (free, sessions int) {
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	return n.out.free, len(n.out.sessions)
}

// eventually waits for a state; see says what there is instead.
func eventually(t *testing.T, what string, is func() bool, see func() string) {
	t.Helper()
	testkit.Eventually(t, testTimeout, what, is, see)
}

func (n *outboundNode) completes(ns, id string) {
	n.t.Helper()
	eventually(n.t, id+" to complete", func() bool { return n.status(ns, id).Phase == "completed" },
		func() string { return n.status(ns, id).String() })
}

// heldCall is a service that answers when the test lets it. It expects one call.
func heldCall(t *testing.T) (url string, came chan (<-chan struct{}), answer chan struct{}) {
	came, answer = make(chan (<-chan struct{}), 10), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		came <- r.Context().Done()
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	return s.URL, came, answer
}

func await[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(testTimeout):
		t.Fatalf("waited %v for %s", testTimeout, what)
	}
	return v
}

// A call that takes longer than a lease stays one call.
func TestOutboundKeepsItsTasks(t *testing.T) {
	t.Parallel()                  // it waits most of the time
	const lease = 6 * time.Second // longer than a pause of the machine
	n := newOutboundNode(t, lease, 0)
	url, came, answer := heldCall(t)
	n.submit("a", "r", url)
	await(t, "the call", came)
	attempt := n.status("a", "r").Nodes[0].AttemptId
	leased := func() int64 {
		reply, _, err := n.parts.Router().Query(t.Context(), group.Linearizable, &commandv1.Query{Namespace: "a", Id: attempt,
			Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetDescribe().GetExecution().GetTask().GetLeaseUntilMs()
	}
	first := leased()
	eventually(t, "the lease to be renewed beyond its first end", func() bool { return leased() > first+lease.Milliseconds() },
		func() string { return fmt.Sprint(leased(), " after ", first) })
	close(answer)
	n.completes("a", "r")
	if len(came) != 0 {
		t.Errorf("there were %d further calls", len(came))
	}
}

// A call whose task is over is ended, and nothing is said of it.
func TestOutboundEndsWhatIsLost(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newOutboundNode(t, 300*time.Millisecond, 0)
	url, came, _ := heldCall(t)
	n.submit("a", "r", url)
	ended := await(t, "the call", came)
	n.propose(&commandv1.Command{Namespace: "a", Id: "r", Kind: &commandv1.Command_Terminate{Terminate: &perdurev1.TerminateRequest{Id: "r", Reason: "enough"}}})
	await(t, "the end of the call", ended)
	if s := n.status("a", "r"); s.Phase != "cancelled" {
		t.Errorf("the run is %v", s)
	}
	eventually(t, "the credit to come back", func() bool { free, _ := n.unreserved(); return free+grantedTo(n, "a") == outboundCalls },
		func() string { free, sessions := n.unreserved(); return fmt.Sprint(free, sessions) })
}

func grantedTo(n *outboundNode, ns string) int {
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	if s := n.out.sessions[ns]; s != nil {
		return s.credit
	}
	return 0
}

// A namespace without calls gives its session up, and gets one again.
func TestOutboundRetires(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newOutboundNode(t, 10*time.Second, 20*time.Millisecond)
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	for round := range 3 {
		for _, ns := range []string{"a", "b"} {
			id := fmt.Sprint("r", round)
			n.submit(ns, id, s.URL)
			n.completes(ns, id)
		}
		eventually(t, "the sessions to be closed", func() bool { free, sessions := n.unreserved(); return sessions == 0 && free == outboundCalls },
			func() string { free, sessions := n.unreserved(); return fmt.Sprint(free, sessions) })
	}
	if w := n.parts.Dispatcher().Workers(); w != 0 {
		t.Errorf("%d streams are counted", w)
	}
}

// TestOutboundFindsWhatWaits: a node that begins to serve finds the tasks that wait already.
func TestOutboundFindsWhatWaits(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newOutboundNode(t, 10*time.Second, 0)
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	n.out.Close(t.Context())
	n.submit("a", "r", s.URL)
	if p := n.status("a", "r").Phase; p != "progressing" {
		t.Errorf("the run is %s", p)
	}
	n.serve(10*time.Second, 0)
	n.completes("a", "r")
}

// TestOwnFunctionsAreReserved: only the server may serve its own functions.
func TestOwnFunctionsAreReserved(t *testing.T) {
	for name, reserved := range map[string]bool{"$http": true, "$": true, "$anything": true, "f$": false, "http": false} {
		err := function(name)
		if reserved != api.Is(err, perdurev1.Reason_REASON_BAD_REQUEST) || reserved != (err != nil) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
