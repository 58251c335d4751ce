package embed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/embed"
	"perdure/internal/freeport"
	"perdure/internal/testkit"
)

const (
	// testTimeout bounds every wait of these tests. It is long because the machine may be busy; no test waits
	// for it to pass.
	testTimeout = 4 * time.Minute
	// stopTime bounds the stop of a node, which gives a part of it to calls that do not end by themselves.
	stopTime = 30 * time.Second
	// longLease is the lease of workers in tests that are not about lost workers: longer than any stall of
	// the machine. It is well below testTimeout, because a worker that stops may leave a task to the end of
	// its lease.
	longLease = 30 * time.Second
)

// shared is a node that tests use together, each in a namespace of its own.
var shared = sync.OnceValues(func() (*running, error) {
	dir, err := os.MkdirTemp("", "perdure-e2e-")
	if err != nil {
		return nil, err
	}
	return start(nodeConfig(dir))
})

// sharedUsed: a test has asked for the shared node.
var sharedUsed atomic.Bool

func TestMain(m *testing.M) {
	if code, is := pausedWorker(); is {
		os.Exit(code)
	}
	testkit.ShareBuilds()
	testkit.WaitingTests(8)
	code := m.Run()
	if builtDir != "" {
		_ = os.RemoveAll(builtDir)
	}
	if sharedUsed.Load() {
		if n, err := shared(); err == nil {
			if err := errors.Join(n.NotReady(), n.stop()); err != nil {
				fmt.Fprintf(os.Stderr, "the shared node did not live and stop in order: %v\n%s", err, n.log.tail())
				code = 1
			}
			_ = os.RemoveAll(n.cfg.DataDir)
		}
	}
	testkit.Exit(code)
}

// running is a node with its log.
type running struct {
	*embed.Node
	cfg embed.Config
	log *logBuffer
}

// nodeConfig is a node on free ports that checks the rules' invariants after every command.
func nodeConfig(dir string) embed.Config {
	cfg := embed.Config{
		DataDir: dir, Partitions: 4, CheckInvariants: true, DiskReserve: 1 << 20,
		HTTPNodes: embed.On, HTTPNetworks: []string{"127.0.0.0/8", "::1/128"},
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
	}
	embed.ReloadEvery(&cfg, 200*time.Millisecond)
	return cfg
}

func start(cfg embed.Config) (*running, error) {
	log := &logBuffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	n, err := embed.Start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log.tail())
	}
	return &running{n, cfg, log}, nil
}

func (n *running) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return n.Close(ctx)
}

// startNode starts a node for one test, which is closed at the test's end at the latest.
func startNode(t *testing.T, cfg embed.Config) *running {
	t.Helper()
	n, err := start(cfg)
	if err != nil {
		t.Fatalf("the node did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Errorf("the node did not stop in order: %v", err)
		}
		if t.Failed() {
			t.Logf("the node's log ends:\n%s", n.log.tail())
		}
	})
	return n
}

// world is a namespace of a node, seen by a client.
type world struct {
	*client.Client
	t    *testing.T
	addr string
}

// newWorld is a namespace of the shared node.
func newWorld(t *testing.T) *world {
	t.Helper()
	sharedUsed.Store(true)
	n, err := shared()
	if err != nil {
		t.Fatalf("the shared node did not start: %v", err)
	}
	return connect(t, n.GRPCAddr())
}

// connect is a client's view of the node at an address, in a namespace named after the test.
func connect(t *testing.T, addr string) *world {
	t.Helper()
	c, err := client.Dial(client.Options{Addrs: []string{addr}, Namespace: t.Name(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return &world{c, t, addr}
}

// soon is a context that ends after testTimeout, or with the test.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a state. check says why it is not reached yet, or nil.
func until(t *testing.T, what string, check func() error) {
	t.Helper()
	testkit.EventuallyNil(t, testTimeout, what, check)
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("waited %v for %s", testTimeout, what)
		panic("unreachable")
	}
}

// worker is a running durable.Worker with what happened to it.
type worker struct {
	*durable.Worker
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	once   sync.Once

	mu     sync.Mutex
	events []durable.Event
}

// work runs functions in the world's namespace through a client of the worker's own, until the test ends.
func (w *world) work(opts durable.WorkerOptions, fns ...durable.Registration) *worker {
	w.t.Helper()
	return w.workAt(w.addr, opts, fns...)
}

// workAt is work through another address.
func (w *world) workAt(addr string, opts durable.WorkerOptions, fns ...durable.Registration) *worker {
	w.t.Helper()
	return w.workVia(client.Options{Addrs: []string{addr}}, opts, fns...)
}

// workVia is work through a client with options of its own.
func (w *world) workVia(via client.Options, opts durable.WorkerOptions, fns ...durable.Registration) *worker {
	w.t.Helper()
	if via.Addrs == nil {
		via.Addrs = []string{w.addr}
	}
	log := &logBuffer{}
	via.Namespace, via.Logger = w.Namespace(), slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := client.Dial(via)
	if err != nil {
		w.t.Fatal(err)
	}
	x := &worker{t: w.t, ended: make(chan error, 1)}
	if opts.Lease == 0 {
		opts.Lease = longLease
	}
	opts.OnEvent = func(e durable.Event) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.events = append(x.events, e)
	}
	x.Worker = durable.NewWorker(c, opts)
	x.Register(fns...)
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(context.Background())
	go func() {
		defer c.Close()
		x.ended <- x.Run(ctx)
	}()
	w.t.Cleanup(func() {
		x.stop()
		if w.t.Failed() {
			w.t.Logf("the log of %s ends:\n%s", x.ID(), log.tail())
		}
	})
	select {
	case <-x.Ready():
	case err := <-x.ended:
		w.t.Fatalf("the worker ended: %v", err)
	case <-time.After(testTimeout):
		w.t.Fatalf("waited %v for the worker's welcome", testTimeout)
	}
	return x
}

// stop ends the worker gracefully.
func (x *worker) stop() {
	x.once.Do(func() {
		x.t.Helper()
		x.cancel()
		if err := receive(x.t, "the worker's end", x.ended); err != nil {
			x.t.Errorf("the worker ended with %v", err)
		}
	})
}

// count is how many events of a kind there were, of one execution or of all ("").
func (x *worker) count(kind durable.EventKind, id string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, e := range x.events {
		if e.Kind == kind && (id == "" || e.ID == id) {
			n++
		}
	}
	return n
}

// saw waits until there were n events of a kind.
func (x *worker) saw(kind durable.EventKind, id string, n int) {
	x.t.Helper()
	until(x.t, fmt.Sprintf("%d events %q", n, kind), func() error {
		if got := x.count(kind, id); got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// noProblems fails the test with the problems that the worker reported.
func (x *worker) noProblems() {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.events {
		if e.Kind == durable.EventProblem {
			x.t.Errorf("%s was given back: %v", e.ID, e.Err)
		}
	}
}

// begin starts a function under an id; the start must be new.
func begin[In, Out any](w *world, f *durable.Function[In, Out], id string, in In, opts ...durable.StartOption) *durable.Handle[Out] {
	w.t.Helper()
	h, err := f.Start(soon(w.t), w.Client, id, in, opts...)
	if err != nil {
		w.t.Fatalf("start %s: %v", id, err)
	}
	if !h.Started().Created {
		w.t.Fatalf("start %s: it exists already", id)
	}
	return h
}

// result waits for a result, which must be a value.
func result[Out any](t *testing.T, h *durable.Handle[Out]) Out {
	t.Helper()
	out, err := h.Result(soon(t))
	if err != nil {
		t.Fatalf("result of %s: %v", h.ID(), err)
	}
	return out
}

// ending waits for the end of an execution that does not return a value.
func (w *world) ending(id string) *client.ExecutionError {
	w.t.Helper()
	value, err := w.Result(soon(w.t), id)
	var ended *client.ExecutionError
	if !errors.As(err, &ended) {
		w.t.Fatalf("result of %s is %q, %v; want a failure", id, value, err)
	}
	return ended
}

// describe reads an execution.
func (w *world) describe(id string) *perdurev1.Execution {
	w.t.Helper()
	e, err := w.Describe(soon(w.t), id)
	if err != nil {
		w.t.Fatalf("describe %s: %v", id, err)
	}
	return e
}

// reaches waits until an execution has a status.
func (w *world) reaches(id string, status client.Status) *perdurev1.Execution {
	w.t.Helper()
	var e *perdurev1.Execution
	until(w.t, fmt.Sprintf("%s to be %s", id, status), func() error {
		var err error
		if e, err = w.Describe(soon(w.t), id); err != nil {
			return err
		}
		if e.GetStatus() != status {
			return fmt.Errorf("it is %v", e)
		}
		return nil
	})
	return e
}

// waitsFor waits until an execution is blocked on a signal.
func (w *world) waitsFor(id, signal string) {
	w.t.Helper()
	until(w.t, id+" to wait for "+signal, func() error {
		e, err := w.Describe(soon(w.t), id)
		if err != nil {
			return err
		}
		if e.GetWaiting().GetSignalName() != signal {
			return fmt.Errorf("it is %v", e)
		}
		return nil
	})
}

// signal sends a signal.
func (w *world) signal(id, name, payload string) {
	w.t.Helper()
	if err := w.Signal(soon(w.t), id, name, []byte(payload)); err != nil {
		w.t.Fatalf("signal %s to %s: %v", name, id, err)
	}
}

// list collects a listing.
func (w *world) list(o client.ListOptions) []*perdurev1.ExecutionSummary {
	w.t.Helper()
	var all []*perdurev1.ExecutionSummary
	for e, err := range w.List(soon(w.t), o) {
		if err != nil {
			w.t.Fatalf("list: %v", err)
		}
		all = append(all, e)
	}
	return all
}

// tally counts by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

// add counts one and returns the new count.
func (c *tally) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

func (c *tally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *tally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for k, v := range c.n {
		out[k] = v
	}
	return out
}

// logBuffer keeps the end of a log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 1 << 20
	if l.b.Len() > most {
		l.b.Next(l.b.Len() - most/2)
	}
	return l.b.Write(p)
}

func (l *logBuffer) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(text))
}

func (l *logBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// fixedAddr finds a port without a listener that the system does not assign by itself, so that a node can
// return to it.
func fixedAddr(t *testing.T) string { return freeport.Embed.Addr(t) }

// wantReason checks why a call was refused.
func wantReason(t *testing.T, what string, err error, reason string) {
	t.Helper()
	var refused *api.Error
	if !errors.As(err, &refused) {
		t.Errorf("%s: %v, want a refusal with %s", what, err, reason)
		return
	}
	if got := api.ReasonName(refused.Reason); got != reason {
		t.Errorf("%s: %v, want %s", what, err, reason)
	}
}
