package partition

import (
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/group"
	"perdure/partition/raftgroup"
)

// report makes the status of this node and of its replicas, as this node can testify to it.
type report struct{ n *Node }

// node returns the state of this node's replicas.
func (r report) node() *commandv1.NodeStatus {
	out := &commandv1.NodeStatus{NodeId: r.n.identity.NodeID, ServerId: r.n.identity.ServerID, DirectoryEpoch: r.n.Directory().GetEpoch(), Quarantined: r.n.former.List(), Disk: r.n.disk.report(),
		FeatureLevel: r.n.cfg.knownLevel(), Retention: r.n.retention.Status(), Quotas: r.n.quota.Use()}
	if r.n.cfg.Backups != nil {
		out.Backups = r.n.cfg.Backups()
	}
	for _, of := range r.n.router.Replicas() {
		out.Replicas = append(out.Replicas, r.replica(of))
	}
	if g := r.n.cluster.Raft(); g != nil {
		out.Directory = r.witness(raftgroup.Status(g))
	}
	return out
}

// replica returns a replica's status as this node can testify to it.
func (r report) replica(of *group.Replica) *commandv1.ReplicaStatus {
	st := r.witness(of.Status())
	st.Rebuilding = r.n.rebuilder.Running(of.ID())
	return st
}

// witness limits a status's ContactMs to the time without contact that this node can testify to; see
// election.Failover.Witnessed.
func (r report) witness(st *commandv1.ReplicaStatus) *commandv1.ReplicaStatus {
	st.ContactMs = uint64(r.n.failover.Witnessed(time.Duration(st.ContactMs) * time.Millisecond).Milliseconds())
	return st
}
