package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/internal/testkit"
	"perdure/partition/cluster"
	"perdure/partition/group"
	"perdure/partition/identity"
	"perdure/partition/peers"
	"perdure/partition/refusal"
	"perdure/partition/stable"
	"perdure/partition/transport"
)

// replace stops a member, has a new server replace it at a new address, and returns the old member as it was.
func replace(t *testing.T, all []*member, i int, server string) (old *member) {
	t.Helper()
	gone := all[i]
	gone.stop(t)
	old = &member{cfg: gone.cfg}
	takeOver(t, all, i, server)
	return old
}

// takeOver has a new server join as the member for a node that does not run, and waits until it is ready.
func takeOver(t *testing.T, all []*member, i int, server string) {
	t.Helper()
	m := all[i]
	var addrs []string
	for _, o := range all {
		if o != m {
			addrs = append(addrs, o.cfg.PeerAddr)
		}
	}
	m.cfg.PeerAddr = anotherAddr(t, m)
	dir, err := cluster.AskToJoin(bg(t), "c1", optionsOf(m), addrs, &commandv1.JoinRequest{
		Member: &commandv1.DirectoryMember{NodeId: m.cfg.NodeID, ServerId: server, PeerAddr: m.cfg.PeerAddr}})
	if err != nil {
		t.Fatal(err)
	}
	m.cfg.FS, m.cfg.Stable = vfs.NewMem(), stable.NewMemory()
	m.cfg.Cluster = &identity.Cluster{Expect: 3, ClusterID: dir.ClusterId, ServerID: server, Since: dir.Members[i].SinceEpoch}
	m.start(t)
	ready(t, m.Node)
	for p := range uint32(len(m.router.slots)) {
		equalReplicas(t, all, p) // a node is ready before it lacks nothing at all
	}
}

// haltsAsReplaced waits until a server halts because it was replaced.
func haltsAsReplaced(t *testing.T, n *Node, successor *member) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(waitLimit):
		t.Fatalf("the replaced server runs on: %v", n.NotReady())
	}
	var e *identity.ReplacedError
	if err := n.Err(); !errors.As(err, &e) {
		t.Fatalf("it halted for another reason: %v", err)
	}
	id := successor.Identity()
	want := identity.ReplacedError{ClusterID: "c1", NodeID: id.NodeID, ServerID: n.identity.ServerID, Successor: id.ServerID,
		Addr: successor.cfg.PeerAddr, Epoch: e.Epoch, DataDir: "data"}
	if *e != want || e.Epoch < 2 {
		t.Errorf("%+v, want %+v", *e, want)
	}
	for _, text := range []string{e.NodeID, e.ServerID, e.Successor, e.Addr, "Remove its data directory data or keep it aside"} {
		if !strings.Contains(e.Error(), text) {
			t.Errorf("%q does not name %q", e, text)
		}
	}
}

// staleAt reads from a node's own replica.
func staleAt(n *Node, id string) error {
	_, _, err := n.router.Query(context.Background(), group.Stale, promiseQuery(id))
	return err
}

// TestReplacedWhileAway: a server that comes back after it was replaced answers no read, learns of it from
// the others, and halts. So does each later start, also without another server to ask.
func TestReplacedWhileAway(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 2, timeouts, on(net))
		must(t, all[0].router, createCmd("p1"))
		for p := range uint32(2) {
			equalReplicas(t, all, p)
		}
		old := replace(t, all, 2, "n3-0002")
		old.cfg.PeerAddr = anotherAddr(t, all[2])
		began := time.Now()
		old.start(t)
		deadline := time.After(waitLimit)
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for over := false; !over; {
			select {
			case <-old.Done():
				over = true
			case <-look.C:
			case <-deadline:
				t.Fatalf("the replaced server runs on: %v", old.NotReady())
			}
			if err := staleAt(old.Node, "p1"); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
				t.Fatalf("the replaced server read from its old replica: %v", err)
			}
		}
		took := time.Since(began)
		haltsAsReplaced(t, old.Node, all[2])
		select {
		case <-old.MembershipChecked():
			// Unless no member answered the first round of questions, since the machine was busy: the next is
			// this much later.
			if took < cluster.CheckEvery {
				t.Error("it seemed to be sure of its place")
			}
		default:
		}
		old.stop(t)
		for _, m := range all {
			if err := staleAt(m.Node, "p1"); err != nil {
				t.Errorf("%s: %v", m.cfg.NodeID, err)
			}
			m.stop(t)
		}
		var e *identity.ReplacedError
		if n, err := Start(old.cfg); !errors.As(err, &e) || e.Successor != "n3-0002" || e.Addr != all[2].cfg.PeerAddr {
			t.Errorf("its next start: %v, %v", n, err)
		}
		// The successor starts again as ever.
		for _, m := range all {
			m.start(t)
		}
		for _, m := range all {
			ready(t, m.Node)
		}
	})
}

// TestReplacedWhileRunning: a running server that is replaced halts, and its partitions continue without it.
func TestReplacedWhileRunning(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		must(t, all[0].router, createCmd("p1"))
		addr := anotherAddr(t, all[2])
		// The directory's leader must not be the one that is replaced, and may change at any time. To admit
		// twice changes nothing.
		var last error
		waitFor(t, "another server to be admitted", func() bool {
			for _, m := range all[:2] {
				if m.cluster.Leads() {
					last = m.cluster.Propose(bg(t), &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{
						Member: &commandv1.DirectoryMember{NodeId: "n3", ServerId: "n3-0002", PeerAddr: addr, FeatureLevel: state.FeatureLevel}, Replaces: "n3-0001"}}})
					return last == nil
				}
			}
			if all[2].cluster.Leads() {
				last = all[2].cluster.Raft().LeadershipTransfer().Error()
			}
			return false
		}, func() string { return fmt.Sprint(last) })
		old := &member{cfg: all[2].cfg, Node: all[2].Node}
		all[2].cfg.PeerAddr, all[2].Node = addr, nil
		select {
		case <-old.Done():
		case <-time.After(waitLimit):
			t.Fatalf("the replaced server runs on: %v", old.NotReady())
		}
		if err := staleAt(old.Node, "p1"); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
			t.Errorf("the replaced server read from its old replica: %v", err)
		}
		all[2].cfg.FS, all[2].cfg.Stable = vfs.NewMem(), stable.NewMemory()
		all[2].cfg.Cluster = &identity.Cluster{Expect: 3, ClusterID: "c1", ServerID: "n3-0002"}
		all[2].start(t)
		haltsAsReplaced(t, old.Node, all[2])
		old.stop(t)
		ready(t, all[2].Node)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
		}
		waitFor(t, "it is noted since when the new server is a member", func() bool {
			return all[2].file.Identity().Since == all[0].Directory().Members[2].SinceEpoch
		}, func() string { return fmt.Sprint(all[2].file.Identity()) })
		if all[2].Err() != nil {
			t.Error(all[2].Err())
		}
	})
}

// elder is a member with an old directory, which it shows to everybody.
type elder struct {
	commandv1.UnimplementedPeersServer
	shows *commandv1.Directory
	asked atomic.Int64
}

func (e *elder) ShowDirectory(context.Context, *commandv1.ShowDirectoryRequest) (*commandv1.ShowDirectoryReply, error) {
	e.asked.Add(1)
	return &commandv1.ShowDirectoryReply{Directory: e.shows}, nil
}

// servePeers answers at an address, as a server of the cluster, until the function it answers is called.
func servePeers(t *testing.T, network transport.Network, addr, server string, e commandv1.PeersServer) (end func()) {
	t.Helper()
	mux, err := transport.Listen(addr, transport.Options{ClusterID: "c1", ServerID: server, Network: network})
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	commandv1.RegisterPeersServer(s, e)
	listener := mux.Service(peers.ServiceName)
	go func() { _ = s.Serve(listener) }() // it ends with the port
	return func() {
		s.Stop()
		if err := mux.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOldDirectoryHaltsNoServer: a directory from before a server became a member, or from another cluster,
// halts no server. A server that does not know whether it is still a member answers no stale read until it
// does.
func TestOldDirectoryHaltsNoServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 2, timeouts, on(net))
		must(t, all[0].router, createCmd("p1"))
		before := all[0].Directory()
		replace(t, all, 2, "n3-0002")
		waitFor(t, "it is noted since when the new server is a member", func() bool { return all[2].file.Identity().Since > before.Epoch },
			func() string { return fmt.Sprint(all[2].file.Identity()) })
		other := &commandv1.Directory{ClusterId: "c2", Epoch: 99, Members: before.Members}
		for _, shown := range []*commandv1.Directory{nil, before, other, all[0].Directory()} {
			if all[2].cluster.HaltIfReplaced(shown) || all[2].Err() != nil {
				t.Fatalf("halted by %v", shown)
			}
		}
		for _, m := range all {
			m.stop(t)
		}
		old := &elder{shows: before}
		end := servePeers(t, all[0].cfg.Network, all[0].cfg.PeerAddr, "n1-0001", old)
		all[2].start(t)
		waitFor(t, "the old member to be asked", func() bool { return old.asked.Load() >= 2 || all[2].Err() != nil },
			func() string { return fmt.Sprint(old.asked.Load()) })
		if err := all[2].Err(); err != nil {
			t.Fatalf("an old directory halted the server that has the place: %v", err)
		}
		if err := staleAt(all[2].Node, "p1"); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
			t.Errorf("a stale read before anybody was heard of: %v", err)
		}
		end()
		all[0].start(t)
		all[1].start(t)
		for _, m := range all {
			ready(t, m.Node)
			if err := staleAt(m.Node, "p1"); err != nil {
				t.Errorf("%s: %v", m.cfg.NodeID, err)
			}
		}
	})
}

// unsure is a member that loses the directory's leadership at the first Join.
type unsure struct {
	commandv1.UnimplementedPeersServer
	asked atomic.Int64
}

func (u *unsure) Join(context.Context, *commandv1.JoinRequest) (*commandv1.JoinReply, error) {
	if u.asked.Add(1) == 1 {
		return nil, refusal.Unknown(directoryGroup, raft.ErrLeadershipLost.Error())
	}
	return &commandv1.JoinReply{Directory: &commandv1.Directory{ClusterId: "c1", Epoch: 7}}, nil
}

// TestJoinOfUnknownOutcome: a server whose Join has an unknown outcome asks again.
func TestJoinOfUnknownOutcome(t *testing.T) {
	addr, there := freeAddr(t), &unsure{}
	defer servePeers(t, nil, addr, "n1-0001", there)()
	dir, err := cluster.AskToJoin(bg(t), "c1", transportOptions(), []string{addr}, &commandv1.JoinRequest{
		Member: &commandv1.DirectoryMember{NodeId: "n3", ServerId: "n3-0002", PeerAddr: "127.0.0.1:1"}})
	if err != nil || dir.GetEpoch() != 7 || there.asked.Load() < 2 {
		t.Errorf("asked %d times: %v, %v", there.asked.Load(), dir, err)
	}
}

// TestOnlyMembersMayCall: a server that is no member may call Join and ShowDirectory, and nothing else. A
// former member is refused by the groups as well; an unknown server is not, since it may be new.
func TestOnlyMembersMayCall(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, said := newLog(t)
		all := newClusterWith(t, 2, timeouts, on(net), func(c *Config) { c.Logger = log })
		replace(t, all, 2, "n3-0002")
		waitFor(t, "all know the new server", func() bool {
			return all[0].cluster.Removed("n3-0001") && all[1].cluster.Removed("n3-0001")
		}, func() string { return fmt.Sprint(all[0].Directory(), all[1].Directory()) })
		ctx := bg(t)
		for server, c := range map[string]struct{ member, removed bool }{
			"n3-0002":  {member: true},
			"n3-0001":  {removed: true},
			"stranger": {},
		} {
			mux, err := transport.Listen(server+":1", transport.Options{ClusterID: "c1", ServerID: server, Network: net.Host(server)})
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range all[:2] {
				conn, err := peers.Dial(mux, m.cfg.PeerAddr)
				if err != nil {
					t.Fatal(err)
				}
				peer := commandv1.NewPeersClient(conn)
				_, status := peer.Status(ctx, &commandv1.StatusRequest{}, grpc.WaitForReady(true))
				_, propose := peer.Propose(ctx, &commandv1.ProposeRequest{Partition: 0, Command: createCmd("by " + server)}, grpc.WaitForReady(true))
				stream, content := peer.Content(ctx, &commandv1.ContentRequest{Partition: 0}, grpc.WaitForReady(true))
				if content == nil {
					_, content = stream.Recv()
				}
				for what, err := range map[string]error{"status": status, "propose": propose, "content": content} {
					refused := strings.Contains(fmt.Sprint(err), "is not a member of cluster c1")
					if refused == c.member {
						t.Errorf("%s of %q at %s: %v", what, server, m.cfg.NodeID, err)
					}
				}
				led := m.cluster.Leads()
				dir, err := peer.ShowDirectory(ctx, &commandv1.ShowDirectoryRequest{}, grpc.WaitForReady(true))
				if err == nil && dir.Directory.Members[2].ServerId != "n3-0002" || err != nil && led && m.cluster.Leads() {
					t.Errorf("the directory for %q at %s: %v, %v", server, m.cfg.NodeID, dir, err)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				link, err := mux.Raft(uint32(i)).Dial(raft.ServerAddress(m.cfg.PeerAddr), waitLimit)
				var refused *transport.RefusedError
				if removed := errors.As(err, &refused) && refused.Code == transport.CodeRemoved; removed != c.removed || !removed && err != nil {
					t.Errorf("a group's connection of %q to %s: %v", server, m.cfg.NodeID, err)
				}
				if err == nil {
					err = link.Close()
					if err != nil {
						t.Error(err)
					}
				}
			}
			if err := mux.Close(); err != nil {
				t.Error(err)
			}
			if logged := said.has("event=call_refused server=" + server); logged == c.member {
				t.Errorf("that calls of %q were refused is logged: %v", server, logged)
			}
		}
		for _, m := range all {
			if _, _, err := m.router.Query(ctx, group.Linearizable, promiseQuery("by stranger")); reasonOf(err) != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
				t.Errorf("a stranger's write at %s: %v", m.cfg.NodeID, err)
			}
		}
	})
}
