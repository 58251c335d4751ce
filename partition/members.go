package partition

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// statusTimeout bounds one node's answer about its replicas.
const statusTimeout = 2 * time.Second

// memberClient asks the members of the cluster, this node among them, about their replicas.
type memberClient struct{ n *Node }

// ask returns a member's status of its replicas; this node answers for itself.
func (e memberClient) ask(ctx context.Context, m *commandv1.DirectoryMember) (*commandv1.NodeStatus, error) {
	if m.ServerId == e.n.identity.ServerID {
		return report(e).node(), nil
	}
	client, err := e.n.peers.Client(e.n.cluster.AddressOf(m.ServerId))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	st, err := client.Status(ctx, &commandv1.StatusRequest{})
	if err == nil && st.ServerId != m.ServerId {
		err = fmt.Errorf("server %s answers at its address", st.ServerId)
	}
	return st, err
}

// reach returns another member's service once that node answers. A node that has just come back does so
// within statusTimeout; a connection attempt that came too early must not fail an operator's command.
func (e memberClient) reach(ctx context.Context, m *commandv1.DirectoryMember) (commandv1.PeersClient, error) {
	client, err := e.n.peers.Client(e.n.cluster.AddressOf(m.ServerId))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if _, err := client.Status(ctx, &commandv1.StatusRequest{}, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	return client, nil
}

// askAll asks all members at once. A member that did not answer has a nil status and an error.
func (e memberClient) askAll(ctx context.Context, members []*commandv1.DirectoryMember) ([]*commandv1.NodeStatus, []error) {
	out, errs := make([]*commandv1.NodeStatus, len(members)), make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			if out[i], errs[i] = e.ask(ctx, m); errs[i] != nil {
				out[i] = nil
			}
		})
	}
	wg.Wait()
	return out, errs
}

// statusAt asks the node at an address for its member of a group. It blocks for timeout at most.
func (e memberClient) statusAt(ctx context.Context, addr string, id uint32, timeout time.Duration) (*commandv1.ReplicaStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return electionEnv(e).StatusAt(ctx, addr, id)
}

// named finds a member by its node id.
func (e memberClient) named(node string) (*commandv1.DirectoryMember, error) {
	members := e.n.cluster.Members()
	if dir := e.n.Directory(); dir != nil {
		members = dir.Members
	}
	for _, m := range members {
		if m.NodeId == node {
			return m, nil
		}
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_NODE_NOT_FOUND, "cluster %s has no node %s", e.n.identity.ClusterID, node).With("node", node)
}
