package client

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

const (
	// leadersAfter is how many calls a client makes before it asks who leads: a command line makes one or two.
	leadersAfter = 8
	// leadersEvery is how often it asks again while calls are under way; leadersRarely if no answer helps it;
	// leadersSoon, for leadersAlert times, after a call that was not answered, or not for long.
	leadersEvery  = 5 * time.Second
	leadersRarely = time.Minute
	leadersSoon   = time.Second
	leadersAlert  = 5
	// leadersTimeout bounds one question to one node.
	leadersTimeout = time.Second
	// slowAfter is how long an attempt at a leader may take before the client asks whether that still leads.
	slowAfter = time.Second
	// avoidFor is how long calls go elsewhere after one to a leader was not answered.
	avoidFor = time.Second
)

// leaders finds the node that leads the slot of an id, so that a call need not be passed on. It is a guess:
// every node takes every call. The client asks a node who leads, in the background, and goes only to
// addresses where the node answers that is said to be there.
type leaders struct {
	c *Client
	// table is what the last answer said; nil before the first.
	table atomic.Pointer[[]slotLeader]
	// calls counts the first ones; attempts are those under way at leaders.
	calls    atomic.Uint32
	attempts atomic.Int64
	// alarm wakes the goroutine that asks.
	alarm  chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	asks   sync.WaitGroup

	mu sync.Mutex
	// closed: no question begins any more. asking: a goroutine asks.
	closed, asking bool
	// next is when it is time for the next question.
	next time.Time

	// Of the goroutine that asks: ids are the nodes that have answered at an address, others the connections
	// to addresses that the client was not given.
	ids    map[string]string
	others map[string]*node
}

// slotLeader is a range of slots and the node that leads it.
type slotLeader struct {
	first, last uint16
	n           *node
}

func newLeaders(c *Client) *leaders {
	l := &leaders{c: c, alarm: make(chan struct{}, 1), ids: map[string]string{}, others: map[string]*node{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// of returns the node that leads an id; nil if that is not known, or if it has just not answered. It does not block.
func (l *leaders) of(objectID string) *node {
	if !l.c.opts.CallLeaders {
		return nil
	}
	if l.calls.Load() < leadersAfter {
		l.calls.Add(1)
		return nil
	}
	l.ask()
	table := l.table.Load()
	if table == nil || objectID == "" {
		return nil
	}
	slot := id.Slot(l.c.opts.Namespace, objectID)
	for _, r := range *table {
		if r.first <= slot && slot <= r.last {
			if since := r.n.failed.Load(); since != nil && time.Since(*since) < avoidFor {
				return nil
			}
			return r.n
		}
	}
	return nil
}

// failed has calls avoid a node for a while, and the client ask who leads now.
func (l *leaders) failed(n *node) {
	now := time.Now()
	n.failed.Store(&now)
	l.alert()
}

// alert has the client ask soon who leads. It does not block.
func (l *leaders) alert() {
	select {
	case l.alarm <- struct{}{}:
	default:
	}
}

// ask asks who leads, in the background, now and as long as calls are under way. It does not block.
func (l *leaders) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.asking || time.Now().Before(l.next) {
		return
	}
	l.asking = true
	l.asks.Go(l.follow)
}

// follow asks until no call is under way.
func (l *leaders) follow() {
	for soon := 0; ; {
		pause := leadersRarely
		if l.learn() {
			pause = leadersEvery
		}
		if soon > 0 {
			soon, pause = soon-1, leadersSoon
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.alarm:
			soon = leadersAlert
		case <-l.ctx.Done():
		}
		timer.Stop()
		l.mu.Lock()
		if l.asking = l.attempts.Load() > 0 && l.ctx.Err() == nil; !l.asking {
			l.next = time.Now()
			if pause == leadersRarely {
				l.next = l.next.Add(pause)
			}
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// attempt returns the context of an attempt at a leader, which also ends when that leads no more and does not
// answer. done must be called after the attempt.
func (l *leaders) attempt(ctx context.Context, n *node) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	n.mu.Lock()
	if n.attempts == nil {
		n.attempts = map[*context.CancelFunc]struct{}{}
	}
	n.attempts[&cancel] = struct{}{}
	n.mu.Unlock()
	l.attempts.Add(1)
	slow := time.AfterFunc(slowAfter, l.alert)
	return ctx, func() {
		slow.Stop()
		cancel()
		l.attempts.Add(-1)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.attempts, &cancel)
	}
}

// learn asks a node who leads, and replaces the table. It reports whether the cluster has several nodes.
func (l *leaders) learn() bool {
	former := l.table.Load()
	list := l.list(l.c.node())
	for i := 0; list == nil && i < len(l.c.nodes) && l.ctx.Err() == nil; i++ {
		list = l.list(l.c.nodes[i])
	}
	if list == nil {
		return former != nil
	}
	if len(list.GetNodes()) < 2 {
		l.table.Store(nil)
		return false
	}
	at := map[string]*node{}
	for _, n := range list.GetNodes() {
		if found := l.find(n); found != nil {
			at[n.GetNodeId()] = found
		}
	}
	var table []slotLeader
	for _, r := range list.GetLeaders() {
		if n := at[r.GetNodeId()]; n != nil && r.GetFirstSlot() <= r.GetLastSlot() && r.GetLastSlot() < id.Slots {
			table = append(table, slotLeader{uint16(r.GetFirstSlot()), uint16(r.GetLastSlot()), n})
		}
	}
	l.table.Store(&table)
	l.endAttempts(former, table)
	l.forget(list)
	return true
}

// endAttempts ends the attempts at nodes that led more before and do not answer now: paused ones, or those
// beyond a cut. The attempts are repeated elsewhere.
func (l *leaders) endAttempts(former *[]slotLeader, now []slotLeader) {
	if former == nil {
		return
	}
	asked := map[*node]bool{}
	for _, r := range *former {
		if asked[r.n] || slices.Contains(now, r) {
			continue
		}
		if asked[r.n] = true; l.list(r.n) != nil {
			continue
		}
		r.n.mu.Lock()
		for cancel := range r.n.attempts {
			(*cancel)()
		}
		r.n.mu.Unlock()
	}
}

// find returns a connection at whose address a node has answered: the address that it announces, or one that
// the client was given.
func (l *leaders) find(a *perdurev1.ClusterAddress) *node {
	for _, n := range l.c.nodes {
		if n.addr == a.GetGrpcAddr() && l.is(n, a.GetNodeId()) {
			return n
		}
	}
	for _, n := range l.c.nodes {
		if l.is(n, a.GetNodeId()) {
			return n
		}
	}
	if a.GetGrpcAddr() == "" || slices.ContainsFunc(l.c.nodes, func(n *node) bool { return n.addr == a.GetGrpcAddr() }) {
		return nil
	}
	n := l.others[a.GetGrpcAddr()]
	if n == nil {
		var err error
		if n, err = l.c.connect(a.GetGrpcAddr()); err != nil {
			return nil
		}
		l.others[n.addr] = n
	}
	if !l.is(n, a.GetNodeId()) {
		return nil
	}
	return n
}

// is reports whether a node with this id has answered at an address. It asks once.
func (l *leaders) is(n *node, nodeID string) bool {
	if l.ids[n.addr] == "" {
		l.list(n)
	}
	return l.ids[n.addr] == nodeID
}

// list asks a node for its list of the cluster; nil without an answer.
func (l *leaders) list(n *node) *perdurev1.NodeList {
	ctx, cancel := context.WithTimeout(l.ctx, leadersTimeout)
	defer cancel()
	list, err := n.tasks.ListNodes(ctx, &perdurev1.ListNodesRequest{Namespace: l.c.opts.Namespace})
	if err != nil {
		delete(l.ids, n.addr)
		return nil
	}
	l.ids[n.addr] = list.GetNodeId()
	return list
}

// forget closes the connections to nodes that the cluster no longer lists. A call under way there is repeated
// elsewhere.
func (l *leaders) forget(list *perdurev1.NodeList) {
	for addr, n := range l.others {
		if !slices.ContainsFunc(list.GetNodes(), func(a *perdurev1.ClusterAddress) bool { return a.GetGrpcAddr() == addr }) {
			delete(l.others, addr)
			delete(l.ids, addr)
			if err := n.conn.Close(); err != nil {
				l.c.log.Debug("connection not closed", "node", addr, "err", err)
			}
		}
	}
}

// close ends the question under way, and the connections.
func (l *leaders) close() (errs []error) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.asks.Wait()
	for _, n := range l.others {
		errs = append(errs, n.conn.Close())
	}
	return errs
}
