package client

import (
	"context"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
)

// NodeConn is a connection to one node, as workers of package durable use it. It neither retries nor fails over.
type NodeConn struct {
	n     *node
	c     *Client
	owned bool
}

// Addrs are the addresses that the client was given, each once.
func (c *Client) Addrs() []string {
	var out []string
	for _, n := range c.nodes {
		if !slices.Contains(out, n.addr) {
			out = append(out, n.addr)
		}
	}
	return out
}

// DialNode makes a connection to a node at any address, with the client's options. It does no I/O. Close it.
func (c *Client) DialNode(addr string) (*NodeConn, error) {
	for _, n := range c.nodes {
		if n.addr == addr {
			return &NodeConn{n: n, c: c}, nil
		}
	}
	n, err := c.connect(addr)
	if err != nil {
		return nil, err
	}
	return &NodeConn{n: n, c: c, owned: true}, nil
}

// Addr is the address.
func (n *NodeConn) Addr() string { return n.n.addr }

// ListNodes asks which node is there, and for the nodes of its cluster.
func (n *NodeConn) ListNodes(ctx context.Context) (*perdurev1.NodeList, error) {
	return n.n.tasks.ListNodes(ctx, &perdurev1.ListNodesRequest{Namespace: n.c.Namespace()})
}

// Work opens a raw worker stream.
func (n *NodeConn) Work(ctx context.Context) (perdurev1.Tasks_WorkClient, error) {
	return n.n.tasks.Work(ctx)
}

// Close ends the connection, unless it is the client's own.
func (n *NodeConn) Close() error {
	if !n.owned {
		return nil
	}
	return n.n.close()
}
