package cluster

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
	"perdure/fsm/state"
	"perdure/internal/clock"
	"perdure/partition/peers"
	"perdure/partition/refusal"
	"perdure/partition/transport"
)

// probeTimeout bounds the probe of the former server. pauseMin and pauseMax bound the pause between two
// rounds of requests to the members.
const (
	probeTimeout = 2 * time.Second
	pauseMin     = 5 * time.Millisecond
	pauseMax     = time.Second
)

// Admit decides, as the directory's leader, whether a server becomes the member for its node id: the former server of
// that node must not answer. Errors are *api.Error; a refusal has the reason MEMBERSHIP_REFUSED,
// or FEATURE_LEVEL if the server does not know the cluster's level. A member announces its level in the same way.
func (m *Member) Admit(ctx context.Context, in *commandv1.JoinRequest) (*commandv1.Directory, error) {
	refuse := func(format string, args ...any) error {
		err := api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, format, args...)
		m.Log.Warn("server refused", "event", "join_refused", "node", in.GetMember().GetNodeId(),
			"server", in.GetMember().GetServerId(), "addr", in.GetMember().GetPeerAddr(), "reason", err.Message)
		return err
	}
	if m.raft == nil {
		return nil, refuse("cluster %s has one member, node %s, and takes no others", m.self.ClusterID, m.self.NodeID)
	}
	asks := in.Member
	if asks.GetNodeId() == "" || asks.GetServerId() == "" || asks.GetPeerAddr() == "" {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "member lacks a node id, a server id or a peer address")
	}
	dir, err := m.verified(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, have := range dir.Members {
		names = append(names, have.NodeId)
	}
	i := slices.Index(names, asks.NodeId)
	switch {
	case in.Partitions != 0 && in.Partitions != dir.Partitions:
		return nil, refuse("cluster %s has %d partitions, node %s was started with %d (--partitions)", dir.ClusterId, dir.Partitions, asks.NodeId, in.Partitions)
	case in.BootstrapExpect > 1 && int(in.BootstrapExpect) != len(dir.Members):
		return nil, refuse("cluster %s was founded by %d members, node %s was started with %d (--bootstrap-expect)", dir.ClusterId, len(dir.Members), asks.NodeId, in.BootstrapExpect)
	case i < 0:
		return nil, refuse("cluster %s has its %d members (%s) and node %s is not one of them; a server that replaces a member has its node id",
			dir.ClusterId, len(names), strings.Join(names, ", "), asks.NodeId)
	}
	old := dir.Members[i]
	if old.ServerId == asks.ServerId && old.PeerAddr == asks.PeerAddr && (asks.FeatureLevel == 0 || asks.FeatureLevel == old.FeatureLevel) {
		return dir, nil
	}
	if old.ServerId != asks.ServerId {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if there, err := m.port.Probe(ctx, m.AddressOf(old.ServerId)); err == nil && there == old.ServerId {
			return nil, refuse("node %s is running, as server %s at %s: stop it before another server replaces it", asks.NodeId, old.ServerId, m.AddressOf(old.ServerId))
		}
	}
	if err := m.Propose(ctx, &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{
		Member: asks, Replaces: old.ServerId}}}); err != nil {
		return nil, err
	}
	if old.ServerId == asks.ServerId && old.PeerAddr == asks.PeerAddr {
		m.Log.Info("feature level announced", "event", "feature_level_announced", "node", asks.NodeId, "level", asks.FeatureLevel)
		return m.Directory(), nil
	}
	m.Log.Info("member admitted", "event", "member_admitted", "node", asks.NodeId, "server", asks.ServerId, "replaces", old.ServerId)
	m.Schedule()
	m.Env.Changed()
	return m.Directory(), nil
}

// AskToJoin asks a cluster to admit a server that has no data yet, at any of its members. It blocks until a
// leader answers or ctx ends. The directory that it returns lists the server. A refusal is an *api.Error with
// reason MEMBERSHIP_REFUSED or FEATURE_LEVEL.
func AskToJoin(ctx context.Context, clusterID string, opts transport.Options, members []string, in *commandv1.JoinRequest) (*commandv1.Directory, error) {
	in.Member.FeatureLevel = state.FeatureLevel
	opts.ClusterID, opts.ServerID, opts.Advertise = clusterID, in.Member.ServerId, in.Member.PeerAddr
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
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
		ctx, cancel := context.WithTimeout(ctx, changeTimeout)
		defer cancel()
		reply, err := commandv1.NewPeersClient(conn).Join(ctx, in)
		return reply.GetDirectory(), err
	}
	last := errors.New("no member of it is known")
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		tried := slices.Clone(members)
		for i := 0; i < len(tried) && i < 2*len(members); i++ {
			dir, err := ask(tried[i])
			if err == nil {
				return dir, nil
			}
			leader, again := refusal.Elsewhere(err)
			// A leader that was deposed meanwhile does not know the outcome. Asking again is harmless: it
			// admits a member again.
			if e, ours := api.FromStatus(err); ours && !again && e.Reason != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
				return nil, e
			}
			if leader != "" {
				tried = append(tried, leader)
			}
			last = err
		}
		if !clock.Wait(ctx, opts.Clock, pause) {
			return nil, fmt.Errorf("cluster %s did not answer: %w", clusterID, last)
		}
	}
}
