package durable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/credit"
)

const (
	// askTimeout bounds the question which node is at an address.
	askTimeout = 2 * time.Second
	// rediscoverMin and rediscoverMax bound the time after which a worker with one session looks for the
	// other nodes again; it doubles.
	rediscoverMin = 5100 * time.Millisecond
	rediscoverMax = 10 * time.Minute
	// unreachedTimeout is how long a node may lead partitions and have no session before the worker returns
	// to one session.
	unreachedTimeout = 5 * time.Second
	viewEvery        = time.Second
)

var (
	// errSplit ends the only session, because the worker reaches every node.
	errSplit = errors.New("durable: every node is within reach")
	// errUnreached ends all sessions, because a node that leads partitions cannot be reached.
	errUnreached = errors.New("durable: a node that leads partitions is out of reach")
)

// node is a node that the worker has a session with, or tries to.
type node struct {
	id   string
	conn *client.NodeConn
}

// discover asks the client's addresses, and those that the nodes announce, which node is there. It returns
// nil unless each node that leads partitions answers, and there are several nodes. It blocks for askTimeout
// while a node is frozen, and for as long again if that announces an address that is none of the client's.
func (w *Worker) discover(ctx context.Context) (nodes map[string]*node, view *perdurev1.NodeList) {
	known := w.c.Addrs()
	found := w.askAll(ctx, known)
	var announced []string
	for _, at := range found {
		if view = at.list; len(view.GetNodes()) < 2 {
			return nil, nil
		}
		for _, n := range view.GetNodes() {
			if a := n.GetGrpcAddr(); a != "" && !slices.Contains(known, a) {
				announced = append(announced, a)
			}
		}
		break
	}
	slices.Sort(announced)
	for addr, at := range w.askAll(ctx, slices.Compact(announced)) {
		found[addr] = at
	}
	nodes = map[string]*node{}
	for _, n := range view.GetNodes() {
		for addr, at := range found {
			// The address that the node announces is preferred: others may be those of a load balancer.
			if at.list.GetNodeId() == n.GetNodeId() && (nodes[n.GetNodeId()] == nil || addr == n.GetGrpcAddr()) {
				nodes[n.GetNodeId()] = &node{id: n.GetNodeId(), conn: at.conn}
			}
		}
		if n.GetLeads() > 0 && nodes[n.GetNodeId()] == nil {
			return nil, nil
		}
	}
	if len(nodes) < 2 {
		return nil, nil
	}
	return nodes, view
}

// asked is a node's answer at an address.
type asked struct {
	conn *client.NodeConn
	list *perdurev1.NodeList
}

// askAll asks which node is at each address, all at the same time.
func (w *Worker) askAll(ctx context.Context, addrs []string) map[string]*asked {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	out := map[string]*asked{}
	for _, addr := range addrs {
		all.Go(func() {
			conn, err := w.connTo(addr)
			if err != nil {
				return
			}
			if list, err := conn.ListNodes(ctx); err == nil && list.GetNodeId() != "" {
				mu.Lock()
				defer mu.Unlock()
				out[addr] = &asked{conn, list}
			}
		})
	}
	all.Wait()
	return out
}

// connTo is the worker's connection to an address; it does no I/O.
func (w *Worker) connTo(addr string) (*client.NodeConn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if conn := w.conns[addr]; conn != nil {
		return conn, nil
	}
	conn, err := w.c.DialNode(addr)
	if err == nil {
		w.conns[addr] = conn
	}
	return conn, err
}

// locate finds the node again: where it was, where the nodes say that it is, or at an address of the client.
func (w *Worker) locate(ctx context.Context, n *node) error {
	var addrs []string
	if n.conn != nil {
		addrs = append(addrs, n.conn.Addr())
	}
	w.mu.Lock()
	for _, view := range w.viewsLocked() {
		for _, a := range view.GetNodes() {
			if a.GetNodeId() == n.id && a.GetGrpcAddr() != "" {
				addrs = append(addrs, a.GetGrpcAddr())
			}
		}
	}
	w.mu.Unlock()
	addrs = append(addrs, w.c.Addrs()...)
	slices.Sort(addrs[min(1, len(addrs)):])
	for i, addr := range addrs {
		if slices.Contains(addrs[:i], addr) {
			continue
		}
		if at := w.askAll(ctx, []string{addr})[addr]; at.is(n.id) {
			n.conn = at.conn
			return nil
		}
	}
	return errors.New("durable: node " + n.id + " does not answer")
}

func (a *asked) is(id string) bool { return a != nil && a.list.GetNodeId() == id }

// viewsLocked are the nodes' lists: of the nodes with a session, or the first one.
func (w *Worker) viewsLocked() []*perdurev1.NodeList {
	var views []*perdurev1.NodeList
	for _, s := range w.sessions {
		if s.view != nil {
			views = append(views, s.view)
		}
	}
	if len(views) == 0 && w.firstView != nil {
		views = append(views, w.firstView)
	}
	return views
}

// leadsLocked reports whether a node leads partitions: as it says itself, or else as all others do.
func (w *Worker) leadsLocked(id string) bool {
	leads := false
	for _, view := range w.viewsLocked() {
		says := slices.ContainsFunc(view.GetNodes(), func(n *perdurev1.ClusterAddress) bool { return n.GetNodeId() == id && n.GetLeads() > 0 })
		if view.GetNodeId() == id || !says {
			return says
		}
		leads = true
	}
	return leads
}

// leadersLocked is how many nodes lead partitions.
func (w *Worker) leadersLocked() (n int) {
	for id := range w.nodes {
		if w.leadsLocked(id) {
			n++
		}
	}
	return n
}

// learned records a node's list of the cluster.
func (w *Worker) learned(s *session, view *perdurev1.NodeList) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.view = view
	for _, o := range w.sessions {
		w.stepLocked(credit.Leads{Link: o.link, Leads: o.node == nil || w.leadsLocked(o.node.id)})
	}
	select {
	case w.viewChanged <- struct{}{}:
	default:
	}
}

// serveEach keeps a session with each node until ctx ends, a node that leads is out of reach, or the cluster
// refuses the worker for good. Nodes are those that the worker reaches now.
func (w *Worker) serveEach(ctx context.Context, nodes map[string]*node, view *perdurev1.NodeList) error {
	ctx, cancel := context.WithCancel(ctx)
	refused := make(chan error, 1)
	var loops sync.WaitGroup
	stops := map[string]context.CancelFunc{}
	defer func() {
		cancel()
		loops.Wait()
		w.mu.Lock()
		w.nodes, w.firstView = nil, nil
		w.mu.Unlock()
	}()
	w.mu.Lock()
	w.nodes, w.firstView = nodes, view
	w.mu.Unlock()
	missing := map[string]time.Time{} // since when a node that leads has no session; "" for all nodes
	for {
		w.mu.Lock()
		listed := map[string]bool{}
		for _, view := range w.viewsLocked() {
			for _, a := range view.GetNodes() {
				listed[a.GetNodeId()] = true
				if w.nodes[a.GetNodeId()] == nil {
					w.nodes[a.GetNodeId()] = &node{id: a.GetNodeId()}
				}
			}
		}
		now := w.clock.Now()
		lost := map[string]bool{"": len(w.sessions) == 0}
		for id, n := range w.nodes {
			switch {
			case !listed[id]:
				if stops[id] != nil {
					stops[id]()
				}
				delete(stops, id)
				delete(w.nodes, id)
				continue
			case stops[id] == nil:
				loop, stop := context.WithCancel(ctx)
				stops[id] = stop
				loops.Go(func() {
					if err := w.keep(loop, n); err != nil {
						select {
						case refused <- err:
						default:
						}
					}
				})
			}
			lost[id] = w.linkedLocked(credit.Link(id)) == nil && w.leadsLocked(id)
		}
		w.mu.Unlock()
		for id, is := range lost {
			switch since, was := missing[id]; {
			case !is:
				delete(missing, id)
			case !was:
				missing[id] = now
			case elapsed(since, now) > unreachedTimeout && !w.leaving.Load():
				w.log.Warn("node unreachable, falling back to one stream", "event", "worker_node_unreached", "node", id)
				return errUnreached
			}
		}
		select {
		case <-w.viewChanged:
		case <-w.clock.After(viewEvery):
		case err := <-refused:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}
