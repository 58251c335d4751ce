package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/directory"
	"perdure/partition/identity"
	"perdure/partition/raftgroup"
)

// How often a member looks whether what is agrees with what the directory says, and how long one change
// may take.
const (
	controlEvery   = 500 * time.Millisecond
	changePatience = 10 * time.Second
)

// control makes the groups what the directory says they are: it makes the cluster, and gives and takes
// places. Everything it does may be done twice.
func (n *Node) control() {
	defer close(n.controlDone)
	for {
		n.controlOnce()
		c, stop := n.clock.After(controlEvery)
		select {
		case <-c:
		case <-n.poked:
		case <-n.stopping:
			stop()
			return
		}
		stop()
	}
}

// poke has control look at once.
func (n *Node) poke() {
	select {
	case n.poked <- struct{}{}:
	default:
	}
	n.noteReady()
	n.dispatch.look()
}

func (n *Node) controlOnce() {
	ctx, cancel := context.WithTimeout(n.lifetime, changePatience)
	defer cancel()
	book := n.lookUp()
	n.book.Store(&book)
	n.compareClock()
	if n.mayFound.Load() {
		n.found()
	}
	if n.directory.leads() {
		n.leadDirectory(ctx)
	}
	n.measureLags(ctx)
	dir := n.directory.current()
	if dir == nil {
		return
	}
	if !n.noted {
		n.noted = n.noteMember(dir)
	}
	if dir.State == commandv1.DirectoryState_DIRECTORY_STATE_CREATING {
		n.makePartitions(dir)
	}
	n.reconfigure(n.directory.raft, directoryGroup, dir, nil)
	for _, r := range n.router.Replicas() {
		if r.raft != nil && r.halted() == nil && int(r.id) < len(dir.Placements) {
			n.reconfigure(r.raft, r.id, dir, dir.Placements[r.id].Replicas)
		}
	}
}

// lagPatience bounds the question to a leader.
const lagPatience = 300 * time.Millisecond

// caughtUpWithin is how many entries a replica may lack of its leader's log to count as caught up.
const caughtUpWithin = 256

// measureLags finds out, for each replica that has not caught up with its leader since the start, how far it
// is behind: a node is not ready before, since the group cannot do without another member until then.
func (n *Node) measureLags(ctx context.Context) {
	for _, r := range n.router.Replicas() {
		if r.caught.Load() || r.raft == nil || r.halted() != nil {
			continue
		}
		if r.serving() != nil {
			r.caught.Store(true)
			n.noteReady()
			continue
		}
		addr, _ := r.leaderElsewhere()
		if addr == "" {
			continue
		}
		st, err := n.failover.statusAt(ctx, addr, r.id, lagPatience)
		if err != nil || st.State != raft.Leader.String() {
			continue
		}
		own := r.raft.LastIndex()
		if own+caughtUpWithin >= st.LastIndex {
			r.caught.Store(true)
			n.noteReady()
			continue
		}
		r.behind.Store(st.LastIndex - own)
	}
}

// noteMember keeps in the data directory that the cluster is there, so that this node says so from its next
// start on, before it has heard from the others; and since when it has its place, if it has got that far.
func (n *Node) noteMember(dir *commandv1.Directory) (all bool) {
	since, listed := directory.Holds(dir, n.identity.ServerID)
	if err := n.file.Update(func(id *identity.Identity) {
		id.Member = true
		if id.Since == 0 {
			id.Since = since
		}
	}); err != nil {
		n.log.Warn("it could not be noted that the cluster is there", "event", "identity_not_written", "error", err)
		return false
	}
	return listed
}

// found makes the directory's group. Only the founder does it, once every founder is known to take part,
// and only a group without any past can be made.
func (n *Node) found() {
	if !n.identity.Founder || n.directory.raft.LastIndex() > 0 {
		return
	}
	err := n.directory.raft.BootstrapCluster(n.firstConfiguration()).Error()
	if err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		n.log.Error("the directory could not be made", "event", "directory_failed", "error", err)
		return
	}
	n.begin(directoryGroup)
	n.log.Info("the directory is made", "event", "directory_made", "cluster", n.identity.ClusterID)
}

// firstConfiguration is what every group of a new cluster begins with.
func (n *Node) firstConfiguration() raft.Configuration {
	var c raft.Configuration
	for _, f := range n.identity.Founders {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(f.ServerID), Address: raft.ServerAddress(f.PeerAddr)})
	}
	return c
}

// leadDirectory is what the directory's leader does: create the directory, and note what is made.
func (n *Node) leadDirectory(ctx context.Context) {
	dir := n.directory.current()
	if dir == nil {
		var members []*commandv1.DirectoryMember
		for _, f := range n.identity.Founders {
			members = append(members, f.Member())
		}
		if len(members) == 0 {
			return
		}
		d := directory.New(n.identity.ClusterID, n.identity.LogStore, n.identity.Partitions, members)
		n.note("the directory could not be created", n.directory.propose(ctx,
			&commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Create{Create: &commandv1.CreateDirectory{Directory: d}}}))
		return
	}
	var made []uint32
	for _, p := range dir.Placements {
		if r := n.router.slots[p.Partition].Load(); !p.Made && r.raft != nil && r.leaderHint() != "" {
			made = append(made, p.Partition)
		}
	}
	if len(made) > 0 {
		n.note("made partitions could not be noted", n.directory.propose(ctx,
			&commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Made{Made: &commandv1.MadePartitions{Partitions: made}}}))
	}
	// A member that is heard of at another address has moved.
	for _, h := range n.hints() {
		for _, m := range dir.Members {
			if m.ServerId == h.ServerID && m.PeerAddr != h.PeerAddr && h.PeerAddr != "" {
				n.note("a member's new address could not be noted", n.directory.propose(ctx,
					&commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{
						Member: &commandv1.DirectoryMember{NodeId: m.NodeId, ServerId: m.ServerId, PeerAddr: h.PeerAddr}}}}))
			}
		}
	}
}

// note logs what could not be done and will be tried again.
func (n *Node) note(what string, err error) {
	if err != nil && n.lifetime.Err() == nil {
		n.log.Warn(what, "event", "directory_not_changed", "error", err)
	}
}

// makePartitions makes the groups that this node should lead. A group that has a past, here or by the
// directory, is never made again.
func (n *Node) makePartitions(dir *commandv1.Directory) {
	for _, p := range dir.Placements {
		r := n.router.slots[p.Partition].Load()
		if p.Made || p.Preferred != n.identity.NodeID || r.raft == nil || r.raft.LastIndex() > 0 ||
			!slices.ContainsFunc(n.identity.Founders, func(f identity.Founder) bool { return f.ServerID == n.identity.ServerID }) {
			continue
		}
		if err := r.raft.BootstrapCluster(n.firstConfiguration()).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			n.log.Error("a partition could not be made", "event", "partition_not_made", "partition", p.Partition, "error", err)
			continue
		}
		n.begin(p.Partition)
	}
}

// reconfigure makes one change to a group that this node leads, if its servers are not those the directory
// names: whoever is no member any more goes first, so that the group never waits for it. The addresses in a
// group's configuration stay those of the day: the address book knows better (Node.addresses), and Raft
// replaces an address while its own replication reads it.
func (n *Node) reconfigure(g *raft.Raft, group uint32, dir *commandv1.Directory, nodes []string) {
	if g.State() != raft.Leader {
		return
	}
	future := g.GetConfiguration()
	if future.Error() != nil { // it does not wait
		return
	}
	want := map[raft.ServerID]*commandv1.DirectoryMember{}
	for _, m := range dir.Members {
		if nodes == nil || slices.Contains(nodes, m.NodeId) {
			want[raft.ServerID(m.ServerId)] = m
		}
	}
	have := map[raft.ServerID]bool{}
	change := func(what string, server raft.ServerID, f raft.Future) {
		if err := waitChange(f, n.stopping); err != nil {
			n.log.Warn("the members of a group could not be changed yet", "event", "member_not_changed", "group", group, "change", what, "server", server, "error", err)
			return
		}
		n.log.Info("the members of a group were changed", "event", "member_changed", "group", group, "change", what, "server", server)
	}
	for _, s := range future.Configuration().Servers {
		m := want[s.ID]
		switch {
		case m == nil && string(s.ID) != n.identity.ServerID:
			change("removed", s.ID, g.RemoveServer(s.ID, 0, changePatience))
			return
		}
		have[s.ID] = true
	}
	for _, m := range dir.Members {
		if server := raft.ServerID(m.ServerId); want[server] != nil && !have[server] {
			change("added", server, g.AddVoter(server, raft.ServerAddress(m.PeerAddr), 0, changePatience))
			return
		}
	}
}

// waitChange waits for a future of a configuration change, within changePatience.
func waitChange(f raft.Future, stopping <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), changePatience)
	defer cancel()
	return raftgroup.Await(f, stopping, ctx.Done())
}
