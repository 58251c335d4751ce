package addresses

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/internal/testkit"
)

const ns = "default"

// bubble runs a test in virtual time: synctest.Wait returns when nothing is left to do now.
func bubble(t *testing.T, test func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, nodes: map[string]*node{}}
		t.Cleanup(func() {
			for _, n := range c.nodes {
				n.stop()
			}
		})
		test(t, c)
	})
}

// cluster is dispatchers that reach each other.
type cluster struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	*Dispatcher
	c    *cluster
	name string
	// end ends the node's RPCs, of both directions.
	end  context.CancelFunc
	life context.Context
}

// start starts nodes of a cluster that has all of them.
func (c *cluster) start(names ...string) (out []*node) {
	for _, name := range names {
		n := &node{c: c, name: name}
		n.life, n.end = context.WithCancel(context.Background())
		n.Dispatcher = New(Env{Clock: clock.System{}, Lifetime: n.life, ServerID: name, MaxStreams: 1000,
			Members: func() (others []string) {
				c.mu.Lock()
				defer c.mu.Unlock()
				for other := range c.nodes {
					if other != name {
						others = append(others, other)
					}
				}
				return others
			},
			Peer: func(server string) (commandv1.PeersClient, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if to := c.nodes[server]; to != nil && to.life.Err() == nil {
					return peer{from: n, to: to}, nil
				}
				return nil, errors.New("no such node")
			}})
		out = append(out, n)
		c.mu.Lock()
		c.nodes[name] = n
		c.mu.Unlock()
	}
	return out
}

func (n *node) stop() {
	n.end()
	n.Close()
}

// peer is a node's client of another one.
type peer struct {
	commandv1.PeersClient
	from, to *node
}

// pipe is an RPC between two nodes of a test. It ends with ctx, or when its server returns.
type pipe struct {
	grpc.ClientStream
	ctx    context.Context
	cancel context.CancelFunc
	up     chan *commandv1.StreamsUp
	down   chan *commandv1.StreamsDown
}

func (p peer) Streams(ctx context.Context, _ ...grpc.CallOption) (commandv1.Peers_StreamsClient, error) {
	s := &pipe{up: make(chan *commandv1.StreamsUp), down: make(chan *commandv1.StreamsDown)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	context.AfterFunc(p.to.life, s.cancel)
	context.AfterFunc(p.from.life, s.cancel)
	go func() {
		defer s.cancel()
		_ = p.to.Serve(served{pipe: s})
	}()
	return s, nil
}

func (p *pipe) Send(up *commandv1.StreamsUp) error {
	select {
	case p.up <- up:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) Recv() (*commandv1.StreamsDown, error) {
	select {
	case down := <-p.down:
		return down, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

type served struct {
	grpc.ServerStream
	*pipe
}

func (s served) Context() context.Context { return s.ctx }
func (s served) SendMsg(any) error        { return errors.ErrUnsupported }
func (s served) RecvMsg(any) error        { return errors.ErrUnsupported }

func (s served) Send(down *commandv1.StreamsDown) error {
	select {
	case s.down <- down:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s served) Recv() (*commandv1.StreamsUp, error) {
	select {
	case up := <-s.up:
		return up, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// partition is the state of a partition, which outlives its leaderships.
type partition struct {
	id       uint32
	mu       sync.Mutex
	executes []Execute
	unblocks map[Unblock]bool
	// gone are promises that were deleted.
	gone map[string]bool
	// broken fails reports.
	broken  bool
	reports int
	reads   int
}

func newPartition(id uint32) *partition {
	return &partition{id: id, unblocks: map[Unblock]bool{}, gone: map[string]bool{}}
}

// term is a leadership of it.
type term struct{ *partition }

// lead makes a node the leader of a partition.
func (n *node) lead(p *partition) *term {
	l := &term{p}
	n.Established(l)
	return l
}

func (p *term) Partition() uint32 { return p.id }

func (p *term) Promise(_ context.Context, namespace, id string) (*perdurev1.Promise, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone[id] {
		return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no promise %s", id)
	}
	return &perdurev1.Promise{Namespace: namespace, Id: id, State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED}, nil
}

func (p *term) Messages(_ context.Context, of Selection) (page Page, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	at := func(ns, address string) bool {
		return ns == of.Namespace && (address == of.Address.Address || strings.HasPrefix(address, of.Address.Address+"/"))
	}
	var executes []Execute
	for _, e := range p.executes {
		if at(e.Namespace, e.Address) {
			executes = append(executes, e)
		}
	}
	var unblocks []Unblock
	for u := range p.unblocks {
		if at(u.Namespace, u.Address) {
			unblocks = append(unblocks, u)
		}
	}
	page.Executes, page.NextExecutes = some(executes, func(e Execute) string { return e.ID }, of.Executes, of.Most)
	page.Unblocks, page.NextUnblocks = some(unblocks, func(u Unblock) string { return u.ID }, of.Unblocks, of.Most)
	return page, nil
}

// some is a page of a list in the order of ids. A cursor is the first id of the next page: what leaves the list between two
// pages moves none of the others.
func some[T any](all []T, id func(T) string, cursor []byte, most int) (page []T, next []byte) {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	from, _ := slices.BinarySearchFunc(all, string(cursor), func(one T, key string) int { return cmp.Compare(id(one), key) })
	page = all[from:min(from+most, len(all))]
	if from+most < len(all) {
		next = []byte(id(all[from+most]))
	}
	return page, next
}

func (p *term) HTTPAddresses(_ context.Context, most int) (out []Address, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for u := range p.unblocks {
		if strings.HasPrefix(u.Address, "http") && len(out) < most {
			out = append(out, Address{u.Namespace, u.Address})
		}
	}
	return out, nil
}

func (p *term) Delivered(_ context.Context, unblocks []Unblock) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports++
	if p.broken {
		return errors.New("planted")
	}
	for _, u := range unblocks {
		delete(p.unblocks, u)
	}
	return nil
}

// settle stores an unblock for an address, without its effect.
func (p *partition) settle(id, address string) Unblock {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := Unblock{Namespace: ns, ID: id, Address: address}
	p.unblocks[u] = true
	return u
}

// kept is how many unblocks the partition has.
func (p *partition) kept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unblocks)
}

func pendingTask(id, address string, version uint64) Execute {
	return Execute{Namespace: ns, ID: id, Address: address, Version: version}
}

func (n *node) open(t *testing.T, group, pid string) *Stream {
	t.Helper()
	s, err := n.Open(ns, group, pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	synctest.Wait()
	return s
}

// text is a message in words.
func text(m *commandv1.AddressMessage) string {
	if e := m.GetExecute(); e != nil {
		return fmt.Sprintf("execute %s/%d", e.Id, e.Version)
	}
	return "unblock " + m.GetUnblock().GetId()
}

// reads takes what has come to a stream, once nothing is left to do, and reports it as written.
func (s *Stream) reads() (out []string) {
	synctest.Wait()
	for _, q := range s.Take() {
		out = append(out, text(q.Message))
		s.Written(q, true)
	}
	synctest.Wait()
	return out
}

func (s *Stream) mustRead(t *testing.T, what string, want ...string) {
	t.Helper()
	if have := s.reads(); !slices.Equal(have, want) {
		t.Errorf("%s: the stream of %s got %q, must get %q", what, s.name.pid, have, want)
	}
}

// pass lets time pass.
func pass(d time.Duration) { testkit.Advance(d) }
