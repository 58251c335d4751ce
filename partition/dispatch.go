package partition

import (
	commandv1 "perdure/api/command/v1"
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
	return s
}

// Attach implements Peers.
func (s *peerService) Attach(stream commandv1.Peers_AttachServer) error {
	return s.n.dispatch.Serve(stream)
}
