package embed_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/embed"
)

// serviceCall is a request that a service has got.
type serviceCall struct {
	path, key, body string
	ended           <-chan struct{} // closed when no caller waits for the answer any more
	answer          chan func(http.ResponseWriter)
}

func (c serviceCall) reply(status int, body string) {
	c.answer <- func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// service is the HTTP service that graphs call in a test: each request waits for the test's answer.
type service struct {
	*httptest.Server
	calls chan serviceCall
}

func newService(t *testing.T) *service {
	s := &service{calls: make(chan serviceCall, 1000)}
	over := make(chan struct{})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // with it read, the request's context ends with the connection
		c := serviceCall{path: r.URL.Path, key: r.Header.Get("Idempotency-Key"), body: string(body), ended: r.Context().Done(),
			answer: make(chan func(http.ResponseWriter), 1)}
		s.calls <- c
		select {
		case answer := <-c.answer:
			answer(w)
		case <-r.Context().Done():
		case <-over:
		}
	}))
	t.Cleanup(func() {
		close(over)
		s.Close()
	})
	return s
}

func (s *service) next(t *testing.T) serviceCall {
	t.Helper()
	return receive(t, "a call of the service", s.calls)
}

func httpNode(id, url string, more ...func(*perdurev1.GraphNode)) *perdurev1.GraphNode {
	n := &perdurev1.GraphNode{Id: id, Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: url, Method: "POST"}}}
	for _, change := range more {
		change(n)
	}
	return n
}

func attempts(n uint32) func(*perdurev1.GraphNode) {
	return func(g *perdurev1.GraphNode) { g.Retry = &perdurev1.NodeRetry{Attempts: n, InitialMs: 1} }
}

func (w *world) submit(id string, nodes ...*perdurev1.GraphNode) {
	w.t.Helper()
	if _, err := w.SubmitGraph(soon(w.t), client.SubmitGraphOptions{ID: id, Graph: &perdurev1.Graph{Nodes: nodes}}); err != nil {
		w.t.Fatalf("submit %s: %v", id, err)
	}
}

// node reads the state of a node.
func (w *world) node(run, node string) *perdurev1.GraphNodeState {
	w.t.Helper()
	o, err := w.NodeOutcome(soon(w.t), run, node)
	if err != nil {
		w.t.Fatalf("node %s of %s: %v", node, run, err)
	}
	return o.GetState()
}

func (w *world) value(run string) string {
	w.t.Helper()
	value, err := w.Result(soon(w.t), run)
	if err != nil {
		w.t.Fatalf("result of %s: %v", run, err)
	}
	return string(value)
}

// A graph calls services: with inputs and without, which answer with JSON and with text.
func TestGraphCallsServices(t *testing.T) {
	w, s := newWorld(t), newService(t)
	w.submit("r", httpNode("a", s.URL+"/a"), httpNode("b", s.URL+"/b", func(n *perdurev1.GraphNode) {
		n.After = []string{"a"}
		n.Inputs = []*perdurev1.NodeInput{{Name: "price", Source: &perdurev1.NodeInput_Node{Node: "a"}, Path: "price"}}
		n.GetHttp().SendInputs = true
	}))
	a := s.next(t)
	if want := w.node("r", "a").PromiseId; a.path != "/a" || a.body != "" || a.key != want || want == "" {
		t.Errorf("the service was called with %+v, the node's promise is %q", a, want)
	}
	a.reply(http.StatusOK, `{"price": 7}`)
	b := s.next(t)
	if b.path != "/b" || b.body != `{"price":7}` || b.key != w.node("r", "b").PromiseId || b.key == a.key {
		t.Errorf("the service was called with %+v", b)
	}
	b.reply(http.StatusAccepted, "done")
	if got := w.value("r"); got != `{"b":"done"}` {
		t.Errorf("the run's result is %s", got)
	}
}

// The graph decides whether there is another call; all have the same key.
func TestGraphRepeatsCalls(t *testing.T) {
	w, s := newWorld(t), newService(t)
	w.submit("r", httpNode("a", s.URL, attempts(3)))
	first := s.next(t)
	first.reply(http.StatusServiceUnavailable, "busy")
	second := s.next(t)
	if got := w.node("r", "a"); second.key != first.key || second.key != got.PromiseId || got.Attempt != 2 {
		t.Errorf("keys %q and %q, the node is %v", first.key, second.key, got)
	}
	second.reply(http.StatusOK, "")
	if got := w.value("r"); got != `{"a":null}` {
		t.Errorf("the run's result is %s", got)
	}

	w.submit("fails", httpNode("a", s.URL))
	s.next(t).reply(http.StatusServiceUnavailable, "busy")
	if ended := w.ending("fails"); !strings.Contains(ended.Error(), "http_503") {
		t.Errorf("the run failed with %v", ended)
	}
	if f := w.node("fails", "a").GetFailure(); f.GetType() != "http_503" || f.GetMessage() != "503 Service Unavailable\nbusy" {
		t.Errorf("the node failed with %v", f)
	}
	select {
	case c := <-s.calls:
		t.Errorf("there was another call: %+v", c)
	default:
	}
}

// A node's time bounds its calls; a run that is cancelled ends them.
func TestGraphEndsCalls(t *testing.T) {
	w, s := newWorld(t), newService(t)
	// On a busy machine a node's time may be over before its call is made: then there is more of it.
	for limit, called := 200*time.Millisecond, false; !called; limit *= 4 {
		if limit > testTimeout {
			t.Fatal("the call is never made in time")
		}
		id := fmt.Sprintf("late-%d", limit.Milliseconds())
		w.submit(id, httpNode("a", s.URL+"/"+id, func(n *perdurev1.GraphNode) { n.TimeoutMs = limit.Milliseconds() }))
		if ended := w.ending(id); !strings.Contains(ended.Error(), `node "a"`) {
			t.Errorf("the run failed with %v", ended)
		}
		for len(s.calls) > 0 {
			call := s.next(t)
			receive(t, "the end of the call", call.ended)
			called = called || call.path == "/"+id
		}
	}

	w.submit("cancelled", httpNode("a", s.URL+"/cancelled"))
	call := s.next(t)
	for call.path != "/cancelled" { // one that came too late
		call = s.next(t)
	}
	if _, err := w.Cancel(soon(t), "cancelled", "not needed", testTimeout); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the call", call.ended)
	w.reaches("cancelled", perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED)
}

// A node that stops gives its calls back: they are not failures, and are made again with the same key.
func TestCallsOfANodeThatStops(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newService(t)
	n := startNode(t, nodeConfig(t.TempDir()))
	w := connect(t, n.GRPCAddr())
	w.submit("r", httpNode("a", s.URL))
	first := s.next(t)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the call", first.ended)

	// Without HTTP nodes the call fails for good, by name, and no graph with such nodes is taken.
	cfg := n.cfg
	cfg.HTTPNodes = embed.Off
	n = startNode(t, cfg)
	w = connect(t, n.GRPCAddr())
	_, err := w.Result(soon(t), "r")
	var failed *client.ExecutionError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "--http-nodes") {
		t.Errorf("the run ended with %v", err)
	}
	if got := w.node("r", "a"); got.Failure.GetType() != "http_forbidden" {
		t.Errorf("the node is %v", got)
	}
	_, err = w.SubmitGraph(soon(t), client.SubmitGraphOptions{ID: "x", Graph: &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{httpNode("call", s.URL)}}})
	var no *api.Error
	if !errors.As(err, &no) || no.Reason != perdurev1.Reason_REASON_BAD_REQUEST || no.Meta["rule"] != "http_nodes" || no.Meta["node"] != "call" {
		t.Errorf("submitted: %v", err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}

	cfg.HTTPNodes = embed.On
	n = startNode(t, cfg)
	w = connect(t, n.GRPCAddr())
	if _, err := w.RetryGraph(soon(t), "r"); err != nil {
		t.Fatal(err)
	}
	second := s.next(t)
	second.reply(http.StatusOK, "1")
	if got := w.value("r"); got != `{"a":1}` {
		t.Errorf("the run's result is %s", got)
	}
	// A call that ends by itself, soon, is let end.
	w.submit("last", httpNode("a", s.URL))
	last := s.next(t)
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	last.reply(http.StatusOK, "2")
	if err := receive(t, "the stop", stopped); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, cfg)
	w = connect(t, n.GRPCAddr())
	if got := w.value("last"); got != `{"a":2}` || len(s.calls) != 0 {
		t.Errorf("the run's result is %s, and %d calls came since", got, len(s.calls))
	}
}

// However many calls wait, in however many namespaces, 64 at most are under way, and none waits for ever.
func TestCallsAreBounded(t *testing.T) {
	const most, each = 64, 90
	n := startNode(t, nodeConfig(t.TempDir()))
	var now, peak atomic.Int64
	full := make(chan struct{})
	var once sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := now.Add(1)
		defer now.Add(-1)
		for old := peak.Load(); at > old && !peak.CompareAndSwap(old, at); old = peak.Load() {
		}
		if at == most {
			once.Do(func() { close(full) })
		}
		select {
		case <-full:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	var worlds []*world
	for i := range 3 {
		c, err := client.Dial(client.Options{Addrs: []string{n.GRPCAddr()}, Namespace: fmt.Sprint(t.Name(), i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		w := &world{c, t, n.GRPCAddr()}
		var nodes []*perdurev1.GraphNode
		for k := range each {
			nodes = append(nodes, httpNode(fmt.Sprint("n", k), s.URL))
		}
		w.submit("r", nodes...)
		worlds = append(worlds, w)
	}
	receive(t, "calls that take all credit", full)
	for _, w := range worlds {
		w.value("r")
	}
	if p := peak.Load(); p != most {
		t.Errorf("%d calls were under way at once, want %d", p, most)
	}
}

// The calls of a member that stops are made by another.
func TestCallsMoveToAnotherMember(t *testing.T) {
	t.Parallel() // it waits most of the time
	cfgs := memberConfigs(t)
	nodes := startAll(t, cfgs...)
	s := newService(t)
	w := &world{clusterClient(t, cfgs...), t, ""}
	w.submit("r", httpNode("a", s.URL))
	first := s.next(t)
	var by *running
	until(t, "a member to make the call", func() error {
		source := w.describe(w.node("r", "a").AttemptId).WakeSource
		for i, n := range nodes {
			if strings.HasPrefix(source, "worker $http@"+cfgs[i].NodeID+".") {
				by = n
				return nil
			}
		}
		return fmt.Errorf("it is made by %q", source)
	})
	if err := by.stop(); err != nil {
		t.Error(err)
	}
	receive(t, "the end of the call", first.ended)
	// Another one follows, and more, should the member that makes it lose its leadership.
	over := make(chan struct{})
	go func() {
		defer close(over)
		if value, err := w.Result(soon(t), "r"); err != nil || string(value) != `{"a":"there"}` {
			t.Errorf("the run's result is %s, %v", value, err)
		}
	}()
	calls := 0
	for answered := false; !answered; {
		select {
		case call := <-s.calls:
			if calls++; call.key != first.key {
				t.Errorf("keys %q and %q", first.key, call.key)
			}
			call.reply(http.StatusOK, `"there"`)
		case <-over:
			answered = true
		}
	}
	if calls == 0 {
		t.Error("there was no other call")
	}
	if got := w.node("r", "a"); got.Attempt != 1 {
		t.Errorf("the node is %v", got)
	}
}
