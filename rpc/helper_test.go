package rpc_test

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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/internal/testkit"
)

// testTimeout bounds every wait of these tests; no test waits for it to pass.
const testTimeout = time.Minute

// prompt is how long a stop may take that waits for no caller. It is far below testTimeout, at whose end the
// node closes the remaining connections.
const prompt = testTimeout / 2

// shared is a node that tests use together, each in a namespace of its own.
var shared = sync.OnceValues(func() (*embed.Node, error) {
	dir, err := os.MkdirTemp("", "perdure-rpc-")
	if err != nil {
		return nil, err
	}
	sharedDir = dir
	return begin(nodeConfig(dir))
})

var sharedDir string

func TestMain(m *testing.M) {
	testkit.WaitingTests(8)
	code := m.Run()
	if sharedDir != "" {
		if n, err := shared(); err == nil {
			if err := errors.Join(n.NotReady(), finish(n)); err != nil {
				fmt.Fprintln(os.Stderr, "the shared node did not live and stop in order:", err)
				code = 1
			}
		}
		_ = os.RemoveAll(sharedDir)
	}
	testkit.Exit(code)
}

// nodeConfig is a node on free ports.
func nodeConfig(dir string) embed.Config {
	return embed.Config{
		DataDir: dir, Partitions: 3, CheckInvariants: true, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
	}
}

func begin(cfg embed.Config) (*embed.Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	return embed.Start(ctx, cfg)
}

func finish(n *embed.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	return n.Close(ctx)
}

// startNode starts a node of the test's own, closed at its end at the latest.
func startNode(t *testing.T, change func(*embed.Config)) *embed.Node {
	t.Helper()
	cfg := nodeConfig(t.TempDir())
	if change != nil {
		change(&cfg)
	}
	n, err := begin(cfg)
	if err != nil {
		t.Fatalf("the node did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := finish(n); err != nil {
			t.Errorf("the node did not stop in order: %v", err)
		}
	})
	return n
}

// world is a node as a client sees it that knows nothing but the protocol, in a namespace of the test's.
type world struct {
	t          *testing.T
	node       *embed.Node
	conn       *grpc.ClientConn
	executions perdurev1.ExecutionsClient
	promises   perdurev1.PromisesClient
	tasks      perdurev1.TasksClient
	ns         string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	n, err := shared()
	if err != nil {
		t.Fatalf("the shared node did not start: %v", err)
	}
	return connect(t, n)
}

func connect(t *testing.T, n *embed.Node) *world {
	t.Helper()
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &world{t: t, node: n, conn: conn, ns: namespaceOf(t), executions: perdurev1.NewExecutionsClient(conn),
		promises: perdurev1.NewPromisesClient(conn), tasks: perdurev1.NewTasksClient(conn)}
}

// finished counts the runs of each test that are over, by its name.
var finished = struct {
	mu   sync.Mutex
	runs map[string]int
}{runs: map[string]int{}}

// namespaceOf is a test's namespace: its name, and with -count the number of the run, for nodes that runs share.
func namespaceOf(t *testing.T) string {
	t.Helper()
	finished.mu.Lock()
	defer finished.mu.Unlock()
	run := finished.runs[t.Name()]
	t.Cleanup(func() {
		finished.mu.Lock()
		defer finished.mu.Unlock()
		finished.runs[t.Name()] = run + 1
	})
	if run == 0 {
		return t.Name()
	}
	return fmt.Sprintf("%s-%d", t.Name(), run)
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
	case v, ok := <-from:
		if !ok {
			t.Fatalf("no %s will come", what)
		}
		return v
	case <-time.After(testTimeout):
		t.Fatalf("waited %v for %s", testTimeout, what)
		panic("unreachable")
	}
}

// refused checks the reason, the code and the details of a refusal.
func refused(t *testing.T, what string, err error, reason perdurev1.Reason) {
	t.Helper()
	e, ok := api.FromStatus(err)
	if !ok {
		t.Errorf("%s: %v, want a refusal with %v", what, err, reason)
		return
	}
	if e.Reason != reason || status.Code(err) != api.Code(reason) || e.Message == "" {
		t.Errorf("%s: %v with code %v, want %v with code %v", what, err, status.Code(err), reason, api.Code(reason))
	}
}

var requests atomic.Uint64

// rid is a new request id.
func rid() *perdurev1.RequestID {
	return &perdurev1.RequestID{Id: []byte(fmt.Sprintf("request-%08d", requests.Add(1)))}
}

// start starts an execution, of a function that need not be known.
func (w *world) start(id, function string) *perdurev1.StartResponse {
	w.t.Helper()
	r, err := w.executions.Start(soon(w.t), &perdurev1.StartRequest{Namespace: w.ns, Id: id, Function: function, AllowUnknownFunction: true, Request: rid()})
	if err != nil {
		w.t.Fatalf("start %s: %v", id, err)
	}
	return r
}

func (w *world) describe(id string) *perdurev1.Execution {
	w.t.Helper()
	r, err := w.executions.Describe(soon(w.t), &perdurev1.DescribeRequest{Namespace: w.ns, Id: id})
	if err != nil {
		w.t.Fatalf("describe %s: %v", id, err)
	}
	return r.Execution
}

// journal reads a journal that fits into a page.
func (w *world) journal(id string) []*perdurev1.JournalEntry {
	w.t.Helper()
	r, err := w.executions.Journal(soon(w.t), &perdurev1.JournalRequest{Namespace: w.ns, Id: id})
	if err != nil {
		w.t.Fatalf("journal of %s: %v", id, err)
	}
	if int(r.NextSeq) != len(r.Entries) {
		w.t.Fatalf("the journal of %s has %d entries, a page brought %d", id, r.NextSeq, len(r.Entries))
	}
	return r.Entries
}

// listed is how many executions the namespace has.
func (w *world) listed() int {
	w.t.Helper()
	r, err := w.executions.List(soon(w.t), &perdurev1.ListRequest{Namespace: w.ns})
	if err != nil {
		w.t.Fatalf("list: %v", err)
	}
	return len(r.Executions)
}

// stream is a worker that knows nothing but the protocol.
type stream struct {
	w      *world
	raw    perdurev1.Tasks_WorkClient
	cancel context.CancelFunc
	calls  atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]chan *perdurev1.WorkResponse
	tasks   chan *perdurev1.Task
	pushed  chan *perdurev1.WorkResponse // pushed without a request, except tasks
	welcome *perdurev1.Welcome
	ended   chan error
}

// open opens a stream without a word.
func (w *world) open() *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	raw, err := w.tasks.Work(ctx)
	if err != nil {
		w.t.Fatalf("work: %v", err)
	}
	s := &stream{w: w, raw: raw, cancel: cancel, waiting: map[uint64]chan *perdurev1.WorkResponse{},
		tasks: make(chan *perdurev1.Task, 1000), pushed: make(chan *perdurev1.WorkResponse, 1000), ended: make(chan error, 1)}
	go s.receive()
	return s
}

func (s *stream) receive() {
	for {
		m, err := s.raw.Recv()
		if err != nil {
			s.ended <- err
			return
		}
		s.mu.Lock()
		asked := s.waiting[m.CallId]
		delete(s.waiting, m.CallId)
		s.mu.Unlock()
		switch {
		case asked != nil:
			asked <- m
		case m.GetTask() != nil:
			s.tasks <- m.GetTask()
		default:
			s.pushed <- m
		}
	}
}

// ask sends a message; its answer comes by the channel.
func (s *stream) ask(m *perdurev1.WorkRequest) <-chan *perdurev1.WorkResponse {
	s.w.t.Helper()
	answer := s.expect(m)
	if err := s.raw.Send(m); err != nil {
		s.w.t.Fatalf("send: %v", err)
	}
	return answer
}

// expect numbers a message that will be sent; its answer comes by the channel.
func (s *stream) expect(m *perdurev1.WorkRequest) <-chan *perdurev1.WorkResponse {
	m.CallId = s.calls.Add(1)
	answer := make(chan *perdurev1.WorkResponse, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[m.CallId] = answer
	return answer
}

// hello opens a stream and introduces a worker.
func (w *world) hello(h *perdurev1.Hello) *stream {
	w.t.Helper()
	s := w.open()
	if h.Namespace == "" {
		h.Namespace = w.ns
	}
	answer := s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Hello{Hello: h}})
	select {
	case m := <-answer:
		if s.welcome = m.GetWelcome(); s.welcome == nil {
			w.t.Fatalf("a hello was answered by %v", m)
		}
	case err := <-s.ended:
		w.t.Fatalf("a hello was answered by %v", err)
	case <-time.After(testTimeout):
		w.t.Fatalf("waited %v for a welcome", testTimeout)
	}
	return s
}

// task waits for a task.
func (s *stream) task() *perdurev1.Task {
	s.w.t.Helper()
	return receive(s.w.t, "task", s.tasks)
}

// noTask fails the test if a task has come so far.
func (s *stream) noTask() {
	s.w.t.Helper()
	select {
	case task := <-s.tasks:
		s.w.t.Errorf("the task %v came", task)
	default:
	}
}

// commit sends a commit and waits for its answer.
func (s *stream) commit(c *perdurev1.Commit) *perdurev1.WorkResponse {
	s.w.t.Helper()
	if c.Request == nil {
		c.Request = rid()
	}
	return receive(s.w.t, "answer to a commit", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{Commit: c}}))
}

// callRefused checks a CallError.
func callRefused(t *testing.T, what string, m *perdurev1.WorkResponse, reason perdurev1.Reason) {
	t.Helper()
	e := m.GetError()
	if e == nil || e.Reason != reason || codes.Code(e.Code) != api.Code(reason) || e.Message == "" {
		t.Errorf("%s: %v, want %v with code %v", what, m, reason, api.Code(reason))
	}
}

// Events that workers write.
func stepEvents(promise, name string, result []byte) []*perdurev1.Event {
	return []*perdurev1.Event{scheduled(promise, perdurev1.InvokeKind_INVOKE_KIND_STEP, name), started(promise), done(promise, result)}
}

func scheduled(promise string, kind perdurev1.InvokeKind, name string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: promise, Kind: kind, FunctionName: name, RetryPolicy: "attempts=2"}}}
}

func started(promise string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: 1}}}
}

func done(promise string, result []byte) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: promise, Attempt: 1,
		Result: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: result}}}}}
}

func completed(result string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(result)}}}
}

func big(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }

func long(n int) string { return strings.Repeat("x", n) }

// fromStatus is the reason of a refusal.
func fromStatus(err error) (perdurev1.Reason, bool) {
	e, ok := api.FromStatus(err)
	if !ok {
		return 0, false
	}
	return e.Reason, true
}
