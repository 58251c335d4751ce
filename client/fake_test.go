package client

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// cluster is a number of nodes in memory. The test sets their answers; the nodes record the requests.
type cluster struct {
	t     testing.TB
	nodes map[string]*fakeNode
	names []string
	// given are the nodes whose addresses clients are given: all unless set. list answers ListNodes of a node.
	given []string
	list  func(ctx context.Context, at string) (*perdurev1.NodeList, error)

	// restored is what imports have brought.
	restored *restored

	mu       sync.Mutex
	requests []*perdurev1.RequestID // of writes, in order
	asked    []string               // the node of each call, in order
	// answer decides a call: its number from 0, and the request.
	answer func(ctx context.Context, n int, req any) (any, error)
}

type fakeNode struct {
	perdurev1.UnimplementedExecutionsServer
	perdurev1.UnimplementedPromisesServer
	perdurev1.UnimplementedTasksServer
	perdurev1.UnimplementedClusterServer
	c      *cluster
	name   string
	server *grpc.Server
	lis    *bufconn.Listener
}

func newCluster(t testing.TB, names ...string) *cluster {
	c := &cluster{t: t, nodes: map[string]*fakeNode{}, names: names}
	for _, name := range names {
		n := &fakeNode{c: c, name: name}
		c.nodes[name] = n
		n.start()
		t.Cleanup(func() { n.server.Stop() })
	}
	return c
}

func (n *fakeNode) start() {
	n.c.mu.Lock() // clients dial while a node starts again
	defer n.c.mu.Unlock()
	n.lis = bufconn.Listen(1 << 16)
	n.server = grpc.NewServer()
	perdurev1.RegisterExecutionsServer(n.server, n)
	perdurev1.RegisterPromisesServer(n.server, n)
	perdurev1.RegisterTasksServer(n.server, n)
	perdurev1.RegisterClusterServer(n.server, n)
	perdurev1.RegisterGraphsServer(n.server, &fakeGraphs{n: n})
	perdurev1.RegisterRestoresServer(n.server, &fakeRestores{n: n})
	go n.server.Serve(n.lis)
}

// zeros is a source of no randomness: the first node comes first, and every pause is at its longest.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func (c *cluster) client(opts Options) *Client {
	c.t.Helper()
	given := c.given
	if given == nil {
		given = c.names
	}
	for _, name := range given {
		opts.Addrs = append(opts.Addrs, "passthrough:///"+name)
	}
	opts.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		c.mu.Lock()
		lis := c.nodes[addr].lis
		c.mu.Unlock()
		return lis.DialContext(ctx)
	})}
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if opts.Rand == nil {
		opts.Rand = zeros{}
	}
	cl, err := Dial(opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cl.Close() })
	return cl
}

// ListNodes implements Tasks.
func (n *fakeNode) ListNodes(ctx context.Context, _ *perdurev1.ListNodesRequest) (*perdurev1.NodeList, error) {
	if n.c.list == nil {
		return nil, status.Error(codes.Unimplemented, "the test has no list")
	}
	return n.c.list(ctx, n.name)
}

func ask[Resp any](n *fakeNode, ctx context.Context, req any) (*Resp, error) {
	c := n.c
	c.mu.Lock()
	number := len(c.asked)
	c.asked = append(c.asked, n.name)
	if r, ok := req.(interface {
		GetRequest() *perdurev1.RequestID
	}); ok {
		c.requests = append(c.requests, r.GetRequest())
	}
	answer := c.answer
	c.mu.Unlock()
	resp, err := answer(ctx, number, req)
	if err != nil {
		return nil, err
	}
	out, ok := resp.(*Resp)
	if !ok {
		return nil, status.Errorf(codes.Internal, "the test answers %T with %T", req, resp)
	}
	return out, nil
}

func (n *fakeNode) Start(ctx context.Context, r *perdurev1.StartRequest) (*perdurev1.StartResponse, error) {
	return ask[perdurev1.StartResponse](n, ctx, r)
}
func (n *fakeNode) Result(ctx context.Context, r *perdurev1.ResultRequest) (*perdurev1.ResultResponse, error) {
	return ask[perdurev1.ResultResponse](n, ctx, r)
}
func (n *fakeNode) Describe(ctx context.Context, r *perdurev1.DescribeRequest) (*perdurev1.DescribeResponse, error) {
	return ask[perdurev1.DescribeResponse](n, ctx, r)
}
func (n *fakeNode) Journal(ctx context.Context, r *perdurev1.JournalRequest) (*perdurev1.JournalResponse, error) {
	return ask[perdurev1.JournalResponse](n, ctx, r)
}
func (n *fakeNode) List(ctx context.Context, r *perdurev1.ListRequest) (*perdurev1.ListResponse, error) {
	return ask[perdurev1.ListResponse](n, ctx, r)
}
func (n *fakeNode) Signal(ctx context.Context, r *perdurev1.SignalRequest) (*perdurev1.SignalResponse, error) {
	return ask[perdurev1.SignalResponse](n, ctx, r)
}
func (n *fakeNode) Cancel(ctx context.Context, r *perdurev1.CancelRequest) (*perdurev1.CancelResponse, error) {
	return ask[perdurev1.CancelResponse](n, ctx, r)
}
func (n *fakeNode) Restart(ctx context.Context, r *perdurev1.RestartRequest) (*perdurev1.RestartResponse, error) {
	return ask[perdurev1.RestartResponse](n, ctx, r)
}

func (n *fakeNode) Terminate(ctx context.Context, r *perdurev1.TerminateRequest) (*perdurev1.TerminateResponse, error) {
	return ask[perdurev1.TerminateResponse](n, ctx, r)
}
func (n *fakeNode) Create(ctx context.Context, r *perdurev1.CreatePromiseRequest) (*perdurev1.PromiseResponse, error) {
	return ask[perdurev1.PromiseResponse](n, ctx, r)
}
func (n *fakeNode) Get(ctx context.Context, r *perdurev1.GetPromiseRequest) (*perdurev1.PromiseResponse, error) {
	return ask[perdurev1.PromiseResponse](n, ctx, r)
}
func (n *fakeNode) Settle(ctx context.Context, r *perdurev1.SettlePromiseRequest) (*perdurev1.PromiseResponse, error) {
	return ask[perdurev1.PromiseResponse](n, ctx, r)
}
func (n *fakeNode) Await(ctx context.Context, r *perdurev1.AwaitPromiseRequest) (*perdurev1.PromiseResponse, error) {
	return ask[perdurev1.PromiseResponse](n, ctx, r)
}
func (n *fakeNode) GetStatus(ctx context.Context, r *perdurev1.GetStatusRequest) (*perdurev1.ClusterStatus, error) {
	return ask[perdurev1.ClusterStatus](n, ctx, r)
}
func (n *fakeNode) TransferLeadership(ctx context.Context, r *perdurev1.TransferLeadershipRequest) (*perdurev1.TransferLeadershipResponse, error) {
	return ask[perdurev1.TransferLeadershipResponse](n, ctx, r)
}
func (n *fakeNode) RebuildReplica(ctx context.Context, r *perdurev1.RebuildReplicaRequest) (*perdurev1.RebuildReplicaResponse, error) {
	return ask[perdurev1.RebuildReplicaResponse](n, ctx, r)
}

func (n *fakeNode) Upgrade(ctx context.Context, r *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	return ask[perdurev1.UpgradeResponse](n, ctx, r)
}

func (n *fakeNode) ForgetQuarantined(ctx context.Context, r *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error) {
	return ask[perdurev1.ForgetQuarantinedResponse](n, ctx, r)
}

// Work answers every message with the node's name.
func (n *fakeNode) Work(stream perdurev1.Tasks_WorkServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&perdurev1.WorkResponse{CallId: m.GetCallId(), Kind: &perdurev1.WorkResponse_Welcome{Welcome: &perdurev1.Welcome{NodeId: n.name}}}); err != nil {
			return err
		}
	}
}

// script answers call n with errs[n], and those after the last with resp.
func script(resp any, errs ...error) func(context.Context, int, any) (any, error) {
	return func(_ context.Context, n int, _ any) (any, error) {
		if n < len(errs) {
			return nil, errs[n]
		}
		return resp, nil
	}
}

func refusal(reason perdurev1.Reason) error { return api.Errorf(reason, "as the test says") }

// fakeClock advances only when a goroutine waits on it, at once and by the time waited for.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Time
	waits []time.Duration
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, d)
	c.now = c.now.Add(d)
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}
