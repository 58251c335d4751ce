package partition

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/admission"
	"perdure/partition/group"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
)

// A scriptedPeer is a node that leads every partition and answers each proposal with the next error of a
// script, and the last one with a reply.
type scriptedPeer struct {
	commandv1.UnimplementedPeersServer
	script []error
	got    chan *commandv1.ProposeRequest
	// queries counts the calls of Query.
	queries int
}

// Propose implements Peers.
func (p *scriptedPeer) Propose(_ context.Context, in *commandv1.ProposeRequest) (*commandv1.Reply, error) {
	p.got <- in
	if n := len(p.got); n <= len(p.script) {
		return nil, p.script[n-1]
	}
	return &commandv1.Reply{}, nil
}

// routerTo is a router of a node that leads nothing; another one leads, and answers by the script.
func routerTo(t *testing.T, partitions uint32, script ...error) (*Router, *scriptedPeer) {
	t.Helper()
	p := &scriptedPeer{script: script, got: make(chan *commandv1.ProposeRequest, 100)}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	commandv1.RegisterPeersServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///far", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	r := newRouter(partitions, group.NewShared(SystemClock{}, admission.Limits{}), SystemClock{})
	r.others, r.client = func() []string { return nil }, func(string) (commandv1.PeersClient, error) { return commandv1.NewPeersClient(conn), nil }
	r.local = func(uint32) localReplica { return ledElsewhere{} }
	return r, p
}

// ledElsewhere is a replica whose group another node leads. It has no other methods.
type ledElsewhere struct{ localReplica }

func (ledElsewhere) Serving() bool                   { return false }
func (ledElsewhere) Establishing() bool              { return false }
func (ledElsewhere) Stopping() <-chan struct{}       { return nil }
func (ledElsewhere) LeaderChanged() <-chan struct{}  { return nil }
func (ledElsewhere) ServingChanged() <-chan struct{} { return nil }
func (ledElsewhere) LeaderElsewhere() (group.Leader, bool) {
	return group.Leader{Server: "far", Addr: "far:1"}, true
}

func scripted(reason perdurev1.Reason) error {
	return api.Errorf(reason, "as the script says")
}

// TestOnlyTheRepeatableIsRepeated: the router repeats a command that may have been applied only if that is
// harmless: with a request id, or if the command is idempotent. It always repeats one that was surely not
// applied.
func TestOnlyTheRepeatableIsRepeated(t *testing.T) {
	t.Parallel() // it waits most of the time
	withoutID := func(cmd *commandv1.Command) *commandv1.Command {
		cmd.Request = nil
		return cmd
	}
	token := &perdurev1.TaskToken{Namespace: ns, Id: "x", Incarnation: 1, Version: 1}
	for name, c := range map[string]struct {
		cmd        *commandv1.Command
		repeatable bool
	}{
		"start":                  {startCmd("r", "x", "f", ""), true},
		"start without an id":    {withoutID(startCmd("r", "x", "f", "")), false},
		"signal":                 {signalCmd("r", "x", "go", ""), true},
		"signal without an id":   {withoutID(signalCmd("r", "x", "go", "")), false},
		"commit without an id":   {withoutID(commitCmd("r", &perdurev1.Commit{Task: token})), false},
		"cancel without an id":   {cancelCmd("x", 1), false},
		"terminate":              {terminateCmd("x"), false},
		"promise without an id":  {promiseCmd("x", 1), false},
		"settle without an id":   {settleCmd("x", "v"), false},
		"release":                {releaseCmd(token, ""), true},
		"tick":                   {tickCmd(), true},
		"heartbeat":              {&commandv1.Command{Kind: &commandv1.Command_Heartbeat{}}, true},
		"shipment":               {&commandv1.Command{Kind: &commandv1.Command_Deliver{}}, true},
		"trim":                   {&commandv1.Command{Kind: &commandv1.Command_Trim{}}, true},
		"graph without an id":    {&commandv1.Command{Kind: &commandv1.Command_SubmitGraph{}}, false},
		"retry without an id":    {&commandv1.Command{Kind: &commandv1.Command_RetryGraph{}}, false},
		"an unknown kind":        {&commandv1.Command{}, false},
		"an unknown kind, named": {&commandv1.Command{Request: rid("r")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := routerTo(t, 1, scripted(perdurev1.Reason_REASON_TRY_LATER), scripted(perdurev1.Reason_REASON_OUTCOME_UNKNOWN))
			_, err := r.Deliver(bg(t), 0, c.cmd)
			sent := len(p.got)
			switch {
			case c.repeatable && (err != nil || sent != 3):
				t.Errorf("sent %d times, then %v; must be sent again after an unknown outcome", sent, err)
			case !c.repeatable && (reasonOf(err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN || sent != 2):
				t.Errorf("sent %d times, then %v; must not be sent again after an unknown outcome", sent, err)
			}
		})
	}
}

// TestLostAnswersAreUnknown: an error of the connection says nothing of what the other node has done.
func TestLostAnswersAreUnknown(t *testing.T) {
	r, p := routerTo(t, 1, errors.New("no error of ours"))
	_, err := r.Deliver(bg(t), 0, promiseCmd("x", 1))
	if reasonOf(err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN || len(p.got) != 1 {
		t.Errorf("sent %d times, then %v", len(p.got), err)
	}
}

// TestRetriesAreMarked: a repeated request is marked as a retry, so that the machine does not run it when the
// first answer is forgotten. It goes with the same request id to the same partition.
func TestRetriesAreMarked(t *testing.T) {
	r, p := routerTo(t, 3, scripted(perdurev1.Reason_REASON_OUTCOME_UNKNOWN), scripted(perdurev1.Reason_REASON_NOT_LEADER))
	cmd := signalCmd("r", "x", "go", "")
	if _, err := r.Propose(bg(t), cmd); err != nil {
		t.Fatal(err)
	}
	if len(p.got) != 3 {
		t.Fatalf("sent %d times", len(p.got))
	}
	for k := range 3 {
		in := <-p.got
		if age := in.Command.Request.AgeMs; (age > 0) != (k > 0) {
			t.Errorf("attempt %d says it comes %d ms after the first", k+1, age)
		}
		if string(in.Command.Request.Id) != "r" || in.Partition != r.PartitionOf(ns, "x") {
			t.Errorf("attempt %d goes to partition %d with id %q", k+1, in.Partition, in.Command.Request.Id)
		}
	}
	if cmd.Request.AgeMs != 0 {
		t.Error("the caller's own request was changed")
	}
}

// TestPartitionOfIsTheMachines: a router sends a command where the machine takes it. The machine's own answer is asked.
func TestPartitionOfIsTheMachines(t *testing.T) {
	n := newMemNode(t, 3)
	for _, id := range []string{"a", "b", "c", "d", "order-42", "order-42:0.3", "x:1"} {
		_, err := n.Router().Of(ns, id).Propose(bg(t), terminateCmd(id))
		if reasonOf(err) != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
			t.Errorf("%s at partition %d: %v", id, n.Router().PartitionOf(ns, id), err)
		}
	}
}

// TestRaftErrors: only a command that Raft has surely not taken is reported as not applied.
func TestRaftErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want perdurev1.Reason
	}{
		{raft.ErrNotLeader, perdurev1.Reason_REASON_NOT_LEADER},
		{raft.ErrEnqueueTimeout, perdurev1.Reason_REASON_TRY_LATER},
		{raft.ErrLeadershipTransferInProgress, perdurev1.Reason_REASON_TRY_LATER},
		{raft.ErrLeadershipLost, perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
		{raft.ErrRaftShutdown, perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
		{raft.ErrAbortedByRestore, perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
		{raftgroup.ErrAbandoned, perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
		{errors.New("the log store failed"), perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
	} {
		if e := refusal.OfRaft(3, "", c.err); e.Reason != c.want {
			t.Errorf("%v is reported as %v, must be %v", c.err, e, c.want)
		}
	}
}
