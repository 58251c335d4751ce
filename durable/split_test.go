package durable

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/credit"
)

func init() { credit.Assert = true }

// fakeCluster is several nodes, each of which leads executions of its own, whose ids begin with its name. A
// node forwards what a worker sends it for another node's task: a worker does that while it has no session
// with the owner.
type fakeCluster struct {
	t     *testing.T
	limit int // the worker's capacity
	nodes []*fakeNode

	mu sync.Mutex
}

// fakeNode is one node. out is the credit that it has, with the tasks that the worker holds of it.
type fakeNode struct {
	*fakeServer
	c    *fakeCluster
	id   string
	out  int
	down atomic.Bool
	// mute: it does not say which node it is. asked counts the questions.
	mute  atomic.Bool
	asked atomic.Int32
}

func newFakeCluster(t *testing.T, limit int, ids ...string) *fakeCluster {
	c := &fakeCluster{t: t, limit: limit}
	for _, id := range ids {
		n := &fakeNode{fakeServer: newFake(t), c: c, id: id}
		n.split = n
		c.nodes = append(c.nodes, n)
	}
	return c
}

// ListNodes implements Tasks.
func (f *fakeServer) ListNodes(context.Context, *perdurev1.ListNodesRequest) (*perdurev1.NodeList, error) {
	if f.split == nil {
		return nil, status.Error(codes.Unimplemented, "fake: a node of an earlier version")
	}
	if f.split.asked.Add(1); f.split.mute.Load() {
		return nil, status.Error(codes.Internal, "fake: no answer")
	}
	return f.split.list(), nil
}

// A worker that starts asks a node that does not answer once: a frozen one holds it up for one timeout, not for two.
func TestDiscoverAsksOnce(t *testing.T) {
	c := newFakeCluster(t, 4, "a", "b", "c")
	frozen := c.nodes[2]
	frozen.mute.Store(true)
	w := NewWorker(c.client("passthrough:///a", "passthrough:///b", "passthrough:///c"), WorkerOptions{})
	defer w.closeConns()
	nodes, view := w.discover(t.Context())
	if len(nodes) != 2 || len(view.GetNodes()) != 3 || frozen.asked.Load() != 1 {
		t.Errorf("found %d nodes of %d, asked the frozen one %d times", len(nodes), len(view.GetNodes()), frozen.asked.Load())
	}
}

func (n *fakeNode) list() *perdurev1.NodeList {
	out := &perdurev1.NodeList{NodeId: n.id}
	for _, o := range n.c.nodes {
		a := &perdurev1.ClusterAddress{NodeId: o.id, GrpcAddr: "passthrough:///" + o.id}
		if !o.down.Load() && !o.mute.Load() {
			a.Leads = 1
		}
		out.Nodes = append(out.Nodes, a)
	}
	return out
}

func (n *fakeNode) name() string {
	if n == nil {
		return "fake"
	}
	return n.id
}

// owner is the other node whose task a token names; nil if it is n's own, or if there is only one node.
func (n *fakeNode) owner(token *perdurev1.TaskToken) *fakeNode {
	if n == nil {
		return nil
	}
	k := slices.IndexFunc(n.c.nodes, func(o *fakeNode) bool { return o != n && strings.HasPrefix(token.GetId(), o.id+"-") })
	if k < 0 {
		return nil
	}
	return n.c.nodes[k]
}

// forward has the owner handle a message for its task, and reports whether there is one. The credit in it is n's. No
// lock is held: forward takes the owner's, then n's.
func (n *fakeNode) forward(c *fakeConn, m *perdurev1.WorkRequest) bool {
	var token *perdurev1.TaskToken
	switch k := m.GetKind().(type) {
	case *perdurev1.WorkRequest_Commit:
		token = k.Commit.GetTask()
	case *perdurev1.WorkRequest_Release:
		token = k.Release.GetTask()
	case *perdurev1.WorkRequest_ReadJournal:
		token = &perdurev1.TaskToken{Id: k.ReadJournal.GetId()}
	}
	owner := n.owner(token)
	if owner == nil {
		return false
	}
	at := &fakeConn{f: owner.fakeServer, worker: c.worker, functions: c.functions, out: c.out, broken: c.broken}
	owner.mu.Lock()
	owner.handle(at, m)
	owner.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	c.credit += at.credit
	n.dispatch()
	return true
}

func (n *fakeNode) welcomed(c *fakeConn) {
	if n != nil && c.splits {
		c.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Nodes{Nodes: n.list()}})
	}
}

// changed counts the node's credit, and says whether tasks wait for some. The node's lock is held.
func (n *fakeNode) changed(f *fakeServer) {
	if n == nil {
		return
	}
	out, waits := 0, false
	for _, c := range f.conns {
		out += c.credit
	}
	for _, ex := range f.execs {
		switch ex.state {
		case perdurev1.TaskState_TASK_STATE_ACQUIRED:
			out++
		case perdurev1.TaskState_TASK_STATE_PENDING:
			waits = waits || !ex.parked
		}
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.out = out
	sum := 0
	for _, o := range n.c.nodes {
		sum += o.out
	}
	if sum > n.c.limit {
		n.c.t.Errorf("the nodes have credit and tasks for %d, the worker's capacity is %d", sum, n.c.limit)
	}
	for _, c := range f.conns {
		if wanted := waits && c.credit == 0; c.splits && wanted != c.wanted {
			c.wanted = wanted
			c.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_CreditWanted{CreditWanted: &perdurev1.CreditWanted{Wanted: wanted}}})
		}
	}
}

// client reaches every node by its name. Without addresses it has one of its own, which is the first node's.
func (c *fakeCluster) client(addrs ...string) *client.Client {
	return c.nodes[0].client(client.Options{Addrs: addrs}, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		k := slices.IndexFunc(c.nodes, func(n *fakeNode) bool { return n.id == to })
		if k < 0 {
			k = 0 // the client's own address
		}
		if c.nodes[k].down.Load() {
			return nil, errors.New("the node is down")
		}
		return c.nodes[k].lis.DialContext(ctx)
	}))
}

// TestCommitGrantsOnce: credit that a commit has granted is not granted again when its answer comes.
func TestCommitGrantsOnce(t *testing.T) {
	w := NewWorker(newFakeCluster(t, 2, "a").client(), WorkerOptions{Concurrency: 2})
	defer w.closeConns()
	s := &session{w: w, link: "a", creditWake: make(chan struct{}, 1)}
	held := &hold{busy: true, key: tokenKey{namespace: "default", id: "e"}}
	c := &call{id: 1, t: held, via: s, sent: 1, reply: make(chan answer, 1)}
	w.mu.Lock()
	w.sessions = append(w.sessions, s)
	w.stepLocked(credit.Announced{N: 2})
	w.stepLocked(credit.LinkOpened{Link: s.link, Leads: true, Of: 1})
	w.stepLocked(credit.Assigned{Link: s.link, Task: held.key.credit()})
	w.stepLocked(credit.Begun{Task: held.key.credit()})
	w.busy, w.calls[c.id] = 1, c
	before := s.toGrant
	w.mu.Unlock()
	w.answer(s, &perdurev1.WorkResponse{CallId: c.id, Kind: &perdurev1.WorkResponse_Commit{Commit: &perdurev1.CommitReply{
		State: perdurev1.TaskState_TASK_STATE_FULFILLED}}})
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.toGrant != before || w.ledger.Announced() != 2 {
		t.Errorf("%d units are granted beside that of the commit, %d are announced of 2", s.toGrant-before, w.ledger.Announced())
	}
}

// A worker announces the capacity that no task takes, and no unit of it twice.
func TestBusyTasksTakeCapacity(t *testing.T) {
	w := NewWorker(newFakeCluster(t, 3, "a").client(), WorkerOptions{Concurrency: 3})
	defer w.closeConns()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range []struct{ busy, announced int }{{2, 1}, {2, 1}, {1, 2}, {0, 3}} {
		w.busy = c.busy
		if w.announceLocked(); w.ledger.Announced() != c.announced {
			t.Errorf("%d tasks: %d units are announced of 3", c.busy, w.ledger.Announced())
		}
	}
}

// TestSplitNeverOvergrants: executions of three nodes end at their own nodes, and credit and tasks of all nodes never
// exceed the worker's capacity and as many tasks as are ending, while credit moves to where tasks wait.
func TestSplitNeverOvergrants(t *testing.T) {
	const capacity = 2
	splitRun(t, newFakeCluster(t, 2*capacity, "n1", "n2", "n3"), capacity, func(int, *fakeNode) {})
}

// TestEndingTaskGrantsOnce: the credit of a task that is ending is out once, until the answer comes and after it.
func TestEndingTaskGrantsOnce(t *testing.T) {
	w := NewWorker(newFakeCluster(t, 2, "a").client(), WorkerOptions{Concurrency: 2})
	defer w.closeConns()
	s := &session{w: w, link: "a", creditWake: make(chan struct{}, 1), out: outgoing{wake: make(chan struct{}, 1)}}
	s.out.begin()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions = append(w.sessions, s)
	w.stepLocked(credit.Announced{N: 2})
	w.stepLocked(credit.LinkOpened{Link: s.link, Leads: true, Of: 1})
	var all []*hold
	for i := range 4 {
		all = append(all, &hold{w: w, key: tokenKey{namespace: "default", id: fmt.Sprint(i), version: 1}, lost: make(chan struct{})})
	}
	assigned := func(t *hold) {
		t.busy = true
		w.busy++
		w.stepLocked(credit.Assigned{Link: s.link, Task: t.key.credit()})
		w.stepLocked(credit.Begun{Task: t.key.credit()})
	}
	check := func(what string, announced, ending, returned int) {
		t.Helper()
		if w.ledger.Announced() != announced || w.ending != ending || s.returned != returned {
			t.Errorf("%s: %d units are announced, not %d; %d tasks are ending, not %d; %d units go out, not %d",
				what, w.ledger.Announced(), announced, w.ending, ending, s.returned, returned)
		}
	}
	grantable := func(t *hold) uint32 {
		w.mu.Unlock()
		defer w.mu.Lock()
		return w.grantable(t, 1)
	}
	assigned(all[0])
	assigned(all[1])
	w.endingLocked(all[0], s)
	check("a function runs", 0, 0, 0)
	all[0].returned = true
	w.endingLocked(all[0], s)
	w.endingLocked(all[0], s)
	check("it has returned", 1, 1, 1)
	if n := grantable(all[0]); n != 0 {
		t.Errorf("the commit of its end grants %d units, too", n)
	}
	if n := grantable(all[1]); n != 1 {
		t.Errorf("another commit that may end its task grants %d units", n)
	}
	assigned(all[2])
	all[2].returned, all[1].returned = true, true
	w.endingLocked(all[1], s)
	w.endingLocked(all[2], s) // Concurrency are ending
	check("all have returned", 1, 2, 2)
	w.finishedLocked(all[0])
	w.announceLocked()
	check("the first has ended", 1, 1, 2)
	w.endingLocked(all[2], s)
	check("another one is ending", 2, 2, 3)
	w.finishedLocked(all[1])
	w.finishedLocked(all[2])
	w.announceLocked()
	check("all have ended", 2, 0, 3)
	assigned(all[3])
	all[3].returned = true
	w.leaving.Store(true)
	w.endingLocked(all[3], s)
	check("the worker stops", 1, 0, 3)
}

// TestSplitNodeBreaks: a node ends its streams again and again, and its tasks are finished over the next
// ones. A task that was on its way comes again beyond the capacity, so that is not compared.
func TestSplitNodeBreaks(t *testing.T) {
	splitRun(t, newFakeCluster(t, 1000, "n1", "n2", "n3"), 4, func(i int, last *fakeNode) {
		if i%10 == 5 {
			last.mu.Lock()
			defer last.mu.Unlock()
			last.breakStreams()
			last.touch()
		}
	})
}

const splitEach = 30

func splitRun(t *testing.T, c *fakeCluster, concurrency int, between func(i int, last *fakeNode)) {
	const each = splitEach
	var running atomic.Int32
	fn := NewFunction("f", func(ctx Context, in int) (int, error) {
		if n := running.Add(1); int(n) > concurrency {
			t.Errorf("%d functions run at once, not %d", n, concurrency)
		}
		defer running.Add(-1)
		return Run(ctx, "step", func(context.Context) (int, error) { return in, nil })
	})
	w := NewWorker(c.client(), WorkerOptions{Concurrency: concurrency})
	w.Register(fn)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for _, n := range c.nodes {
		n.wait("a stream of "+n.id, func() bool { return len(n.conns) == 1 && n.conns[0].splits })
	}
	for i := range each {
		for _, n := range c.nodes {
			n.start(fmt.Sprintf("%s-%d", n.id, i), "f", "1")
		}
		between(i, c.nodes[len(c.nodes)-1])
	}
	for i := range each {
		for _, n := range c.nodes {
			n.finished(fmt.Sprintf("%s-%d", n.id, i))
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
