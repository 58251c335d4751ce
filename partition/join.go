package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/peers"
	"perdure/partition/transport"
)

// probePatience bounds the question whether a server is still there.
const probePatience = 2 * time.Second

// admit decides, as the directory's leader, whether a server gets the place it asks for: the place of its
// node id, whose former server must be gone.
func (n *Node) admit(ctx context.Context, in *commandv1.JoinRequest) (*commandv1.Directory, error) {
	refuse := func(format string, args ...any) error {
		err := api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, format, args...)
		n.log.Warn("a server was refused", "event", "join_refused", "node", in.GetMember().GetNodeId(),
			"server", in.GetMember().GetServerId(), "addr", in.GetMember().GetPeerAddr(), "reason", err.Message)
		return err
	}
	if n.directory == nil {
		return nil, refuse("cluster %s has one member, node %s, and takes no others", n.identity.ClusterID, n.identity.NodeID)
	}
	m := in.Member
	if m.GetNodeId() == "" || m.GetServerId() == "" || m.GetPeerAddr() == "" {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a member has a node id, a server id and a peer address")
	}
	dir, err := n.directory.verified(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, have := range dir.Members {
		names = append(names, have.NodeId)
	}
	i := slices.Index(names, m.NodeId)
	switch {
	case in.Partitions != 0 && in.Partitions != dir.Partitions:
		return nil, refuse("cluster %s has %d partitions, node %s was told %d (--partitions)", dir.ClusterId, dir.Partitions, m.NodeId, in.Partitions)
	case in.BootstrapExpect > 1 && int(in.BootstrapExpect) != len(dir.Members):
		return nil, refuse("cluster %s was made by %d members, node %s was told %d (--bootstrap-expect)", dir.ClusterId, len(dir.Members), m.NodeId, in.BootstrapExpect)
	case i < 0:
		return nil, refuse("cluster %s has its %d members (%s) and node %s is not one of them; a server that replaces a member has its node id",
			dir.ClusterId, len(names), strings.Join(names, ", "), m.NodeId)
	}
	old := dir.Members[i]
	if old.ServerId == m.ServerId && old.PeerAddr == m.PeerAddr {
		return dir, nil
	}
	if old.ServerId != m.ServerId {
		ctx, cancel := context.WithTimeout(ctx, probePatience)
		defer cancel()
		if there, err := n.mux.Probe(ctx, n.addressOf(old.ServerId)); err == nil && there == old.ServerId {
			return nil, refuse("node %s is running, as server %s at %s: stop it before another server takes its place", m.NodeId, old.ServerId, n.addressOf(old.ServerId))
		}
	}
	if err := n.directory.propose(ctx, &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{
		Member: m, Replaces: old.ServerId}}}); err != nil {
		return nil, err
	}
	n.log.Info("a server has a place", "event", "member_admitted", "node", m.NodeId, "server", m.ServerId, "replaces", old.ServerId)
	n.poke()
	return n.directory.current(), nil
}

// AskToJoin asks the cluster for a place for a server that has no data yet, at any of its members, until
// it is answered or ctx ends. The directory it answers has the place. A refusal is an *api.Error with
// reason MEMBERSHIP_REFUSED.
func AskToJoin(ctx context.Context, clusterID string, opts transport.Options, members []string, in *commandv1.JoinRequest) (*commandv1.Directory, error) {
	opts.ClusterID, opts.ServerID, opts.Advertise = clusterID, in.Member.ServerId, in.Member.PeerAddr
	mux, err := transport.Listen("127.0.0.1:0", opts) // only to dial from
	if err != nil {
		return nil, err
	}
	defer func() { _ = mux.Close() }() // nothing of value is on it
	ask := func(addr string) (*commandv1.Directory, error) {
		conn, err := peers.Dial(mux, addr)
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close() }() // it was used for one call
		ctx, cancel := context.WithTimeout(ctx, changePatience)
		defer cancel()
		reply, err := commandv1.NewPeersClient(conn).Join(ctx, in)
		return reply.GetDirectory(), err
	}
	last := errors.New("no member of it is known")
	for pause := routePauseMin; ; pause = min(2*pause, time.Second) {
		tried := slices.Clone(members)
		for i := 0; i < len(tried) && i < 2*len(members); i++ {
			dir, err := ask(tried[i])
			if err == nil {
				return dir, nil
			}
			leader, again := mayTryElsewhere(err)
			// A leader that lost its place meanwhile does not know. To ask again does no harm: who has the place is told so.
			if e, ours := api.FromStatus(err); ours && !again && e.Reason != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
				return nil, e
			}
			if leader != "" {
				tried = append(tried, leader)
			}
			last = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("cluster %s did not answer: %w", clusterID, last)
		}
	}
}
