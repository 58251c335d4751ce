package client

import (
	"context"
	"maps"
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
	leadersSoon   = 200 * time.Millisecond
	leadersAlert  = 10
	// leadersTimeout bounds one question to all nodes. A node that answers neither it nor a call meanwhile is silent.
	leadersTimeout = 500 * time.Millisecond
	// leadersAhead is how long a large request waits for the first answer: to pass it on would cost a node more.
	leadersAhead = 100 * time.Millisecond
	// slowAfter is how long an attempt at a leader may take before the client asks whether that still leads, and leaves it
	// if it does not.
	slowAfter = 500 * time.Millisecond
	// avoidFor is how long calls go elsewhere after one to a leader was not answered.
	avoidFor = time.Second
)

// leaders finds the node that leads the slot of an id, so that a call need not be passed on. It is a guess:
// every node takes every call. In the background the client asks all nodes who leads, and believes the highest term: a
// leader that the others cannot reach still answers clients. It goes only to addresses where the node answers that is
// said to be there. An attempt that takes long ends when another node leads in a later term, or when the node is silent.
// The call is then repeated there, under its request id.
type leaders struct {
	c *Client
	// table is what the last answers said; nil before the first, which closes first.
	table     atomic.Pointer[[]slotLeader]
	first     chan struct{}
	firstOnce sync.Once
	// calls counts the first ones; attempts is how many are under way at leaders.
	calls    atomic.Uint32
	attempts atomic.Int64
	// alarm wakes the goroutine that asks: true after a failure, false after a slow attempt.
	alarm  chan bool
	ctx    context.Context
	cancel context.CancelFunc
	asks   sync.WaitGroup

	mu sync.Mutex
	// closed: no question begins any more. asking: a goroutine asks.
	closed, asking bool
	// next is when it is time for the next question.
	next time.Time

	// others are the connections to addresses that the client was not given. Only the goroutine that asks uses them.
	others map[string]*node
}

// slotLeader is a range of slots, the node that leads it, and the term in which it does; n is nil if the node is silent
// or cannot be reached.
type slotLeader struct {
	first, last uint16
	id          string
	term        uint64
	n           *node
}

// attempt is one at a leader.
type attempt struct {
	slot   uint16
	term   uint64
	began  time.Time
	cancel context.CancelFunc
}

func newLeaders(c *Client) *leaders {
	l := &leaders{c: c, first: make(chan struct{}), alarm: make(chan bool, 1), others: map[string]*node{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// of returns who leads an id; without a node if that is not known, or if it has just not answered. It does not block.
func (l *leaders) of(objectID string) slotLeader {
	if l.c.opts.AnyNode {
		return slotLeader{}
	}
	if l.calls.Load() < leadersAfter {
		l.calls.Add(1)
		return slotLeader{}
	}
	l.ask()
	table := l.table.Load()
	if table == nil || objectID == "" {
		return slotLeader{}
	}
	slot := id.Slot(l.c.opts.Namespace, objectID)
	for _, r := range *table {
		if r.first <= slot && slot <= r.last {
			if r.n == nil {
				return slotLeader{}
			}
			if since := r.n.failed.Load(); since != nil && time.Since(*since) < avoidFor {
				return slotLeader{}
			}
			r.first, r.last = slot, slot
			return r
		}
	}
	return slotLeader{}
}

// ahead has the client know who leads before a large request is sent, if it can learn that soon. It blocks for leadersAhead at
// most.
func (l *leaders) ahead(ctx context.Context) {
	if l.c.opts.AnyNode || l.table.Load() != nil {
		return
	}
	l.calls.Store(leadersAfter)
	l.ask()
	over := time.NewTimer(leadersAhead)
	defer over.Stop()
	select {
	case <-l.first:
	case <-over.C:
	case <-ctx.Done():
	}
}

// failed has calls avoid a node for a while, and the client ask who leads now.
func (l *leaders) failed(n *node) {
	now := time.Now()
	n.failed.Store(&now)
	l.alert(true)
}

// alert has the client ask soon who leads. It does not block.
func (l *leaders) alert(failed bool) {
	select {
	case l.alarm <- failed:
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

// follow asks until no call is under way. After an alarm it asks leadersAlert times in short intervals. Slow attempts
// alone cause that once in leadersEvery, unless the answers change: a busy cluster is slow everywhere.
func (l *leaders) follow() {
	var calm time.Time
	for soon := 0; ; {
		pause := leadersRarely
		several, changed := l.learn()
		if several {
			pause = leadersEvery
		}
		if changed {
			calm = time.Time{}
		}
		if soon > 0 {
			pause = leadersSoon
			if soon--; soon == 0 {
				calm = time.Now().Add(leadersEvery)
			}
		}
		timer := time.NewTimer(pause)
		for waiting := true; waiting; {
			select {
			case failed := <-l.alarm:
				if soon == 0 && (failed || time.Now().After(calm)) {
					soon, waiting = leadersAlert, false
				}
			case <-timer.C:
				waiting = false
			case <-l.ctx.Done():
				waiting = false
			}
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

// attempt begins an attempt at a leader, which cancel ends when that leads no more or is silent. done must be called
// after the attempt, and told whether the node has answered it.
func (l *leaders) attempt(at slotLeader, cancel context.CancelFunc) (done func(answered bool)) {
	a := &attempt{slot: at.first, term: at.term, began: time.Now(), cancel: cancel}
	n := at.n
	n.mu.Lock()
	if n.attempts == nil {
		n.attempts = map[*attempt]struct{}{}
	}
	n.attempts[a] = struct{}{}
	n.mu.Unlock()
	l.attempts.Add(1)
	slow := time.AfterFunc(slowAfter, func() { l.alert(false) })
	return func(answered bool) {
		slow.Stop()
		l.attempts.Add(-1)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.attempts, a)
		if answered {
			n.heard = time.Now()
		}
	}
}

// learn asks all nodes who leads, and replaces the table. It reports whether the cluster has several nodes, and whether
// another leader is known than before.
func (l *leaders) learn() (several, changed bool) {
	began := time.Now()
	var former []slotLeader
	if t := l.table.Load(); t != nil {
		former = *t
	}
	lists := l.askAll(l.known())
	if len(lists) == 0 {
		return len(former) > 0, false
	}
	maps.Copy(lists, l.askAll(l.announced(lists)))
	at, answered := l.found(lists, began)
	var table []slotLeader
	note := func(r slotLeader) {
		for i := range table {
			if o := &table[i]; o.first == r.first && o.last == r.last {
				if r.term > o.term {
					*o = r
				}
				return
			}
		}
		table = append(table, r)
	}
	for _, r := range former {
		if !answered[r.id] && r.term > 0 { // what it has answered says more than what was known
			note(r)
		}
	}
	for _, n := range l.known() {
		if list := lists[n]; len(list.GetNodes()) > 1 {
			several = true
			for _, r := range list.GetLeaders() {
				if r.GetFirstSlot() <= r.GetLastSlot() && r.GetLastSlot() < id.Slots {
					note(slotLeader{first: uint16(r.GetFirstSlot()), last: uint16(r.GetLastSlot()), id: r.GetNodeId(), term: r.GetTerm()})
				}
			}
		}
	}
	for i := range table {
		table[i].n = at[table[i].id]
		changed = changed || !slices.ContainsFunc(former, func(r slotLeader) bool { return r == table[i] })
	}
	if !several {
		table = nil
	}
	l.table.Store(&table)
	l.firstOnce.Do(func() { close(l.first) })
	l.endAttempts(at, table, began)
	l.forget(lists)
	return several, changed
}

// known are all connections, first those to addresses that the client was given.
func (l *leaders) known() []*node {
	return slices.AppendSeq(slices.Clone(l.c.nodes), maps.Values(l.others))
}

// announced makes connections to the addresses that the answers announce and the client does not know.
func (l *leaders) announced(lists map[*node]*perdurev1.NodeList) (out []*node) {
	for _, list := range lists {
		for _, a := range list.GetNodes() {
			addr := a.GetGrpcAddr()
			if addr == "" || slices.ContainsFunc(l.known(), func(n *node) bool { return n.addr == addr }) {
				continue
			}
			if n, err := l.c.connect(addr); err == nil {
				l.others[addr] = n
				out = append(out, n)
			}
		}
	}
	return out
}

// found returns, by node id, a connection at which that node has answered: at the address that it announces, or at
// another one. answered has the nodes that have said who leads. A node that has answered calls since began is not silent.
func (l *leaders) found(lists map[*node]*perdurev1.NodeList, began time.Time) (at map[string]*node, answered map[string]bool) {
	at, answered = map[string]*node{}, map[string]bool{}
	announces := map[string]string{}
	for _, list := range lists {
		for _, a := range list.GetNodes() {
			announces[a.GetNodeId()] = a.GetGrpcAddr()
		}
	}
	for _, n := range l.known() {
		if list := lists[n]; list != nil {
			n.id = list.GetNodeId()
			answered[n.id] = true
		} else if n.silentSince(began) {
			n.id = ""
		}
		if n.id != "" && (at[n.id] == nil || n.addr == announces[n.id]) {
			at[n.id] = n
		}
	}
	return at, answered
}

// silentSince reports whether the node has answered no attempt since then.
func (n *node) silentSince(t time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heard.Before(t)
}

// endAttempts ends the attempts at nodes that are silent, and those that take long at a node while another one leads in a
// later term. The attempts are repeated elsewhere.
func (l *leaders) endAttempts(at map[string]*node, table []slotLeader, now time.Time) {
	for _, n := range l.known() {
		silent := at[n.id] == nil
		n.mu.Lock()
		for a := range n.attempts {
			replaced := slices.ContainsFunc(table, func(r slotLeader) bool {
				return r.first <= a.slot && a.slot <= r.last && r.n != n && r.term > a.term
			})
			if now.Sub(a.began) >= slowAfter && (silent || replaced) {
				a.cancel()
			}
		}
		n.mu.Unlock()
	}
}

// askAll asks nodes for their lists of the cluster, all at the same time. It blocks for leadersTimeout at most.
func (l *leaders) askAll(nodes []*node) map[*node]*perdurev1.NodeList {
	ctx, cancel := context.WithTimeout(l.ctx, leadersTimeout)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	lists := map[*node]*perdurev1.NodeList{}
	for _, n := range nodes {
		all.Go(func() {
			if list, err := n.tasks.ListNodes(ctx, &perdurev1.ListNodesRequest{Namespace: l.c.opts.Namespace}); err == nil && list.GetNodeId() != "" {
				mu.Lock()
				defer mu.Unlock()
				lists[n] = list
			}
		})
	}
	all.Wait()
	return lists
}

// forget closes the connections to nodes that no node lists any more. A call under way there is repeated
// elsewhere.
func (l *leaders) forget(lists map[*node]*perdurev1.NodeList) {
	listed := map[string]bool{}
	for _, list := range lists {
		for _, a := range list.GetNodes() {
			listed[a.GetGrpcAddr()] = true
		}
	}
	for addr, n := range l.others {
		if !listed[addr] {
			delete(l.others, addr)
			if err := n.close(); err != nil {
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
		errs = append(errs, n.close())
	}
	return errs
}
