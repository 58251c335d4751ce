package partition

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/cluster"
	"perdure/partition/refusal"
	"perdure/partition/repair"
)

// Operator answers operators for the whole cluster, on whichever node they ask. It implements rpc.Operator.
type Operator struct{ n *Node }

// Operator implements the operators' service for the whole cluster.
func (n *Node) Operator() *Operator { return &Operator{n} }

// ClusterStatus returns what the members that answer know now.
func (o *Operator) ClusterStatus(ctx context.Context) (*perdurev1.ClusterStatus, error) {
	n := o.n
	out := &perdurev1.ClusterStatus{ClusterId: n.identity.ClusterID, AnsweredBy: n.identity.NodeID, State: "creating"}
	dir := n.Directory()
	members := n.cluster.Members()
	if dir != nil {
		out.Epoch, members, out.FeatureLevel = dir.Epoch, dir.Members, dir.FeatureLevel
		if dir.State == commandv1.DirectoryState_DIRECTORY_STATE_READY {
			out.State = "ready"
		}
	}
	if n.identity.Alone() {
		out.FeatureLevel, _ = n.cluster.Level()
	}
	if server := n.cluster.Leader(); server != "" {
		out.DirectoryLeader = n.cluster.NodeOf(server)
	}
	answers, errs := memberClient{n}.askAll(ctx, members)
	hints := map[string]cluster.Hint{}
	for _, h := range n.cluster.Gossip() {
		hints[h.ServerID] = h
	}
	for i, m := range members {
		h := hints[m.ServerId]
		node := &perdurev1.ClusterNode{NodeId: m.NodeId, ServerId: m.ServerId, PeerAddr: m.PeerAddr, GrpcAddr: h.GRPCAddr, HttpAddr: h.HTTPAddr,
			Version: h.Version, Reachable: errs[i] == nil, ClockOffsetMs: h.ClockOffset.Milliseconds()}
		if errs[i] != nil {
			node.Problem = errs[i].Error()
		}
		node.Quarantined, node.Disk, node.FeatureLevel = answers[i].GetQuarantined(), answers[i].GetDisk(), m.FeatureLevel
		node.Retention, node.Backups = answers[i].GetRetention(), answers[i].GetBackups()
		out.Quotas = sumQuotas(out.Quotas, answers[i].GetQuotas())
		if answers[i] != nil {
			node.FeatureLevel = answers[i].FeatureLevel
		}
		for _, r := range answers[i].GetReplicas() {
			if r.Serving {
				node.Leads++
			}
		}
		out.Nodes = append(out.Nodes, node)
	}
	for p := range uint32(len(n.router.slots)) {
		out.Partitions = append(out.Partitions, o.partitionStatus(p, dir, members, answers))
	}
	return out, nil
}

// partitionStatus merges the nodes' answers about one partition.
func (o *Operator) partitionStatus(p uint32, dir *commandv1.Directory, members []*commandv1.DirectoryMember, answers []*commandv1.NodeStatus) *perdurev1.ClusterPartition {
	out := &perdurev1.ClusterPartition{Partition: p}
	if dir != nil && int(p) < len(dir.Placements) {
		out.Preferred = dir.Placements[p].Preferred
	}
	var replicas []*commandv1.ReplicaStatus
	var lead *commandv1.ReplicaStatus
	for i, m := range members {
		var r *commandv1.ReplicaStatus
		if answers[i] != nil && int(p) < len(answers[i].Replicas) {
			r = answers[i].Replicas[p]
		}
		replicas = append(replicas, r)
		if r != nil && r.Serving && (lead == nil || r.Term > lead.Term) {
			lead, out.Leader, out.FeatureLevel = r, m.NodeId, r.FeatureLevel
		}
		out.Term = max(out.Term, r.GetTerm())
	}
	same, index := repair.Compare(replicas)
	out.Comparison, out.ComparedIndex = same, index
	for i, m := range members {
		r := replicas[i]
		c := &perdurev1.ClusterReplica{NodeId: m.NodeId, State: "unreachable"}
		if r != nil {
			c.Audit = withoutIDs(r.Audit)
			c.LastIndex, c.Applied, c.Problem, c.Checksum, c.ChecksumIndex = r.LastIndex, r.Applied, r.Halted, r.Checksum, r.Applied
			if sum, noted := repair.ChecksumAt(r, index); noted {
				c.Checksum, c.ChecksumIndex = sum, index
			}
			if lead != nil && lead.Applied > r.Applied {
				c.Lag = lead.Applied - r.Applied
			}
			switch {
			case r.Rebuilding:
				c.State = "rebuilding"
			case r.Halted != "":
				c.State = "halted"
			case r.Serving:
				c.State = "leader"
			case r.State == "Candidate":
				c.State = "candidate"
			default:
				c.State = "follower"
			}
		}
		out.Replicas = append(out.Replicas, c)
	}
	return out
}

// withoutIDs returns an audit without the ids of tenants' executions: a caller that may see only the cluster
// sees its rules.
func withoutIDs(audit *perdurev1.ReplicaAudit) *perdurev1.ReplicaAudit {
	if audit == nil {
		return nil
	}
	out := proto.CloneOf(audit)
	for _, p := range out.Problems {
		p.Namespace, p.Id, p.Detail, p.Seq = "", "", "", nil
	}
	return out
}

// Rebuild has one node rebuild its replica of a partition, and blocks until that replica has caught up.
func (o *Operator) Rebuild(ctx context.Context, in *perdurev1.RebuildReplicaRequest) (*perdurev1.RebuildReplicaResponse, error) {
	n := o.n
	if _, err := n.router.Replica(in.Partition); err != nil {
		return nil, err
	}
	m, err := memberClient{n}.named(in.NodeId)
	if err != nil {
		return nil, err
	}
	if m.ServerId == n.identity.ServerID {
		return n.rebuilder.Rebuild(ctx, in.Partition)
	}
	client, err := memberClient{n}.reach(ctx, m)
	if err != nil {
		return nil, refusal.TryLater(in.Partition, fmt.Sprintf("node %s cannot be asked: %v", in.NodeId, err))
	}
	reply, err := client.Rebuild(ctx, &commandv1.RebuildRequest{Partition: in.Partition})
	if err != nil {
		if e, ours := api.FromStatus(err); ours {
			return nil, e
		}
		return nil, refusal.Unknown(in.Partition, fmt.Sprintf("node %s was asked and did not answer: %v", in.NodeId, err))
	}
	return &perdurev1.RebuildReplicaResponse{Applied: reply.Applied, DoneMsAgo: reply.DoneMsAgo}, nil
}

// Transfer moves leaderships, and blocks until the new leaders serve. The error lists the partitions that
// could not be moved; those that were stay moved.
func (o *Operator) Transfer(ctx context.Context, in *perdurev1.TransferLeadershipRequest) (*perdurev1.TransferLeadershipResponse, error) {
	n := o.n
	if in.ToNode != "" {
		if _, err := (memberClient{n}).named(in.ToNode); err != nil {
			return nil, err
		}
	}
	if dir := n.Directory(); in.ToNode == "" && len(dir.GetMembers()) == 1 {
		return nil, api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "node %s is the only member of the cluster: no other can lead", n.identity.NodeID).
			With("node", n.identity.NodeID)
	}
	var partitions []uint32
	leader := "" // who is to hand them on
	if in.Partition != nil {
		r, err := n.router.Replica(*in.Partition)
		if err != nil {
			return nil, err
		}
		partitions, leader = []uint32{*in.Partition}, r.Leader()
	} else {
		from, err := memberClient{n}.named(in.FromNode)
		if err != nil {
			return nil, err
		}
		leader = from.ServerId
		st, err := memberClient{n}.ask(ctx, from)
		if err != nil {
			return nil, refusal.TryLater(0, fmt.Sprintf("node %s cannot be asked what it leads: %v", in.FromNode, err))
		}
		for _, r := range st.Replicas {
			if r.Serving {
				partitions = append(partitions, r.Partition)
			}
		}
	}
	out := &perdurev1.TransferLeadershipResponse{}
	for _, p := range partitions {
		next, err := o.transfer(ctx, &commandv1.TransferRequest{Partition: p, To: in.ToNode, From: leader})
		if err != nil {
			return nil, err
		}
		out.Transferred = append(out.Transferred, &perdurev1.TransferredLeadership{Partition: p, Leader: n.cluster.NodeOf(next)})
	}
	return out, nil
}

// transfer asks a partition's leader to move its leadership. If this node learns of the new leader before it
// gets the answer, it asks the new leader, which keeps the partition.
func (o *Operator) transfer(ctx context.Context, in *commandv1.TransferRequest) (leader string, err error) {
	err = o.n.router.route(ctx, in.Partition, true, func(ctx context.Context, local localReplica, there commandv1.PeersClient) error {
		var reply *commandv1.TransferReply
		var err error
		if local != nil {
			reply, err = (&peerService{n: o.n}).Transfer(ctx, in)
		} else {
			reply, err = there.Transfer(ctx, in)
		}
		leader = reply.GetLeader()
		return err
	})
	return leader, err
}

// ForgetQuarantined has one node delete its quarantined former replicas of a partition.
func (o *Operator) ForgetQuarantined(ctx context.Context, in *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error) {
	n := o.n
	if _, err := n.router.Replica(in.Partition); err != nil {
		return nil, err
	}
	m, err := memberClient{n}.named(in.NodeId)
	if err != nil {
		return nil, err
	}
	if m.ServerId == n.identity.ServerID {
		return n.rebuilder.Forget(in.Partition, in.Name)
	}
	client, err := memberClient{n}.reach(ctx, m)
	if err != nil {
		return nil, refusal.TryLater(in.Partition, fmt.Sprintf("node %s cannot be asked: %v", in.NodeId, err))
	}
	reply, err := client.ForgetQuarantined(ctx, in)
	if err != nil {
		if e, ours := api.FromStatus(err); ours {
			return nil, e
		}
		return nil, refusal.TryLater(in.Partition, fmt.Sprintf("node %s did not answer: %v", in.NodeId, err))
	}
	return reply, nil
}
