package partition

import (
	"slices"
	"strings"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/directory"
	"perdure/partition/workers"
)

// newDispatcher makes the node's dispatcher. A node that is alone surveys nothing.
func (n *Node) newDispatcher() *workers.Dispatcher {
	env := workers.Env{
		Clock: n.clock, Lifetime: n.lifetime,
		Peer:        func(server string) (commandv1.PeersClient, error) { return n.peers.Client(n.cluster.AddressOf(server)) },
		PartitionOf: n.router.PartitionOf,
		Term:        func(namespace, id string) uint64 { return n.router.Of(namespace, id).Term() },
	}
	if !n.identity.Alone() {
		env.Survey = n.surveyWorkers
	}
	return workers.New(env)
}

// surveyWorkers returns the members and leaders for the dispatcher.
func (n *Node) surveyWorkers() workers.Survey {
	s := workers.Survey{Members: map[string]bool{}, Leads: map[string]int{}}
	for _, m := range n.cluster.Members() {
		if m.ServerId != n.identity.ServerID {
			s.Members[m.ServerId] = true
		}
	}
	for _, r := range n.router.Replicas() {
		if r.Serving() {
			s.Here++
		} else if server := r.Leader(); server != "" && server != n.identity.ServerID {
			s.Leads[server]++
		}
	}
	s.Nodes = n.nodeList(s)
	return s
}

// nodeList is the cluster as workers reach it: addresses by gossip, leaderships by a survey.
func (n *Node) nodeList(s workers.Survey) *perdurev1.NodeList {
	addrs := map[string]string{}
	for _, h := range n.cluster.Gossip() {
		addrs[h.ServerID] = h.GRPCAddr
	}
	list := &perdurev1.NodeList{NodeId: n.identity.NodeID}
	ids := map[string]string{}
	for _, m := range n.cluster.Members() {
		ids[m.ServerId] = m.NodeId
		leads := s.Leads[m.ServerId]
		if m.ServerId == n.identity.ServerID {
			leads = s.Here
		}
		list.Nodes = append(list.Nodes, &perdurev1.ClusterAddress{NodeId: m.NodeId, GrpcAddr: addrs[m.ServerId], Leads: uint32(leads)})
	}
	for _, r := range n.router.Replicas() {
		if server, term := r.LeaderInTerm(); ids[server] != "" {
			first, last := directory.Slots(r.ID(), n.router.Partitions())
			list.Leaders = append(list.Leaders, &perdurev1.SlotLeader{FirstSlot: first, LastSlot: last, NodeId: ids[server], Term: term})
		}
	}
	slices.SortFunc(list.Nodes, func(a, b *perdurev1.ClusterAddress) int { return strings.Compare(a.NodeId, b.NodeId) })
	return list
}

// Attach implements Peers.
func (s *peerService) Attach(stream commandv1.Peers_AttachServer) error {
	return s.n.dispatch.Serve(stream)
}
