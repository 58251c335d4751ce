package partition

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/partition/election"
	"perdure/partition/group"
	"perdure/partition/refusal"
)

// servePoll is the pause between two checks whether a new leader serves.
const servePoll = 5 * time.Millisecond

// Transfer implements Peers.
func (s *peerService) Transfer(ctx context.Context, in *commandv1.TransferRequest) (*commandv1.TransferReply, error) {
	to := in.To
	if to == "" && in.From != "" && in.From != s.n.identity.ServerID {
		to = s.n.identity.NodeID // it was transferred already: this server, if it leads, keeps it
	}
	leader, err := s.n.Transfer(ctx, in.Partition, to)
	if err != nil {
		return nil, err
	}
	return &commandv1.TransferReply{Leader: leader}, nil
}

// Transfer moves the leadership of a partition that this node leads. The target is toNode, or any node that
// can take it if toNode is empty. It returns the new leader's server id once that serves, and blocks for
// election.TransferTimeout at most. The partition stays there for ten minutes, whichever node is preferred; a
// transfer to the present leader only keeps it there. A transfer under way continues when ctx ends: a caller
// elsewhere may learn of the new leader first.
//
// Errors are *api.Error: NOT_LEADER with a hint if this node does not lead it, NODE_NOT_FOUND or
// PARTITION_NOT_FOUND for an unknown node or partition, TRY_LATER if the other node cannot take it now.
func (n *Node) Transfer(ctx context.Context, partition uint32, toNode string) (leader string, err error) {
	r, err := n.router.Replica(partition)
	if err != nil {
		return "", err
	}
	var to *commandv1.DirectoryMember
	if toNode != "" {
		if to, err = (memberClient{n}).named(toNode); err != nil {
			return "", err
		}
	}
	if !r.Serving() {
		return "", r.NotServing()
	}
	if to != nil && to.ServerId == n.identity.ServerID {
		n.balancer.Pin(partition)
		return to.ServerId, nil
	}
	g, ok := n.group(partition)
	if !ok {
		return "", r.NotServing()
	}
	targets := n.transfers.Targets(ctx, []election.Group{g})[partition]
	target := "no other node"
	if to != nil {
		target = "node " + toNode
		targets = slices.DeleteFunc(targets, func(m *commandv1.DirectoryMember) bool { return m.ServerId != to.ServerId })
	}
	if len(targets) == 0 {
		return "", refusal.TryLater(partition, target+" can take the leadership now: unreachable, halted, or too far behind")
	}
	if err := ctx.Err(); err != nil {
		return "", refusal.TryLater(partition, "nothing was begun: "+err.Error())
	}
	begun, cancel := context.WithTimeout(n.lifetime, election.TransferTimeout)
	defer cancel()
	var last error
	for _, m := range targets {
		err := n.transfers.Transfer(begun, g, m)
		if err == nil {
			return n.transferred(begun, r)
		}
		last = fmt.Errorf("cannot transfer leadership to node %s: %w", m.NodeId, err)
	}
	return "", refusal.TryLater(partition, last.Error())
}

// transferred waits until a partition's new leader serves, and has it keep the partition.
func (n *Node) transferred(ctx context.Context, r *group.Replica) (leader string, err error) {
	for {
		if r.Raft().State() == raft.Leader {
			return "", refusal.TryLater(r.ID(), "the leadership came back to this node")
		}
		if k, ok := r.LeaderElsewhere(); ok && k.Server != "" {
			client, err := n.peers.Client(k.Addr)
			if err == nil {
				if _, err = client.Transfer(ctx, &commandv1.TransferRequest{Partition: r.ID(), To: n.cluster.NodeOf(k.Server)}); err == nil {
					return k.Server, nil
				}
			}
		}
		if !clock.Wait(ctx, n.clock, servePoll) {
			return "", refusal.TryLater(r.ID(), "the leadership is transferred, and the new leader does not serve yet")
		}
	}
}
