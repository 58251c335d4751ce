package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"perdure/internal/freeport"
	"perdure/internal/testkit"
	"perdure/partition/raftlog"
	"perdure/partition/snapshot"
	"perdure/partition/stable"
)

const testGroups = 2

// freeAddr is an address without a listener, which the system does not assign by chance.
func freeAddr(t *testing.T) string { return freeport.Transport.Addr(t) }

// machine is a list of what was applied. Its state outlives restarts of its node, as a durable one would.
type machine struct {
	mu      sync.Mutex
	Applied []string
	Index   uint64
	places  map[string][]byte // received, by marker
	load    func(*raft.Log) (*raft.Log, error)
}

func (m *machine) Apply(l *raft.Log) any {
	l, err := m.load(l)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.Index > m.Index {
		m.Applied, m.Index = append(m.Applied, string(l.Data)), l.Index
	}
	return len(m.Applied)
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }

type nothing struct{}

func (nothing) Persist(raft.SnapshotSink) error { return nil }
func (nothing) Release()                        {}

func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	marker, ok := snapshot.MarkerOf(r)
	if !ok || marker.Origin != snapshot.Received {
		return fmt.Errorf("restore from %T, %+v", r, marker)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return json.Unmarshal(m.places[marker.ID], m)
}

func (m *machine) content(snapshot.Marker) (io.ReadCloser, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := json.Marshal(m)
	return io.NopCloser(strings.NewReader(string(b))), int64(len(b)), err
}

// seen is how many different entries were applied: one whose leader was lost meanwhile may have been proposed twice.
func (m *machine) seen() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	different := map[string]bool{}
	for _, what := range m.Applied {
		different[what] = true
	}
	return len(different)
}

// all is everything that was applied, in order.
func (m *machine) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.Applied)
}

// received reports whether content has come from another member.
func (m *machine) received() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.places) > 0
}

// landing is a place for received content.
type landing struct {
	strings.Builder
	m  *machine
	id string
}

func (l *landing) Commit() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.places[l.id] = []byte(l.String())
	return nil
}

func (l *landing) Abort() error { return nil }

// member is one node: three stores, a port, and a Raft instance per group.
type member struct {
	t        *testing.T
	id, addr string
	dir      string
	timeout  time.Duration // of heartbeats and elections
	machines [testGroups]*machine
	events   chan closedEvent
	messages messages

	mux        *Mux
	logs       *raftlog.Store
	terms      *stable.File
	rafts      [testGroups]*raft.Raft
	transports [testGroups]*RaftTransport
}

// start opens port and stores; the groups of a new member wait for run.
func (n *member) start(create bool) {
	t := n.t
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fatal := func(err error) { t.Errorf("%s: %v", n.id, err) }
	addr := n.addr
	if addr == "" {
		addr = freeAddr(t)
	}
	var err error
	n.mux, err = Listen(addr, Options{ClusterID: "c", ServerID: n.id,
		OnPeerConnClosed: func(p Peer) {
			select {
			case n.events <- closedEvent{p.Group, raft.ServerAddress(p.Addr)}:
			default:
			}
		}})
	must(err)
	n.addr = n.mux.Addr().String()
	n.logs, err = raftlog.Open(filepath.Join(n.dir, "log"), raftlog.Options{MustCreate: create, OnFatal: fatal})
	must(err)
	n.terms, err = stable.Open(filepath.Join(n.dir, "stable.bolt"), stable.Options{MustCreate: create, OnFatal: fatal})
	must(err)
	if create {
		must(errors.Join(n.logs.SetStamp([]byte(n.id)), n.terms.SetStamp([]byte(n.id))))
	}
	if !create {
		n.run(nil)
	}
}

// run starts the groups, and makes them when it is given their first configuration.
func (n *member) run(first *raft.Configuration) {
	t := n.t
	t.Helper()
	for g := range uint32(testGroups) {
		m := n.machines[g]
		snaps, err := snapshot.Open(filepath.Join(n.dir, fmt.Sprint("markers-", g)), snapshot.Options{
			Group: g, FS: vfs.Default, MustCreate: first != nil,
			Cover:   func(snapshot.Marker) error { return nil },
			Content: m.content,
			Receive: func(mk snapshot.Marker) (snapshot.Receiver, error) { return &landing{m: m, id: mk.ID}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		cache := raftlog.NewCache(n.logs.Group(g), raftlog.CacheOptions{Bytes: 1 << 20, Refer: 1 << 10})
		m.load = cache.Load
		n.transports[g] = NewRaftTransport(n.mux.Raft(g), RaftOptions{Timeout: 5 * time.Second, Load: cache.Load})
		conf := raft.DefaultConfig()
		conf.LocalID = raft.ServerID(n.id)
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = n.timeout, n.timeout, n.timeout/2
		conf.CommitTimeout = 20 * time.Millisecond
		conf.SnapshotInterval, conf.SnapshotThreshold, conf.TrailingLogs = time.Hour, 1<<40, 5
		conf.NoSnapshotRestoreOnStart = true
		conf.BatchApplyCh, conf.NoLegacyTelemetry = true, true
		conf.Logger = hclog.NewNullLogger()
		if first != nil {
			if err := raft.BootstrapCluster(conf, cache, n.terms.Group(g), snaps, n.transports[g], *first); err != nil {
				t.Fatal(err)
			}
		}
		if n.rafts[g], err = raft.NewRaft(conf, m, cache, n.terms.Group(g), snaps, &inspected{RaftTransport: n.transports[g], seen: &n.messages}); err != nil {
			t.Fatal(err)
		}
	}
}

// stop shuts down in the order the package comment gives.
func (n *member) stop() {
	n.t.Helper()
	var waits []raft.Future
	for g, r := range n.rafts {
		waits = append(waits, r.Shutdown())
		if err := n.transports[g].Close(); err != nil {
			n.t.Error(err)
		}
	}
	for _, w := range waits {
		if err := w.Error(); err != nil {
			n.t.Error(err)
		}
	}
	if err := errors.Join(n.mux.Close(), n.logs.Close(), n.terms.Close()); err != nil {
		n.t.Error(err)
	}
}

// die breaks all connections at once, as the end of a process does, and only then cleans up.
func (n *member) die() {
	_ = n.mux.Close()
	n.stop()
}

func leader(t *testing.T, nodes []*member, g int) *member {
	t.Helper()
	var found *member
	eventually(t, fmt.Sprintf("group %d has a leader", g), func() (string, bool) {
		var states []string
		for _, n := range nodes {
			states = append(states, n.id+" "+n.rafts[g].State().String())
			if n.rafts[g].State() == raft.Leader && n.rafts[g].VerifyLeader().Error() == nil {
				found = n
				return "", true
			}
		}
		return strings.Join(states, ", "), false
	})
	return found
}

// apply proposes to the current leader until it succeeds.
func apply(t *testing.T, nodes []*member, g int, what string) {
	t.Helper()
	eventually(t, what+" is applied", func() (string, bool) {
		err := leader(t, nodes, g).rafts[g].Apply([]byte(what), testTimeout).Error()
		return fmt.Sprint(err), err == nil
	})
}

func wantSeen(t *testing.T, nodes []*member, g, count int) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, fmt.Sprintf("%s group %d has applied %d", n.id, g, count), func() (string, bool) {
			seen := n.machines[g].seen()
			return fmt.Sprint(seen), seen == count
		})
	}
}

// threeNodes are three members of new groups, which elect a leader when they have not heard of one for timeout, scaled.
func threeNodes(t *testing.T, timeout time.Duration) []*member {
	t.Helper()
	var nodes []*member
	var first raft.Configuration
	for i := range 3 {
		n := &member{t: t, id: fmt.Sprint("n", i), dir: t.TempDir(), timeout: testkit.Scaled(timeout), events: make(chan closedEvent, 1000)}
		for g := range n.machines {
			n.machines[g] = &machine{places: map[string][]byte{}}
		}
		n.start(true)
		first.Servers = append(first.Servers, raft.Server{ID: raft.ServerID(n.id), Address: raft.ServerAddress(n.addr)})
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.run(&first)
	}
	return nodes
}

func TestThreeNodes(t *testing.T) {
	t.Parallel() // it waits most of the time
	nodes := threeNodes(t, 600*time.Millisecond)
	const each = 60
	for i := range each {
		for g := range testGroups {
			apply(t, nodes, g, fmt.Sprintf("g%d-%d", g, i))
		}
	}
	for g := range testGroups {
		wantSeen(t, nodes, g, each)
	}

	// The leader of group 0 dies. The others notice by the connections, and continue.
	dead := leader(t, nodes, 0)
	var rest []*member
	for _, n := range nodes {
		if n != dead {
			rest = append(rest, n)
		}
	}
	dead.die()
	for _, n := range rest {
		eventually(t, n.id+" notices that "+dead.id+" is gone", func() (string, bool) {
			select {
			case e := <-n.events:
				return fmt.Sprint(e), e.server == raft.ServerAddress(dead.addr)
			default:
				return "no event", false
			}
		})
	}
	for i := range each {
		for g := range testGroups {
			apply(t, rest, g, fmt.Sprintf("g%d-%d, without it", g, i))
		}
	}
	// Far enough that it must be caught up by a snapshot.
	for g := range testGroups {
		wantSeen(t, rest, g, 2*each)
		for _, n := range rest { // the leader at that time
			if err := n.rafts[g].Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
			if first, err := n.logs.Group(uint32(g)).FirstIndex(); err != nil || first <= each {
				t.Fatalf("group %d of %s begins at %d, %v", g, n.id, first, err)
			}
		}
	}
	dead.start(false)
	for g := range testGroups {
		apply(t, nodes, g, "together again")
		wantSeen(t, nodes, g, 2*each+1)
		for _, n := range nodes {
			eventually(t, fmt.Sprintf("%s is like %s in group %d", n.id, nodes[0].id, g), func() (string, bool) {
				a, b := n.machines[g].all(), nodes[0].machines[g].all()
				return a + "\n" + b, a == b
			})
		}
		if !dead.machines[g].received() {
			t.Errorf("group %d of %s caught up without a snapshot", g, dead.id)
		}
	}
	for _, n := range nodes {
		if b, ok := n.logs.Stamp(); !ok || string(b) != n.id {
			t.Errorf("stamp %q", b)
		}
		n.stop()
	}
}

// TestHeartbeatsTakeTheMainPath: no handler is installed, and pre-vote is supported.
func TestHeartbeatsTakeTheMainPath(t *testing.T) {
	a, b := listen(t, Options{ServerID: "a"}), listen(t, Options{ServerID: "b"})
	ta := NewRaftTransport(a.Raft(1), RaftOptions{})
	tb := NewRaftTransport(b.Raft(1), RaftOptions{})
	defer ta.Close()
	defer tb.Close()
	tb.SetHeartbeatHandler(func(raft.RPC) { t.Error("a heartbeat went beside the main loop") })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			select {
			case rpc := <-tb.Consumer():
				switch rpc.Command.(type) {
				case *raft.AppendEntriesRequest:
					rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
				case *raft.RequestPreVoteRequest:
					rpc.Respond(&raft.RequestPreVoteResponse{Term: 8, Granted: true}, nil)
				default:
					rpc.Respond(nil, fmt.Errorf("%T", rpc.Command))
				}
			case <-time.After(testTimeout):
				t.Error("nothing came")
				return
			}
		}
	}()
	target := raft.ServerAddress(b.Addr().String())
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a"), Addr: []byte(a.Addr().String())}
	var resp raft.AppendEntriesResponse
	if err := ta.AppendEntries("b", target, &raft.AppendEntriesRequest{RPCHeader: header, Term: 7}, &resp); err != nil || resp.Term != 7 {
		t.Errorf("heartbeat: %+v, %v", resp, err)
	}
	var vote raft.RequestPreVoteResponse
	if err := ta.RequestPreVote("b", target, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 8}, &vote); err != nil || !vote.Granted {
		t.Errorf("pre-vote: %+v, %v", vote, err)
	}
	<-done
	if ta.LocalAddr() != raft.ServerAddress(a.Addr().String()) {
		t.Errorf("local address %s", ta.LocalAddr())
	}
}
