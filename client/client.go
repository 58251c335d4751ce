// Package client is the Go client of a Perdure cluster: it starts, awaits, signals and cancels executions,
// runs graphs, creates and settles promises, and operates the cluster itself.
//
// It owns the connections, the retries and the request ids. One call of a method takes effect at most once,
// however often it was sent. Its error says whether it may have taken effect (ErrOutcomeUnknown) or surely
// did not (ErrUnavailable, or the server's *api.Error). A crash of the caller loses the request ids in
// flight: call again under the same execution or promise id, which is the idempotency key that outlives a
// process.
//
// # Retries
//
// A write gets 16 random bytes as its request id, kept over every attempt, together with the age of the first
// one; the cluster keeps the answer under that id and repeats it. So a write is retried through broken
// connections, changes of leader and overload until the context or Options.Timeout ends. With several
// addresses, an attempt that could not be answered goes to the next one.
//
// # Leaders
//
// A client that makes more than a few calls asks the nodes who leads what, and sends each call to the node that leads the
// id's partition: no other node passes it on. This is a guess that any node corrects. The client goes to an announced
// address only where that node answers, so behind a load balancer it works as through one address. It leaves a leader
// that does not answer for half a second when the others name a later one. With Options.AnyNode it does none of this.
//
// A Client is safe for concurrent use. It connects on first use; Dial does no I/O.
package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream"
)

const (
	// DefaultAddr is the default address of a node.
	DefaultAddr = "127.0.0.1:7400"
	// DefaultNamespace is the namespace of Options without one.
	DefaultNamespace = "default"
	// DefaultTimeout bounds a call whose context has no deadline.
	DefaultTimeout = 30 * time.Second

	// maxMessageBytes bounds one answer: a page of a journal is about 1 MiB, but one entry may hold two
	// payloads of 4 MiB.
	maxMessageBytes = 64 << 20
	// streamWindow is how many bytes a node may send on a stream before they are read, connWindow on all of a connection.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	// attemptTimeout ends an attempt without any answer (its host vanished), so that the next address is
	// tried well before the caller's deadline.
	attemptTimeout = 3 * time.Second
)

// Options configures a Client. The zero value talks to a node on this machine.
type Options struct {
	// Addrs are gRPC targets ("host:port") of any nodes of one cluster; default DefaultAddr. Every node
	// answers every call; more than one address is for when a node is down.
	Addrs []string
	// Namespace is the namespace of every id; default "default".
	Namespace string
	// TLS secures the connections; nil leaves them in plaintext.
	TLS *TLSOptions
	// Token is sent with every call; TokenFile is a file that holds it, which the client reads again when it changes.
	// At most one of the two.
	Token, TokenFile string
	// PlaintextToken sends the token without TLS even to a node on another machine, where anyone on the
	// network path can read it. Otherwise such a call fails.
	PlaintextToken bool
	// DialOptions are applied after the client's own and override them: transport credentials, interceptors,
	// a dialer.
	DialOptions []grpc.DialOption
	// Timeout bounds one call, retries included, when its context has no deadline; default 30 s.
	Timeout time.Duration
	// AnyNode sends the calls to the nodes of Addrs alone, to one until it fails, and never to the leader of an id: see
	// Leaders above. For tests of a node, and where the other nodes may not be called.
	AnyNode bool
	// Logger gets retries (debug) and reloads of files; default slog.Default().
	Logger *slog.Logger

	// Clock measures ages and waits between retries; default the machine's. For tests.
	Clock Clock
	// Rand is the source of request ids and jitter; default crypto/rand. For tests. It must be safe for
	// concurrent use.
	Rand io.Reader
}

// Clock is the time of retries. Deadlines of a context are always the machine's.
type Clock interface {
	// Now is the current time; differences are taken between two of them.
	Now() time.Time
	// After yields one value once d has passed.
	After(d time.Duration) <-chan time.Time
}

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// SystemClock is the machine's clock.
func SystemClock() Clock { return systemClock{} }

// Status is the status of an execution.
type Status = perdurev1.ExecutionStatus

// Client talks to one cluster in one namespace. Make it with Dial.
type Client struct {
	opts  Options
	clock Clock
	log   *slog.Logger
	nodes []*node
	// secure holds the files of TLS and token.
	secure *secured
	// at is the index of the node that calls go to, modulo len(nodes); a failed attempt moves it on.
	at atomic.Uint64
	// streams counts calls of Work: each goes one node further, so that a worker whose stream broke does
	// not come back to the node that broke it.
	streams atomic.Uint64
	leaders *leaders
	closed  atomic.Bool
}

// node is one address with its connection and the services on it.
type node struct {
	addr       string
	conn       *grpc.ClientConn
	calls      *callstream.Conn // over conn, which carries calls in batches
	executions perdurev1.ExecutionsClient
	promises   perdurev1.PromisesClient
	// clientTasks serves clients of the recovery protocol.
	clientTasks perdurev1.ClientTasksClient
	entities    perdurev1.EntitiesClient
	tasks       perdurev1.TasksClient
	cluster     perdurev1.ClusterClient
	graphs      perdurev1.GraphsClient
	// failed is when a call to the node as a leader was last not answered; nil if never.
	failed atomic.Pointer[time.Time]

	// id is the node that has answered at the address; "" if none. Only the goroutine that asks for leaders uses it.
	id string

	mu sync.Mutex
	// attempts are those under way at the node as a leader; heard is when it last answered one.
	attempts map[*attempt]struct{}
	heard    time.Time
}

// Dial makes a client. It does no I/O: an unreachable address fails the first call. An error
// means that the options are invalid.
func Dial(opts Options) (*Client, error) {
	if len(opts.Addrs) == 0 {
		opts.Addrs = []string{DefaultAddr}
	}
	if opts.Namespace == "" {
		opts.Namespace = DefaultNamespace
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("client: timeout %v is negative", opts.Timeout)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Clock == nil {
		opts.Clock = systemClock{}
	}
	if opts.Rand == nil {
		opts.Rand = rand.Reader
	}
	c := &Client{opts: opts, clock: opts.Clock, log: opts.Logger}
	c.leaders = newLeaders(c)
	var err error
	if c.secure, err = secure(&c.opts); err != nil {
		return nil, err
	}
	for _, addr := range opts.Addrs {
		n, err := c.connect(addr)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.nodes = append(c.nodes, n)
	}
	// Clients that were given the same list begin at different nodes.
	c.at.Store(uint64(c.fraction() * float64(len(c.nodes))))
	c.streams.Store(c.at.Load())
	return c, nil
}

// connect makes the connection to an address. It does no I/O.
func (c *Client) connect(addr string) (*node, error) {
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		// Windows that adapt send a ping for each message that comes while none is under way, and the server answers it.
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		// A node that comes back is found again within a second, not after gRPC's default of up to two
		// minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// Missing acknowledgements show that a host has vanished, before the next deadline does.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		// The client retries by itself, with its request ids; gRPC's own retries would hide what was sent.
		grpc.WithDisableRetry(),
		callstream.WithStatus(),
		grpc.WithStatsHandler(sentProbe{}),
	}
	conn, err := grpc.NewClient(addr, slices.Concat(own, c.secure.dialOptions(addr, &c.opts), c.opts.DialOptions)...)
	if err != nil {
		return nil, fmt.Errorf("client: address %q: %w", addr, err)
	}
	// A caller's options may have interceptors, which see unary calls only.
	calls := callstream.NewConn(conn, callstream.Options{Name: callstream.ForClients, Token: c.secure.token, Sent: markSent,
		Carries: func(string) bool { return len(c.opts.DialOptions) == 0 }})
	return &node{
		addr:        addr,
		conn:        conn,
		calls:       calls,
		executions:  perdurev1.NewExecutionsClient(calls),
		promises:    perdurev1.NewPromisesClient(calls),
		clientTasks: perdurev1.NewClientTasksClient(calls),
		entities:    perdurev1.NewEntitiesClient(calls),
		tasks:       perdurev1.NewTasksClient(conn),
		cluster:     perdurev1.NewClusterClient(conn),
		graphs:      perdurev1.NewGraphsClient(conn),
	}, nil
}

// Close ends the connections; calls in flight and later ones fail with ErrClosed. It is idempotent.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	errs := c.leaders.close()
	for _, n := range c.nodes {
		errs = append(errs, n.close())
	}
	c.secure.close()
	return errors.Join(errs...)
}

func (n *node) close() error { return errors.Join(n.calls.Close(), n.conn.Close()) }

// Namespace is the namespace every call names.
func (c *Client) Namespace() string { return c.opts.Namespace }

// Clock is the clock the client was made with.
func (c *Client) Clock() Clock { return c.clock }

// Rand is the source of randomness the client was made with.
func (c *Client) Rand() io.Reader { return c.opts.Rand }

// Logger is the logger the client was made with; never nil.
func (c *Client) Logger() *slog.Logger { return c.log }

// Conn is the connection that calls go to now, for services this package has no methods for. Calls made
// on it are not retried and do not fail over.
func (c *Client) Conn() grpc.ClientConnInterface { return c.node().conn }

func (c *Client) node() *node { return c.nodes[c.at.Load()%uint64(len(c.nodes))] }

// leave makes later calls go to the node after n, unless another call has done so already.
func (c *Client) leave(n *node) {
	at := c.at.Load()
	if c.nodes[at%uint64(len(c.nodes))] == n {
		c.at.CompareAndSwap(at, at+1)
	}
}

// Nodes is how many addresses the client was given.
func (c *Client) Nodes() int { return len(c.nodes) }

// Work opens a raw worker stream, as package durable and tools use it. Each call tries the nodes in order,
// beginning one further than the call before. It returns the first stream that opens, or ErrUnavailable with
// the last failure; it does not wait and does not retry. The stream stays open until it breaks or ctx ends.
func (c *Client) Work(ctx context.Context) (perdurev1.Tasks_WorkClient, error) {
	var last error
	for range c.nodes {
		n := c.nodes[(c.streams.Add(1)-1)%uint64(len(c.nodes))]
		stream, err := n.tasks.Work(ctx)
		if err == nil {
			return stream, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if c.closed.Load() {
			return nil, ErrClosed
		}
		last = fmt.Errorf("%s: %w", n.addr, err)
	}
	return nil, &callError{op: "work", kind: ErrUnavailable, cause: last, attempts: len(c.nodes)}
}
