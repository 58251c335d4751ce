package partition

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Checkpoints reads the checkpoints of all members, for a member that makes backups of its cluster. It is safe for
// concurrent use. Errors are those of Operator's methods, NODE_NOT_FOUND, or the connection's.
type Checkpoints struct{ o *Operator }

// Checkpoints returns the checkpoints of all members.
func (n *Node) Checkpoints() *Checkpoints { return &Checkpoints{n.Operator()} }

// at returns the service of another member; nil for this node.
func (c *Checkpoints) at(node string) (commandv1.PeersClient, error) {
	n := c.o.n
	m, err := memberClient{n}.named(node)
	if err != nil || m.ServerId == n.identity.ServerID {
		return nil, err
	}
	return n.peers.Client(n.cluster.AddressOf(m.ServerId))
}

// List lists the files of a node's checkpoint.
func (c *Checkpoints) List(ctx context.Context, node string, in *perdurev1.ListFilesRequest) (*perdurev1.ListFilesResponse, error) {
	peer, err := c.at(node)
	switch {
	case err != nil:
		return nil, err
	case peer == nil:
		return c.o.ListCheckpoint(ctx, in)
	}
	return peer.ListCheckpoint(ctx, in)
}

// Hash returns the SHA-256 of a file of a node's checkpoint.
func (c *Checkpoints) Hash(ctx context.Context, node string, in *perdurev1.HashFileRequest) (*perdurev1.HashFileResponse, error) {
	peer, err := c.at(node)
	switch {
	case err != nil:
		return nil, err
	case peer == nil:
		return c.o.hash(ctx, in)
	}
	return peer.HashCheckpoint(ctx, in)
}

// Delta has a node write what leads from one of its checkpoints to another.
func (c *Checkpoints) Delta(ctx context.Context, node string, in *perdurev1.DeltaRequest) (*perdurev1.DeltaResponse, error) {
	peer, err := c.at(node)
	switch {
	case err != nil:
		return nil, err
	case peer == nil:
		return c.o.MakeDelta(ctx, in)
	}
	return peer.MakeDelta(ctx, in)
}

// Read sends a file of a node's checkpoint in chunks, from an offset on, and ends with the first error of send.
func (c *Checkpoints) Read(ctx context.Context, node string, in *perdurev1.ReadFileRequest, send func(*perdurev1.FileChunk) error) error {
	peer, err := c.at(node)
	switch {
	case err != nil:
		return err
	case peer == nil:
		return c.o.ReadCheckpoint(ctx, in, send)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if send fails
	stream, err := peer.ReadCheckpoint(ctx, in)
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := send(chunk); err != nil {
			return err
		}
	}
}

// ListCheckpoint implements Peers.
func (s *peerService) ListCheckpoint(ctx context.Context, in *perdurev1.ListFilesRequest) (*perdurev1.ListFilesResponse, error) {
	return s.n.Operator().ListCheckpoint(ctx, in)
}

// ReadCheckpoint implements Peers.
func (s *peerService) ReadCheckpoint(in *perdurev1.ReadFileRequest, stream commandv1.Peers_ReadCheckpointServer) error {
	return s.n.Operator().ReadCheckpoint(stream.Context(), in, stream.Send)
}

// HashCheckpoint implements Peers.
func (s *peerService) HashCheckpoint(ctx context.Context, in *perdurev1.HashFileRequest) (*perdurev1.HashFileResponse, error) {
	return s.n.Operator().hash(ctx, in)
}

// MakeDelta implements Peers.
func (s *peerService) MakeDelta(ctx context.Context, in *perdurev1.DeltaRequest) (*perdurev1.DeltaResponse, error) {
	return s.n.Operator().MakeDelta(ctx, in)
}

// hash returns the SHA-256 of a file of this node's checkpoint, in lower-case hex. Errors are those of ReadCheckpoint.
func (o *Operator) hash(ctx context.Context, in *perdurev1.HashFileRequest) (*perdurev1.HashFileResponse, error) {
	sum := sha256.New()
	if err := o.ReadCheckpoint(ctx, &perdurev1.ReadFileRequest{Cut: in.Cut, Partition: in.Partition, Name: in.Name}, func(c *perdurev1.FileChunk) error {
		_, err := sum.Write(c.Data)
		return err
	}); err != nil {
		return nil, err
	}
	return &perdurev1.HashFileResponse{Sha256: hex.EncodeToString(sum.Sum(nil))}, nil
}
