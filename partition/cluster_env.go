package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/cluster"
)

// directoryGroup is the number of the directory's Raft group.
const directoryGroup = cluster.Group

// clusterEnv is the node as its membership sees it.
type clusterEnv struct{ n *Node }

// Group implements cluster.Env.
func (e clusterEnv) Group(partition uint32) (g *raft.Raft, halted bool) {
	if int(partition) >= len(e.n.router.slots) {
		return nil, false
	}
	r := e.n.router.slots[partition].Load()
	return r.Raft(), r.Halted() != nil
}

// Campaign implements cluster.Env.
func (e clusterEnv) Campaign(group uint32) { e.n.failover.Begin(group) }

// Peer implements cluster.Env.
func (e clusterEnv) Peer(addr string) (commandv1.PeersClient, error) { return e.n.peers.Client(addr) }

// Halt implements cluster.Env.
func (e clusterEnv) Halt(why error) { e.n.fatal(why) }

// Changed implements cluster.Env.
func (e clusterEnv) Changed() {
	e.n.noteReady()
	e.n.dispatch.LeadersChanged()
}

// ClockJumped implements cluster.Env.
func (e clusterEnv) ClockJumped() {
	for _, r := range e.n.router.Replicas() {
		r.ClockJumped()
	}
}

// Levels implements cluster.Env. It blocks for statusTimeout at most.
func (e clusterEnv) Levels(ctx context.Context, members []*commandv1.DirectoryMember) map[string]uint64 {
	levels := map[string]uint64{}
	said, _ := memberClient(e).askAll(ctx, members)
	for _, st := range said {
		if st != nil {
			levels[st.ServerId] = st.FeatureLevel
		}
	}
	return levels
}

// StateLevel implements cluster.Env.
func (e clusterEnv) StateLevel() (level uint64) {
	for _, r := range e.n.router.Replicas() {
		if r.Halted() != nil {
			continue
		}
		if have, err := r.FeatureLevel(); err == nil {
			level = max(level, have)
		}
	}
	return level
}

// Elected implements cluster.Env.
func (e clusterEnv) Elected(leads bool) { e.n.metrics.groups.DirectoryElected(leads) }

// signal schedules the cluster's control and the dispatcher's survey, and notes whether the node is ready: a
// replica has begun to serve, or has another leader.
func (n *Node) signal() {
	n.cluster.Schedule()
	clusterEnv{n}.Changed()
}

// lagTimeout bounds the request to a leader.
const lagTimeout = 300 * time.Millisecond

// Check implements cluster.Env. For each replica that has not caught up with its leader since the start, it
// asks how far the replica is behind. A node is not ready before: until then the group cannot lose another
// member.
func (e clusterEnv) Check(ctx context.Context) {
	n := e.n
	for _, r := range n.router.Replicas() {
		if _, caught := r.Behind(); caught || r.Raft() == nil || r.Halted() != nil {
			continue
		}
		last := uint64(0)
		if !r.Serving() {
			leader, ok := r.LeaderElsewhere()
			if !ok {
				continue
			}
			st, err := memberClient{n}.statusAt(ctx, leader.Addr, r.ID(), lagTimeout)
			if err != nil || st.State != raft.Leader.String() {
				continue
			}
			last = st.LastIndex
		}
		if r.CompareLog(last) {
			n.noteReady()
		}
	}
}

func (n *Node) noteReady() {
	if n.notServing() == nil {
		n.readyOnce.Do(func() { close(n.ready) })
	}
}

// Ready is closed once every partition has served.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// NotReady says why the node cannot serve every partition, or not every command, now, or nil.
func (n *Node) NotReady() error { return errors.Join(n.notServing(), n.disk.problem()) }

// notServing says why the node cannot serve every partition now, or nil.
func (n *Node) notServing() error {
	if err := n.Err(); err != nil {
		return err
	}
	var errs []error
	if !n.identity.Alone() {
		dir := n.cluster.Directory()
		member := slices.ContainsFunc(dir.GetMembers(), func(m *commandv1.DirectoryMember) bool { return m.ServerId == n.identity.ServerID })
		switch {
		case dir == nil:
			errs = append(errs, errors.New("this node has not received the cluster's directory yet"))
		case dir.State != commandv1.DirectoryState_DIRECTORY_STATE_READY:
			errs = append(errs, errors.New("the cluster is still being created"))
		case !member:
			errs = append(errs, fmt.Errorf("this server (%s) is not a member of the cluster according to its directory", n.identity.ServerID))
		}
		if !member {
			errs = append(errs, n.doubles()...)
		}
	}
	for _, r := range n.router.Replicas() {
		switch halted := r.Halted(); {
		case halted != nil:
			errs = append(errs, fmt.Errorf("partition %d has halted: %w", r.ID(), halted))
		case r.Serving():
		default:
			_, led := r.LeaderElsewhere()
			switch entries, caught := r.Behind(); {
			case !led:
				errs = append(errs, fmt.Errorf("partition %d has no serving leader", r.ID()))
			case !caught:
				errs = append(errs, fmt.Errorf("partition %d is catching up with its leader: %d entries behind", r.ID(), entries))
			}
		}
	}
	return errors.Join(errs...)
}

// doubles are the other servers that gossip names under this node's id.
func (n *Node) doubles() (errs []error) {
	for _, h := range n.cluster.Gossip() {
		if h.NodeID == n.identity.NodeID && h.ServerID != n.identity.ServerID {
			errs = append(errs, fmt.Errorf("node %s runs as server %s at %s, too: that one has replaced this server (%s), or two nodes have one id", h.NodeID, h.ServerID, h.PeerAddr, n.identity.ServerID))
		}
	}
	return errs
}
