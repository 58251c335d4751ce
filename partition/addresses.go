package partition

import (
	commandv1 "perdure/api/command/v1"
	"perdure/partition/addresses"
)

// newAddresses makes the node's dispatcher of messages for addresses. A node that is alone has links to no other.
func (n *Node) newAddresses() *addresses.Dispatcher {
	env := addresses.Env{
		Clock: n.clock, Lifetime: n.lifetime, ServerID: n.identity.ServerID, MaxStreams: n.cfg.MaxStreams,
		Peer: func(server string) (commandv1.PeersClient, error) { return n.peers.Client(n.cluster.AddressOf(server)) },
	}
	if !n.identity.Alone() {
		env.Members = func() (others []string) {
			for _, m := range n.cluster.Members() {
				if m.ServerId != n.identity.ServerID {
					others = append(others, m.ServerId)
				}
			}
			return others
		}
	}
	return addresses.New(env)
}

// Addresses returns the dispatcher of messages for addresses.
func (n *Node) Addresses() *addresses.Dispatcher { return n.addresses }

// Streams implements Peers.
func (s *peerService) Streams(stream commandv1.Peers_StreamsServer) error {
	return s.n.addresses.Serve(stream)
}
