package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// Operator answers for the whole cluster, on whichever node is asked. Its methods block until the answer is
// there or ctx ends, and expect a request whose form was checked. All are safe to repeat: a leadership that
// is already at its target stays there, a running rebuild is joined, a deleted copy stays deleted. An unknown
// node or partition is refused with NODE_NOT_FOUND or PARTITION_NOT_FOUND.
type Operator interface {
	// ClusterStatus shows everything that can be found out now; nodes that do not answer are shown as such.
	ClusterStatus(ctx context.Context) (*perdurev1.ClusterStatus, error)
	// Transfer answers when the new leaders lead.
	Transfer(ctx context.Context, in *perdurev1.TransferLeadershipRequest) (*perdurev1.TransferLeadershipResponse, error)
	// Rebuild answers when the rebuilt replica has caught up.
	Rebuild(ctx context.Context, in *perdurev1.RebuildReplicaRequest) (*perdurev1.RebuildReplicaResponse, error)
	// Upgrade answers when the cluster's feature level is raised, with the partitions that have not reached it yet.
	Upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error)
	// ForgetQuarantined deletes quarantined replicas and nothing else, and answers when they are gone.
	ForgetQuarantined(ctx context.Context, in *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error)
	// Verify has every node audit its replicas and passes their events to send, one at a time. A node that
	// cannot is an event; errors are ctx's and send's.
	Verify(ctx context.Context, in *perdurev1.VerifyRequest, send func(*perdurev1.VerifyEvent) error) error
	// Cut answers when all partitions have entered a new cut and each has a checkpoint.
	Cut(ctx context.Context, in *perdurev1.CutRequest) (*perdurev1.CutResponse, error)
	// ListCheckpoint and ReadCheckpoint show the files of this node's checkpoint of a partition, or refuse with
	// CHECKPOINT_NOT_FOUND. ReadCheckpoint passes a file to send, from an offset on.
	ListCheckpoint(ctx context.Context, in *perdurev1.ListFilesRequest) (*perdurev1.ListFilesResponse, error)
	ReadCheckpoint(ctx context.Context, in *perdurev1.ReadFileRequest, send func(*perdurev1.FileChunk) error) error
	// MakeDelta writes what leads from one checkpoint of this node to another into a file of the later one.
	MakeDelta(ctx context.Context, in *perdurev1.DeltaRequest) (*perdurev1.DeltaResponse, error)
	// ReleaseCut removes the checkpoints of a cut on all nodes that answer.
	ReleaseCut(ctx context.Context, in *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error)
}

// Bounds of an operator's calls.
const (
	maxStatusTime   = 10 * time.Second
	maxTransferTime = time.Minute
	maxRebuildTime  = time.Hour
	maxForgetTime   = time.Minute
	maxUpgradeTime  = time.Minute
	maxVerifyTime   = 24 * time.Hour
)

// maxNodeIDBytes bounds a node's name.
const maxNodeIDBytes = 64

// maxKeptBytes bounds the name of a quarantined replica.
const maxKeptBytes = 64

type cluster struct {
	perdurev1.UnimplementedClusterServer
	s *Server
}

// operate runs a call for at most so long, and ends it with stopped when the node stops: another node can
// answer it too.
func operate[Resp any](ctx context.Context, s *Server, most time.Duration, stopped *api.Error, call func(context.Context, Operator) (Resp, error)) (Resp, error) {
	var none Resp
	if s.cfg.Operator == nil {
		return none, status.Error(codes.Unimplemented, "this server has no operators' service: it was started without a cluster around it")
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	resp, err := call(ctx, s.cfg.Operator)
	switch {
	case err == nil:
		return resp, nil
	case s.isStopping():
		return none, stopped
	}
	return none, err
}

// errCutOff is the error of an operator's call that is in progress when the node stops. The operation may
// still continue.
func errCutOff() *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "the node is stopping: the operation may or may not have been applied")
}

// GetStatus implements Cluster.
func (c *cluster) GetStatus(ctx context.Context, _ *perdurev1.GetStatusRequest) (*perdurev1.ClusterStatus, error) {
	return operate(ctx, c.s, maxStatusTime, errStopping(), func(ctx context.Context, o Operator) (*perdurev1.ClusterStatus, error) {
		return o.ClusterStatus(ctx)
	})
}

// TransferLeadership implements Cluster.
func (c *cluster) TransferLeadership(ctx context.Context, in *perdurev1.TransferLeadershipRequest) (*perdurev1.TransferLeadershipResponse, error) {
	if err := transfer(in); err != nil {
		return nil, err
	}
	return operate(ctx, c.s, maxTransferTime, errCutOff(), func(ctx context.Context, o Operator) (*perdurev1.TransferLeadershipResponse, error) {
		return o.Transfer(ctx, in)
	})
}

// transfer checks that a transfer names what to transfer, in one way, and the target.
func transfer(in *perdurev1.TransferLeadershipRequest) error {
	switch {
	case in.Partition == nil && in.FromNode == "":
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a transfer names a partition, or the node whose leaderships are to go")
	case in.Partition != nil && in.FromNode != "":
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a transfer names a partition or a node to take everything from, not both").
			With("node", short(in.FromNode))
	case in.FromNode != "" && in.FromNode == in.ToNode:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a transfer from %s to itself moves nothing", short(in.FromNode)).With("node", short(in.FromNode))
	}
	if in.Partition != nil {
		if err := partitionNumber(*in.Partition); err != nil {
			return err
		}
	}
	if in.FromNode != "" {
		if err := nodeID("from_node", in.FromNode); err != nil {
			return err
		}
	}
	if in.ToNode != "" {
		return nodeID("to_node", in.ToNode)
	}
	return nil
}

// Upgrade implements Cluster.
func (c *cluster) Upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	return operate(ctx, c.s, maxUpgradeTime, errCutOff(), func(ctx context.Context, o Operator) (*perdurev1.UpgradeResponse, error) {
		return o.Upgrade(ctx, in)
	})
}

// RebuildReplica implements Cluster.
func (c *cluster) RebuildReplica(ctx context.Context, in *perdurev1.RebuildReplicaRequest) (*perdurev1.RebuildReplicaResponse, error) {
	if err := firstError(partitionNumber(in.Partition), nodeID("node_id", in.NodeId)); err != nil {
		return nil, err
	}
	return operate(ctx, c.s, maxRebuildTime, errCutOff(), func(ctx context.Context, o Operator) (*perdurev1.RebuildReplicaResponse, error) {
		return o.Rebuild(ctx, in)
	})
}

// ForgetQuarantined implements Cluster.
func (c *cluster) ForgetQuarantined(ctx context.Context, in *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error) {
	if err := firstError(partitionNumber(in.Partition), nodeID("node_id", in.NodeId)); err != nil {
		return nil, err
	}
	if len(in.Name) > maxKeptBytes {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the name has %d bytes, at most %d are allowed", len(in.Name), maxKeptBytes)
	}
	return operate(ctx, c.s, maxForgetTime, errCutOff(), func(ctx context.Context, o Operator) (*perdurev1.ForgetQuarantinedResponse, error) {
		return o.ForgetQuarantined(ctx, in)
	})
}

// Verify implements Cluster.
func (c *cluster) Verify(in *perdurev1.VerifyRequest, stream perdurev1.Cluster_VerifyServer) error {
	_, err := operate(stream.Context(), c.s, maxVerifyTime, errStopping(), func(ctx context.Context, o Operator) (struct{}, error) {
		return struct{}{}, o.Verify(ctx, in, stream.Send)
	})
	return err
}

// partitionNumber refuses a number that no cluster has: each partition holds at least one slot.
func partitionNumber(p uint32) error {
	if p >= id.Slots {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "partition %d exceeds the last possible one, %d", p, id.Slots-1)
	}
	return nil
}

// nodeID checks the form of a node's name.
func nodeID(what, s string) error {
	switch {
	case s == "":
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s is empty", what)
	case len(s) > maxNodeIDBytes:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s has %d bytes, at most %d are allowed", what, len(s), maxNodeIDBytes)
	}
	foreign := strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
	if foreign >= 0 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s %q has a character other than letters, digits, '.', '_' and '-'", what, s)
	}
	return nil
}
