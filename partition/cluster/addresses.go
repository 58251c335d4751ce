package cluster

import (
	"fmt"
	"strings"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
)

// Members are the servers of the cluster: by the directory, or by the founding before there is one.
func (m *Member) Members() []*commandv1.DirectoryMember {
	if d := m.Directory(); d != nil {
		return d.Members
	}
	var out []*commandv1.DirectoryMember
	for _, f := range m.self.Founders {
		out = append(out, f.Member())
	}
	return out
}

// Gossip returns what gossip says of the servers.
func (m *Member) Gossip() []Hint {
	if m.Hints == nil {
		return nil
	}
	return m.Hints()
}

// Others are the peer addresses of the other members.
func (m *Member) Others() []string {
	var out []string
	for _, o := range m.Members() {
		if o.ServerId != m.self.ServerID {
			if addr := m.AddressOf(o.ServerId); addr != "" {
				out = append(out, addr)
			}
		}
	}
	return out
}

// AddressOf is where a server is, empty if unknown. Raft asks before every message.
func (m *Member) AddressOf(server string) string {
	if book := m.book.Load(); book != nil {
		return (*book)[server]
	}
	return m.addressBook()[server]
}

// addressBook gathers where the servers are: by gossip first, since a node that has moved says so at once.
func (m *Member) addressBook() map[string]string {
	book := map[string]string{}
	for _, f := range m.self.Founders {
		book[f.ServerID] = f.PeerAddr
	}
	for _, o := range m.Directory().GetMembers() {
		book[o.ServerId] = o.PeerAddr
	}
	for _, h := range m.Gossip() {
		book[h.ServerID] = h.PeerAddr
	}
	return book
}

// NodeOf is the node id of a server, or the server's own id if it is not a member.
func (m *Member) NodeOf(server string) string {
	if server == m.self.ServerID {
		return m.self.NodeID
	}
	for _, o := range m.Members() {
		if o.ServerId == server {
			return o.NodeId
		}
	}
	return server
}

// ServerAt is the server id of a peer given by server id or address, or the argument if this node does not know it.
func (m *Member) ServerAt(peer string) string {
	peer, server, _ := strings.Cut(peer, "#")
	if server != "" {
		return server
	}
	for server, addr := range m.addressBook() {
		if addr == peer {
			return server
		}
	}
	return peer
}

// Addresses translates server ids for Raft; nil for a node alone.
func (m *Member) Addresses() raft.ServerAddressProvider {
	if m.self.Alone() {
		return nil
	}
	return addresses{m}
}

type addresses struct{ m *Member }

// ServerAddr implements raft.ServerAddressProvider. An error means that the address in the configuration
// is used.
func (a addresses) ServerAddr(server raft.ServerID) (raft.ServerAddress, error) {
	if addr := a.m.AddressOf(string(server)); addr != "" {
		return raft.ServerAddress(addr), nil
	}
	return "", fmt.Errorf("nothing is known of server %s", server)
}
