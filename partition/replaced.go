package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/directory"
	"perdure/partition/identity"
	"perdure/partition/raftgroup"
)

// How a member makes sure of its place.
const (
	// placeEvery is how often a member that doubts asks, placeCalm how often when it was told that all is well.
	placeEvery = time.Second
	placeCalm  = 5 * time.Second
	// placePatience bounds one answer, roundPatience one round of questions.
	placePatience = time.Second
	roundPatience = 3 * time.Second
)

// tenure is what a server knows of its own place in the cluster.
type tenure struct {
	// replaced is set once another server is known to have it.
	replaced atomic.Pointer[error]
	// directory is the node's own, for the peer port, which is open before there is one.
	directory atomic.Pointer[directoryReplica]
	// former are the servers that once had a place and have none any more.
	former sync.Map
	// asked is closed when the place is known, or everybody was asked in vain once; done when nobody asks.
	asked, done chan struct{}
	once        sync.Once

	mu     sync.Mutex
	warned map[string]time.Time // when it was last told of a server that its calls are refused
}

// Asked is closed once this server has made sure of its place in the cluster, or has asked everybody it knows
// of and got no answer; within a few seconds of the start. A server that was replaced has halted before, if
// the directory's leader could be reached.
func (n *Node) Asked() <-chan struct{} { return n.tenure.asked }

// watchTenure makes sure that this server is still a member, whenever there is reason to doubt it, until the
// node stops.
func (n *Node) watchTenure() {
	defer close(n.tenure.done)
	for wait := time.Duration(0); n.pause(n.lifetime, wait); {
		wait = placeEvery
		if n.doubtful() {
			shown := n.askForDirectory(n.lifetime)
			if n.lifetime.Err() != nil || n.giveWay(shown) {
				return
			}
			if _, sure := directory.Holds(shown, n.identity.ServerID); sure {
				wait = placeCalm
			}
		}
		n.tenure.once.Do(func() { close(n.tenure.asked) })
	}
}

// doubtful says that this server may have been replaced: its directory has no leader (nobody speaks to a server
// that is in no group any more), or does not list it (it may only be behind), or another server of its node is
// heard of (hearsay: whoever shouts is not believed, but the directory is asked for).
func (n *Node) doubtful() bool {
	if _, listed := directory.Holds(n.directory.current(), n.identity.ServerID); !listed || n.directory.leader() == "" {
		return true
	}
	return slices.ContainsFunc(n.hints(), func(h Hint) bool { return h.NodeID == n.identity.NodeID && h.ServerID != n.identity.ServerID })
}

// giveWay halts this server if a directory proves that another one has its place.
//
// Two things keep an old directory from halting anybody. It is shown by the directory's leader alone, after that
// has confirmed that it leads and applied what was decided before it did: a member that is behind says that it does
// not lead. And if one should show an old directory all the same, epochs tell: see directory.Successor.
func (n *Node) giveWay(shown *commandv1.Directory) bool {
	if shown == nil || shown.ClusterId != n.identity.ClusterID {
		return false
	}
	known, self := n.directory.current().GetEpoch(), n.file.Identity()
	to := directory.Successor(shown, self.NodeID, self.ServerID, self.Since, known)
	if to == nil {
		if _, listed := directory.Holds(shown, self.ServerID); !listed {
			n.log.Warn("a directory that does not list this server is older than what it knows", "event", "directory_old",
				"epoch", shown.Epoch, "known_epoch", known, "since", self.Since)
		}
		return false
	}
	self.Successor = &identity.Successor{ServerID: to.ServerId, PeerAddr: to.PeerAddr, Epoch: shown.Epoch}
	why := self.Replaced(n.cfg.DataDir)
	n.tenure.replaced.Store(&why)
	if err := n.file.Update(func(id *identity.Identity) { id.Successor = self.Successor }); err != nil {
		n.log.Warn("it could not be noted that this server was replaced; its next start will ask again", "event", "identity_not_written", "error", err)
	}
	n.fatal(why)
	return true
}

// askForDirectory asks every server that this one knows of for the directory, until the leader has answered; nil if
// it did not. It asks those of its own log too: a server that was away may remember nobody else.
func (n *Node) askForDirectory(ctx context.Context) *commandv1.Directory {
	ctx, cancel := context.WithTimeout(ctx, roundPatience)
	defer cancel()
	addrs := n.others()
	if future := n.directory.raft.GetConfiguration(); future.Error() == nil {
		for _, s := range future.Configuration().Servers {
			addrs = append(addrs, n.addressOf(string(s.ID)), string(s.Address))
		}
	}
	for _, h := range n.hints() {
		addrs = append(addrs, h.PeerAddr)
	}
	tried := map[string]bool{"": true, n.mux.Addr().String(): true, n.mux.ListenAddr().String(): true}
	for len(addrs) > 0 && ctx.Err() == nil {
		addr := addrs[0]
		addrs = addrs[1:]
		if tried[addr] {
			continue
		}
		tried[addr] = true
		dir, err := n.showDirectoryAt(ctx, addr)
		if err == nil {
			return dir
		}
		if leader, _ := mayTryElsewhere(err); leader != "" {
			addrs = append([]string{leader}, addrs...)
		}
	}
	return nil
}

func (n *Node) showDirectoryAt(ctx context.Context, addr string) (*commandv1.Directory, error) {
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	client, err := n.peers.Client(addr)
	if err != nil {
		return nil, err
	}
	reply, err := client.ShowDirectory(ctx, &commandv1.ShowDirectoryRequest{})
	return reply.GetDirectory(), err
}

// ShowDirectory implements Peers.
func (s *peerService) ShowDirectory(ctx context.Context, _ *commandv1.ShowDirectoryRequest) (*commandv1.ShowDirectoryReply, error) {
	if s.n.directory == nil {
		return &commandv1.ShowDirectoryReply{Directory: s.n.Directory()}, nil
	}
	dir, err := s.n.directory.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	return &commandv1.ShowDirectoryReply{Directory: dir}, nil
}

// confirmed is the directory as verified answers it. But it writes to the log once in a term at most: whoever
// doubts asks again and again, and this log is never cut.
func (d *directoryReplica) confirmed(ctx context.Context) (*commandv1.Directory, error) {
	term := d.raft.CurrentTerm()
	if !d.leads() || d.barrier.Load() != term {
		dir, err := d.verified(ctx)
		if err == nil {
			d.barrier.Store(term)
		}
		return dir, err
	}
	dir := d.current()
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	defer context.AfterFunc(d.n.lifetime, cancel)()
	if err := raftgroup.Confirm(ctx, d.raft, d.acks, raft.ServerID(d.n.identity.ServerID), term); err != nil {
		return nil, errTryLater(directoryGroup, "the directory's leadership could not be confirmed: "+err.Error())
	}
	return dir, nil
}

// mayTell says why this server must not answer from what it has without asking anybody, or nil: it may have been
// replaced while it was away. A member's directory is applied, after a start, only as far as a leader of its group
// has said since; so one that lists this server comes from a leader that took it for a member, in this life of
// the process. Who leads a partition was elected by members.
func (n *Node) mayTell(leads bool) error {
	if why := n.tenure.replaced.Load(); why != nil {
		return *why
	}
	if leads || n.identity.Alone() {
		return nil
	}
	if _, listed := directory.Holds(n.directory.current(), n.identity.ServerID); !listed {
		return errors.New("this server does not know yet whether it is still a member of its cluster: no leader has told it since its start")
	}
	return nil
}

// noteFormer remembers who has lost its place by a change of the directory.
func (n *Node) noteFormer(was, is *commandv1.Directory) {
	for _, m := range was.GetMembers() {
		if _, still := directory.Holds(is, m.ServerId); !still {
			n.tenure.former.Store(m.ServerId, true)
		}
	}
}

// barred says that a server has no business with the groups any more: its place was given to another one. One
// that this node has never heard of is not barred: it may be a new member of which this node's directory, which
// arrives over these very connections, does not know yet.
func (n *Node) barred(server string) bool {
	_, is := n.tenure.former.Load(server)
	return is
}

// listed reports whether a server is a member by this node's directory. Without a directory nobody is judged, as in
// mayCall. The peer port asks; it must not block.
func (n *Node) listed(server string) bool {
	if n.identity.Alone() {
		return server == n.identity.ServerID
	}
	dir := n.tenure.directory.Load().current()
	_, is := directory.Holds(dir, server)
	return is || dir == nil
}

// refusedEvery is how often it is told that one server's calls are refused.
const refusedEvery = 10 * time.Second

// mayCall says why a server may not call this node's Peers service, or nil. Without a directory nobody is
// judged: this node then leads nothing, and cannot know who has joined since it was last here.
func (n *Node) mayCall(server string) error {
	dir := n.directory.current()
	if n.identity.Alone() {
		dir = n.Directory()
	}
	if _, listed := directory.Holds(dir, server); listed || dir == nil {
		return nil
	}
	err := api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "server %q is not a member of cluster %s by the directory of node %s (epoch %d)",
		server, n.identity.ClusterID, n.identity.NodeID, dir.Epoch).With("server", server)
	now := n.clock.Now()
	n.tenure.mu.Lock()
	told := n.tenure.warned[server]
	tell := told.IsZero() || now.Sub(told) >= refusedEvery
	if tell {
		if n.tenure.warned == nil || len(n.tenure.warned) >= 64 { // strangers may call themselves whatever they like
			n.tenure.warned = map[string]time.Time{}
		}
		n.tenure.warned[server] = now
	}
	n.tenure.mu.Unlock()
	if tell {
		n.log.Warn("calls of a server are refused", "event", "call_refused", "server", server, "barred", n.barred(server), "reason", err.Message)
	}
	return err
}
