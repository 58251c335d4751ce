package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/internal/testkit"
)

// led is a cluster whose nodes say who leads: each a third of the slots, unless the test moves them.
type led struct {
	*cluster
	// leader is the node of each third; silent is a node that answers nothing.
	leader [3]atomic.Pointer[string]
	silent atomic.Pointer[string]
	// terms are those of the leaderships; stale is a node that does not know of the last change.
	terms [3]atomic.Uint64
	stale atomic.Pointer[string]
	// asked counts the questions for the list.
	lists atomic.Int32
}

func newLed(t *testing.T) *led {
	l := &led{cluster: newCluster(t, "a", "b", "c")}
	for i, name := range l.names {
		l.leader[i].Store(&name)
	}
	l.list = func(ctx context.Context, at string) (*perdurev1.NodeList, error) {
		l.lists.Add(1)
		if s := l.silent.Load(); s != nil && *s == at {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		out := &perdurev1.NodeList{NodeId: "node-" + at}
		for _, name := range l.names {
			out.Nodes = append(out.Nodes, &perdurev1.ClusterAddress{NodeId: "node-" + name, GrpcAddr: "passthrough:///" + name})
		}
		for i := range l.leader {
			r := &perdurev1.SlotLeader{FirstSlot: third(i), LastSlot: third(i+1) - 1, NodeId: "node-" + *l.leader[i].Load(), Term: l.terms[i].Load()}
			if s := l.stale.Load(); s != nil && *s == at {
				r.NodeId, r.Term = "node-"+l.names[i], 1
			}
			out.Leaders = append(out.Leaders, r)
		}
		return out, nil
	}
	return l
}

func third(i int) uint32 { return uint32(i * id.Slots / 3) }

// idIn returns an id of the default namespace in a third of the slots.
func idIn(i int) string {
	for n := 0; ; n++ {
		s := fmt.Sprint("x", n)
		if slot := uint32(id.Slot(DefaultNamespace, s)); third(i) <= slot && slot < third(i+1) {
			return s
		}
	}
}

// learned makes calls until the client knows who leads.
func (l *led) learned(t *testing.T, cl *Client) {
	t.Helper()
	testkit.EventuallyNil(t, time.Minute, "the table of leaders", func() error {
		if _, err := cl.Start(t.Context(), StartOptions{ID: "x"}); err != nil {
			t.Fatal(err)
		}
		if table := cl.leaders.table.Load(); table == nil || len(*table) != 3 {
			return fmt.Errorf("it is %v", table)
		}
		return nil
	})
}

// move has another node lead a third of the slots, and waits until the client knows.
func (l *led) move(t *testing.T, cl *Client, i int, to string) {
	t.Helper()
	l.leader[i].Store(&to)
	testkit.EventuallyNil(t, time.Minute, "the table of leaders", func() error {
		cl.leaders.alert(true)
		l.startsAt(t, cl, i)
		if table := cl.leaders.table.Load(); (*table)[i].n == nil || (*table)[i].n.addr != "passthrough:///"+to {
			return fmt.Errorf("it is %v", table)
		}
		return nil
	})
}

// startsAt makes a call about an id in a third of the slots, and returns the nodes that were asked.
func (l *led) startsAt(t *testing.T, cl *Client, i int) []string {
	t.Helper()
	l.mu.Lock()
	l.asked = nil
	l.mu.Unlock()
	if _, err := cl.Start(t.Context(), StartOptions{ID: idIn(i)}); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

func (l *led) wantAt(t *testing.T, cl *Client, names ...string) {
	t.Helper()
	for i, name := range names {
		if at := l.startsAt(t, cl, i); len(at) != 1 || at[0] != name {
			t.Errorf("a call of third %d went to %v, want %s", i, at, name)
		}
	}
}

// TestLargeGraphGoesToTheLeader: a client asks who leads before its first call if that is a large graph, and sends a small one
// anywhere.
func TestLargeGraphGoesToTheLeader(t *testing.T) {
	large := &perdurev1.Graph{Nodes: slices.Repeat(oneNode.Nodes, largeGraph)}
	submit := func(i int, graph *perdurev1.Graph, silent string) (asked []string, questions int32) {
		l := newLed(t)
		l.silent.Store(&silent)
		l.answer = script(&perdurev1.SubmitGraphResponse{})
		if _, err := l.client(Options{}).SubmitGraph(t.Context(), SubmitGraphOptions{ID: idIn(i), Graph: graph}); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.asked, l.lists.Load()
	}
	for i, name := range []string{"a", "b", "c"} {
		if asked, _ := submit(i, large, ""); !slices.Equal(asked, []string{name}) {
			t.Errorf("a large graph of third %d went to %v", i, asked)
		}
		if asked, questions := submit(i, oneNode, ""); len(asked) != 1 || questions != 0 {
			t.Errorf("a small graph went to %v, after %d questions", asked, questions)
		}
	}
	if asked, _ := submit(0, large, "b"); len(asked) != 1 {
		t.Errorf("a large graph went to %v while a node did not answer", asked)
	}
}

// TestLargeGraphWaitsForNoNode: a client sends a large graph also when no node says who leads.
func TestLargeGraphWaitsForNoNode(t *testing.T) {
	l := newLed(t)
	l.list = func(context.Context, string) (*perdurev1.NodeList, error) {
		return nil, status.Error(codes.Unimplemented, "an old node")
	}
	l.answer = script(&perdurev1.SubmitGraphResponse{})
	large := &perdurev1.Graph{Nodes: slices.Repeat(oneNode.Nodes, largeGraph)}
	if _, err := l.client(Options{}).SubmitGraph(t.Context(), SubmitGraphOptions{ID: "x", Graph: large}); err != nil {
		t.Error(err)
	}
}

// TestCallsGoToTheLeader: after some calls a client knows who leads, and asks that node, also one whose
// address it was not given. The first calls ask nobody who leads.
func TestCallsGoToTheLeader(t *testing.T) {
	for _, given := range [][]string{{"a", "b", "c"}, {"c"}} {
		l := newLed(t)
		l.answer = script(started)
		l.given = given
		cl := l.client(Options{})
		for range leadersAfter {
			if _, err := cl.Start(t.Context(), StartOptions{ID: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.lists.Load(); n != 0 {
			t.Errorf("%d questions who leads after %d calls", n, leadersAfter)
		}
		l.learned(t, cl)
		l.wantAt(t, cl, "a", "b", "c")
	}
}

// TestLeadersThatMove: the client follows a leader of which an answer notifies it, and calls another node when a
// leader does not answer.
func TestLeadersThatMove(t *testing.T) {
	l := newLed(t)
	l.answer = script(started)
	cl := l.client(Options{})
	l.learned(t, cl)
	l.move(t, cl, 0, "b")
	l.wantAt(t, cl, "b", "b", "c")
	testkit.EventuallyNil(t, time.Minute, "a leader to be avoided", func() error {
		l.startsAt(t, cl, 2) // so that the client asks on
		leader := (*cl.leaders.table.Load())[2].n
		if leader == nil { // it serves, but was late with an answer
			return errors.New("nobody is known to lead")
		}
		cl.leaders.failed(leader)
		if n := cl.leaders.of(idIn(2)).n; n != nil {
			return fmt.Errorf("the next call goes to %s", n.addr)
		}
		return nil
	})
	l.nodes["c"].server.Stop()
	for range 3 {
		at := l.startsAt(t, cl, 2)
		if len(at) != 1 || at[0] == "c" {
			t.Errorf("a call went to %v", at)
		}
	}
	l.move(t, cl, 2, "a")
	l.wantAt(t, cl, "b", "b", "a")
}

// TestSilentLeader: calls wait at a node that is paused, or beyond a cut. When the others say that another
// node leads, and it still does not answer, the calls are repeated at the other one, with their request ids.
func TestSilentLeader(t *testing.T) {
	l := newLed(t)
	l.answer = script(started)
	cl := l.client(Options{})
	l.learned(t, cl)
	waiting := make(chan struct{}, 1)
	l.mu.Lock()
	l.answer, l.asked, l.requests = func(ctx context.Context, n int, _ any) (any, error) {
		if n > 0 {
			return started, nil
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}, nil, nil
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := cl.Start(t.Context(), StartOptions{ID: idIn(1)})
		done <- err
	}()
	<-waiting
	l.silent.Store(&l.names[1])
	l.leader[1].Store(&l.names[2])
	began := time.Now()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= attemptTimeout {
		t.Errorf("it took %v, as long as without the table", took)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) != 2 || l.asked[0] != "b" || l.asked[1] == "b" || string(l.requests[0].GetId()) != string(l.requests[1].GetId()) {
		t.Errorf("asked %v with %v", l.asked, l.requests)
	}
}

// TestReplacedLeader: a leader whose followers' packets to it are lost still answers clients, and says that it leads.
// Calls wait there until another node leads in a later term. Then they are repeated there, and so are later ones.
func TestReplacedLeader(t *testing.T) {
	l := newLed(t)
	l.answer = script(started)
	for i := range l.terms {
		l.terms[i].Store(1)
	}
	cl := l.client(Options{})
	l.learned(t, cl)
	waiting := make(chan struct{}, 1)
	l.mu.Lock()
	l.answer, l.asked, l.requests = func(ctx context.Context, n int, _ any) (any, error) {
		if n > 0 {
			return started, nil
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}, nil, nil
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := cl.Start(t.Context(), StartOptions{ID: idIn(1)})
		done <- err
	}()
	<-waiting
	// The same term elsewhere is no later leadership: nothing is left for it.
	asked, since := l.lists.Load(), time.Now()
	l.stale.Store(&l.names[1])
	l.leader[1].Store(&l.names[2])
	testkit.EventuallyNil(t, time.Minute, "the client to ask who leads", func() error {
		cl.leaders.alert(true)
		select {
		case err := <-done:
			t.Fatalf("the call ended although no later leader is known: %v", err)
		default:
		}
		if time.Since(since) < slowAfter {
			asked = l.lists.Load() // the attempt does not take long yet
		}
		if n := l.lists.Load(); n < asked+9 {
			return fmt.Errorf("%d questions", n-asked)
		}
		return nil
	})
	began := time.Now()
	l.terms[1].Store(2)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= attemptTimeout/2 {
		t.Errorf("the call took %v since the next leader was known", took)
	}
	l.mu.Lock()
	if len(l.asked) != 2 || l.asked[0] != "b" || l.asked[1] != "c" || string(l.requests[0].GetId()) != string(l.requests[1].GetId()) {
		t.Errorf("asked %v with %v", l.asked, l.requests)
	}
	l.answer = script(started)
	l.mu.Unlock()
	l.wantAt(t, cl, "a", "c", "c")
}

// TestAnyNode: a client of one node stays there.
func TestAnyNode(t *testing.T) {
	l := newLed(t)
	l.answer, l.given = script(started), []string{"a"}
	cl := l.client(Options{AnyNode: true})
	for range 4 * leadersAfter {
		l.wantAt(t, cl, "a", "a", "a")
	}
	// A question begins in the background: the decision to ask is looked at, not only whether one has arrived by now.
	cl.leaders.mu.Lock()
	asked := cl.leaders.asking || !cl.leaders.next.IsZero()
	cl.leaders.mu.Unlock()
	if n := l.lists.Load(); asked || n != 0 {
		t.Errorf("it asks who leads; %d questions arrived", n)
	}
}

// TestAddressesOfOthers: a node counts only where it answers. An announced address that leads to another
// node, or to none, gets no calls, and a list that is no use is not asked for again soon.
func TestAddressesOfOthers(t *testing.T) {
	l := newLed(t)
	l.answer, l.given = script(started), []string{"a"}
	honest := l.list
	l.list = func(ctx context.Context, at string) (*perdurev1.NodeList, error) {
		out, err := honest(ctx, at)
		if at == "b" {
			out.NodeId = "node-of-another-cluster"
		}
		return out, err
	}
	l.nodes["c"].server.Stop()
	cl := l.client(Options{})
	for range 2 * leadersAfter {
		if _, err := cl.Start(t.Context(), StartOptions{ID: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyNil(t, time.Minute, "the table", func() error {
		if cl.leaders.table.Load() == nil {
			return fmt.Errorf("none")
		}
		return nil
	})
	l.wantAt(t, cl, "a", "a", "a")

	l = newLed(t)
	l.answer = script(started)
	l.list = func(context.Context, string) (*perdurev1.NodeList, error) {
		l.lists.Add(1)
		return nil, status.Error(codes.PermissionDenied, "not with this token")
	}
	cl = l.client(Options{})
	for range 10 * leadersAfter {
		if _, err := cl.Start(t.Context(), StartOptions{ID: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.lists.Load(); n > 4 {
		t.Errorf("%d questions, although none is answered", n)
	}
}
