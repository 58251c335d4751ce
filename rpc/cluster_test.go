package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/rpc"
)

// operator is a cluster that notes what it is asked and answers what the test says.
type operator struct {
	asked chan proto.Message
	// bounded is how long each call may take.
	bounded chan time.Duration
	// hold keeps calls until they are cancelled.
	hold bool
	fail error
}

func newOperator() *operator {
	return &operator{asked: make(chan proto.Message, 100), bounded: make(chan time.Duration, 100)}
}

func (o *operator) take(ctx context.Context, m proto.Message) error {
	end, _ := ctx.Deadline()
	o.bounded <- time.Until(end)
	o.asked <- m
	if o.hold {
		<-ctx.Done()
		return ctx.Err()
	}
	return o.fail
}

func (o *operator) ClusterStatus(ctx context.Context) (*perdurev1.ClusterStatus, error) {
	return &perdurev1.ClusterStatus{ClusterId: "c"}, o.take(ctx, &perdurev1.GetStatusRequest{})
}

func (o *operator) Transfer(ctx context.Context, in *perdurev1.TransferLeadershipRequest) (*perdurev1.TransferLeadershipResponse, error) {
	return &perdurev1.TransferLeadershipResponse{Transferred: []*perdurev1.TransferredLeadership{{Partition: 3, Leader: "n2"}}}, o.take(ctx, in)
}

func (o *operator) Rebuild(ctx context.Context, in *perdurev1.RebuildReplicaRequest) (*perdurev1.RebuildReplicaResponse, error) {
	return &perdurev1.RebuildReplicaResponse{Applied: 7}, o.take(ctx, in)
}

func (o *operator) Upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	return &perdurev1.UpgradeResponse{From: 4, Level: in.Level}, o.take(ctx, in)
}

func (o *operator) ForgetQuarantined(ctx context.Context, in *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error) {
	return &perdurev1.ForgetQuarantinedResponse{Forgotten: []*perdurev1.QuarantinedReplica{{Partition: in.Partition, Name: in.Name}}}, o.take(ctx, in)
}

func (o *operator) Verify(ctx context.Context, in *perdurev1.VerifyRequest, send func(*perdurev1.VerifyEvent) error) error {
	return errors.Join(send(&perdurev1.VerifyEvent{NodeId: "n1", Kind: &perdurev1.VerifyEvent_Done{Done: true}}), o.take(ctx, in))
}

func (o *operator) Cut(ctx context.Context, in *perdurev1.CutRequest) (*perdurev1.CutResponse, error) {
	return &perdurev1.CutResponse{Cut: 3}, o.take(ctx, in)
}

func (o *operator) ListCheckpoint(ctx context.Context, in *perdurev1.ListFilesRequest) (*perdurev1.ListFilesResponse, error) {
	return &perdurev1.ListFilesResponse{Index: 7, Files: []*perdurev1.CutFile{{Name: "f", Size: 2}}}, o.take(ctx, in)
}

func (o *operator) ReadCheckpoint(ctx context.Context, in *perdurev1.ReadFileRequest, send func(*perdurev1.FileChunk) error) error {
	return errors.Join(send(&perdurev1.FileChunk{Data: []byte("ab")}), o.take(ctx, in))
}

func (o *operator) MakeDelta(ctx context.Context, in *perdurev1.DeltaRequest) (*perdurev1.DeltaResponse, error) {
	return &perdurev1.DeltaResponse{File: &perdurev1.CutFile{Name: "delta", Size: 5}}, o.take(ctx, in)
}

func (o *operator) ReleaseCut(ctx context.Context, in *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error) {
	return &perdurev1.ReleaseCutResponse{Released: 1}, o.take(ctx, in)
}

// serveOperator serves with an operator and nothing behind it: no call of these tests may reach a partition.
func serveOperator(t *testing.T, o rpc.Operator) (*rpc.Server, perdurev1.ClusterClient) {
	t.Helper()
	s, err := rpc.Listen(rpc.Config{NodeID: "n1", GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), NotReady: func() error { return nil }, Operator: o}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(soon(t)); err != nil {
			t.Errorf("the server did not stop in order: %v", err)
		}
	})
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return s, perdurev1.NewClusterClient(conn)
}

func TestClusterAsksTheOperator(t *testing.T) {
	o := newOperator()
	_, c := serveOperator(t, o)
	got, err := c.GetStatus(soon(t), &perdurev1.GetStatusRequest{})
	if err != nil || got.ClusterId != "c" {
		t.Errorf("status: %v, %v", got, err)
	}
	receive(t, "question", o.asked)
	if most := receive(t, "bound", o.bounded); most <= 0 || most > 10*time.Second {
		t.Errorf("a status may take %v", most)
	}
	for _, in := range []*perdurev1.TransferLeadershipRequest{
		{Partition: proto.Uint32(0)}, {Partition: proto.Uint32(3), ToNode: "n2"}, {FromNode: "n1"}, {FromNode: "n1", ToNode: "node-2.example_A"},
	} {
		moved, err := c.TransferLeadership(soon(t), in)
		if err != nil || len(moved.GetTransferred()) != 1 || moved.Transferred[0].Leader != "n2" {
			t.Errorf("%v: %v, %v", in, moved, err)
		}
		if asked := receive(t, "transfer", o.asked); !proto.Equal(asked, in) {
			t.Errorf("%v reached the operator as %v", in, asked)
		}
		receive(t, "bound", o.bounded)
	}
	in := &perdurev1.RebuildReplicaRequest{Partition: 2, NodeId: strings.Repeat("n", 64)}
	built, err := c.RebuildReplica(soon(t), in)
	if err != nil || built.Applied != 7 {
		t.Errorf("rebuild: %v, %v", built, err)
	}
	if asked := receive(t, "rebuild", o.asked); !proto.Equal(asked, in) {
		t.Errorf("%v reached the operator as %v", in, asked)
	}
	receive(t, "bound", o.bounded)

	raise := &perdurev1.UpgradeRequest{Level: 6}
	up, err := c.Upgrade(soon(t), raise)
	if err != nil || up.From != 4 || up.Level != 6 {
		t.Errorf("upgrade: %v, %v", up, err)
	}
	if asked := receive(t, "upgrade", o.asked); !proto.Equal(asked, raise) {
		t.Errorf("%v reached the operator as %v", raise, asked)
	}
	receive(t, "bound", o.bounded)

	old := &perdurev1.ForgetQuarantinedRequest{Partition: 2, NodeId: "n3", Name: "kept-0002-20260102T030405.678"}
	gone, err := c.ForgetQuarantined(soon(t), old)
	if err != nil || len(gone.GetForgotten()) != 1 || gone.Forgotten[0].Name != old.Name {
		t.Errorf("forget: %v, %v", gone, err)
	}
	if asked := receive(t, "forget", o.asked); !proto.Equal(asked, old) {
		t.Errorf("%v reached the operator as %v", old, asked)
	}
	receive(t, "bound", o.bounded)
	o.fail = api.Errorf(perdurev1.Reason_REASON_NODE_NOT_FOUND, "there is no node n9").With("node", "n9")
	_, err = c.RebuildReplica(soon(t), in)
	refused(t, "what the operator refuses", err, perdurev1.Reason_REASON_NODE_NOT_FOUND)
}

// TestClusterRefusals sends malformed requests: none of them reaches the operator.
func TestClusterRefusals(t *testing.T) {
	o := newOperator()
	_, c := serveOperator(t, o)
	for _, in := range []*perdurev1.TransferLeadershipRequest{
		{}, {ToNode: "n1"}, {Partition: proto.Uint32(1), FromNode: "n1"}, {Partition: proto.Uint32(16384)}, {FromNode: "n 1"},
		{FromNode: "n1", ToNode: "n1"}, {FromNode: "n1", ToNode: "n/2"}, {Partition: proto.Uint32(1), ToNode: strings.Repeat("n", 65)},
		{FromNode: "ñ"},
	} {
		_, err := c.TransferLeadership(soon(t), in)
		refused(t, in.String(), err, bad)
	}
	for _, in := range []*perdurev1.RebuildReplicaRequest{
		{}, {Partition: 16384, NodeId: "n1"}, {NodeId: "n\x00"}, {NodeId: strings.Repeat("n", 65)},
	} {
		_, err := c.RebuildReplica(soon(t), in)
		refused(t, in.String(), err, bad)
	}
	for _, in := range []*perdurev1.ForgetQuarantinedRequest{
		{}, {Partition: 16384, NodeId: "n1"}, {NodeId: "n 1"}, {NodeId: "n1", Name: strings.Repeat("k", 65)},
	} {
		_, err := c.ForgetQuarantined(soon(t), in)
		refused(t, in.String(), err, bad)
	}
	if n := len(o.asked); n != 0 {
		t.Errorf("%d refused requests reached the operator", n)
	}
}

func TestClusterWithoutAnOperator(t *testing.T) {
	_, c := serveOperator(t, nil)
	_, err := c.GetStatus(soon(t), &perdurev1.GetStatusRequest{})
	_, err2 := c.TransferLeadership(soon(t), &perdurev1.TransferLeadershipRequest{FromNode: "n1"})
	_, err3 := c.RebuildReplica(soon(t), &perdurev1.RebuildReplicaRequest{NodeId: "n1"})
	for _, err := range []error{err, err2, err3} {
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "no operators' service") {
			t.Errorf("without an operator: %v", err)
		}
	}
}

// A long rebuild does not hold up the stop of the node that was asked for it.
func TestClusterCallEndsWithTheServer(t *testing.T) {
	o := newOperator()
	o.hold = true
	s, c := serveOperator(t, o)
	ended := make(chan error, 1)
	go func() {
		_, err := c.RebuildReplica(soon(t), &perdurev1.RebuildReplicaRequest{NodeId: "n1"})
		ended <- err
	}()
	receive(t, "rebuild", o.asked)
	if err := s.Close(soon(t)); err != nil {
		t.Error(err)
	}
	refused(t, "a rebuild when the node stops", receive(t, "end of the rebuild", ended), perdurev1.Reason_REASON_OUTCOME_UNKNOWN)

	// The caller's own end is passed on.
	o = newOperator()
	o.hold = true
	_, c = serveOperator(t, o)
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		_, err := c.RebuildReplica(ctx, &perdurev1.RebuildReplicaRequest{NodeId: "n1"})
		ended <- err
	}()
	receive(t, "rebuild", o.asked)
	cancel()
	if err := receive(t, "end of the rebuild", ended); status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
		t.Errorf("a rebuild whose caller went: %v", err)
	}
}
