package cluster

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

// controlEvery is how often a member compares the groups with the directory.
const controlEvery = 500 * time.Millisecond

// control makes the groups what the directory says: it makes the cluster, and adds and removes servers. Every
// step may run twice.
func (m *Member) control() {
	for {
		m.controlOnce()
		c, stop := m.Clock.After(controlEvery)
		select {
		case <-c:
		case <-m.signal:
		case <-m.Lifetime.Done():
			stop()
			return
		}
		stop()
	}
}

// Schedule has control begin a round at once. It does not block.
func (m *Member) Schedule() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// MayFound records that every founder takes part, so that the founder may make the directory.
func (m *Member) MayFound() {
	m.mayFound.Store(true)
	m.Schedule()
}

func (m *Member) controlOnce() {
	ctx, cancel := context.WithTimeout(m.Lifetime, changeTimeout)
	defer cancel()
	book := m.addressBook()
	m.book.Store(&book)
	m.CompareClock()
	if m.mayFound.Load() {
		m.found()
	}
	if m.Leads() {
		m.leadDirectory(ctx)
	}
	m.Env.Check(ctx)
	dir := m.Directory()
	if dir == nil {
		return
	}
	if !m.noted {
		m.noted = m.noteMember(dir)
	}
	m.noteLevel(dir)
	m.announceLevel(ctx, dir)
	if dir.State == commandv1.DirectoryState_DIRECTORY_STATE_CREATING {
		m.makePartitions(dir)
	}
	m.reconfigure(m.raft, Group, dir, nil)
	for _, p := range dir.Placements {
		if g, halted := m.Env.Group(p.Partition); g != nil && !halted {
			m.reconfigure(g, p.Partition, dir, p.Replicas)
		}
	}
}

// noteMember records in the data directory that the cluster exists, so that the next start knows it before
// this node has heard from the others. It also records since when this server is a member, if it is one.
func (m *Member) noteMember(dir *commandv1.Directory) (all bool) {
	since, listed := directory.Holds(dir, m.self.ServerID)
	if err := m.Identity.Update(func(id *identity.Identity) {
		id.Member = true
		if id.Since == 0 {
			id.Since = since
		}
	}); err != nil {
		m.Log.Warn("cannot note that the cluster is there", "event", "identity_not_written", "error", err)
		return false
	}
	return listed
}

// found makes the directory's group. Only the founder does it, once every founder is known to take part,
// and only a group without any past can be made.
func (m *Member) found() {
	if !m.self.Founder || m.raft.LastIndex() > 0 {
		return
	}
	err := m.raft.BootstrapCluster(m.firstConfiguration()).Error()
	if err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		m.Log.Error("cannot create the directory", "event", "directory_failed", "error", err)
		return
	}
	m.Env.Campaign(Group)
	m.Log.Info("directory created", "event", "directory_created", "cluster", m.self.ClusterID)
}

// firstConfiguration is what every group of a new cluster begins with.
func (m *Member) firstConfiguration() raft.Configuration {
	var c raft.Configuration
	for _, f := range m.self.Founders {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(f.ServerID), Address: raft.ServerAddress(f.PeerAddr)})
	}
	return c
}

// leadDirectory is what the directory's leader does: create the directory, and note what is made.
func (m *Member) leadDirectory(ctx context.Context) {
	dir := m.Directory()
	if dir == nil {
		members := m.Members()
		if len(members) == 0 {
			return
		}
		level, wait := m.firstLevel(ctx, members)
		if wait {
			return
		}
		d := directory.New(m.self.ClusterID, m.self.LogStore, m.self.Partitions, members)
		d.FeatureLevel = level
		m.warn("cannot create the directory", m.Propose(ctx,
			&commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Create{Create: &commandv1.CreateDirectory{Directory: d}}}))
		return
	}
	var created []uint32
	for _, p := range dir.Placements {
		if p.Created {
			continue
		}
		if g, _ := m.Env.Group(p.Partition); g != nil {
			if leader, _ := g.LeaderWithID(); leader != "" {
				created = append(created, p.Partition)
			}
		}
	}
	if len(created) > 0 {
		m.warn("cannot record created partitions", m.Propose(ctx,
			&commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Created{Created: &commandv1.CreatedPartitions{Partitions: created}}}))
	}
	m.leadLevel(ctx, dir)
	// A member that gossip knows at another address has moved.
	for _, h := range m.Gossip() {
		for _, o := range dir.Members {
			if o.ServerId == h.ServerID && o.PeerAddr != h.PeerAddr && h.PeerAddr != "" {
				m.warn("cannot note a member's new address", m.Propose(ctx,
					&commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{
						Member: &commandv1.DirectoryMember{NodeId: o.NodeId, ServerId: o.ServerId, PeerAddr: h.PeerAddr}}}}))
			}
		}
	}
}

// warn logs what failed and will be tried again.
func (m *Member) warn(what string, err error) {
	if err != nil && m.Lifetime.Err() == nil {
		m.Log.Warn(what, "event", "directory_not_changed", "error", err)
	}
}

// makePartitions makes the groups that this node should lead. It never makes a group again that has a past,
// here or by the directory.
func (m *Member) makePartitions(dir *commandv1.Directory) {
	for _, p := range dir.Placements {
		g, _ := m.Env.Group(p.Partition)
		if p.Created || p.Preferred != m.self.NodeID || g == nil || g.LastIndex() > 0 ||
			!slices.ContainsFunc(m.self.Founders, func(f identity.Founder) bool { return f.ServerID == m.self.ServerID }) {
			continue
		}
		if err := g.BootstrapCluster(m.firstConfiguration()).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			m.Log.Error("cannot create a partition", "event", "partition_not_made", "partition", p.Partition, "error", err)
			continue
		}
		m.Env.Campaign(p.Partition)
	}
}

// reconfigure makes one change to a group that this node leads, if its servers are not those of the
// directory. A server that is no member any more goes first, so that the group never waits for it. The
// addresses in a group's configuration are not updated: the address book is newer (Addresses), and Raft
// replaces an address while its own replication reads it.
func (m *Member) reconfigure(g *raft.Raft, group uint32, dir *commandv1.Directory, nodes []string) {
	if g.State() != raft.Leader {
		return
	}
	future := g.GetConfiguration()
	if future.Error() != nil { // it does not wait
		return
	}
	want := map[raft.ServerID]bool{}
	for _, o := range dir.Members {
		if nodes == nil || slices.Contains(nodes, o.NodeId) {
			want[raft.ServerID(o.ServerId)] = true
		}
	}
	have := map[raft.ServerID]bool{}
	change := func(what string, server raft.ServerID, f raft.Future) {
		ctx, cancel := context.WithTimeout(m.Lifetime, changeTimeout)
		defer cancel()
		if err := raftgroup.Await(f, nil, ctx.Done()); err != nil {
			m.Log.Warn("cannot change group membership yet", "event", "member_not_changed", "group", group, "change", what, "server", server, "error", err)
			return
		}
		m.Log.Info("group membership changed", "event", "member_changed", "group", group, "change", what, "server", server)
	}
	for _, s := range future.Configuration().Servers {
		if !want[s.ID] && string(s.ID) != m.self.ServerID {
			change("removed", s.ID, g.RemoveServer(s.ID, 0, changeTimeout))
			return
		}
		have[s.ID] = true
	}
	for _, o := range dir.Members {
		if server := raft.ServerID(o.ServerId); want[server] && !have[server] {
			change("added", server, g.AddVoter(server, raft.ServerAddress(o.PeerAddr), 0, changeTimeout))
			return
		}
	}
}
