package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/backup"
	"perdure/client"
)

const (
	// hashWithin bounds the time in which a node reads one file.
	hashWithin = 10 * time.Minute
	// deltaWithin bounds the time in which a node compares two states, after those of other partitions.
	deltaWithin = 30 * time.Minute
)

// clusterSource is the cluster of a client as the source of a backup.
type clusterSource struct {
	c *client.Client
	// timeout bounds each call, and the wait for the next part of a file.
	timeout time.Duration

	mu    sync.Mutex
	conns map[string]*client.NodeConn
}

// close ends the connections.
func (s *clusterSource) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, conn := range s.conns { //lint:sorted each is closed
		errs = append(errs, conn.Close())
	}
	s.conns = nil
	return errors.Join(errs...)
}

// at is the service of the node that has a checkpoint.
func (s *clusterSource) at(c backup.Checkpoint) (perdurev1.BackupsClient, error) {
	addr := c.Address
	if addr == "" {
		addr = s.c.Addrs()[0] // a node alone knows no address of itself
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.conns[addr]
	if conn == nil {
		var err error
		if conn, err = s.c.DialNode(addr); err != nil {
			return nil, err
		}
		s.conns[addr] = conn
	}
	return conn.Backups(), nil
}

// gone makes the refusal of a node without the checkpoint a *backup.GoneError.
func gone(cut uint64, at backup.Checkpoint, err error) error {
	if e, ok := api.FromStatus(err); ok && e.Reason == perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND {
		return &backup.GoneError{Cut: cut, Partition: at.Partition, Node: at.Node, Err: e}
	}
	return err
}

// Cluster implements backup.Source.
func (s *clusterSource) Cluster(ctx context.Context) (string, error) {
	st, err := s.c.ClusterStatus(ctx)
	if status.Code(err) == codes.Unimplemented {
		return "", nil
	}
	return st.GetClusterId(), err
}

// Cut implements backup.Source.
func (s *clusterSource) Cut(ctx context.Context) (backup.Cut, error) {
	resp, err := s.c.Cut(ctx)
	if err != nil {
		return backup.Cut{}, err
	}
	return backup.CutOf(resp), nil
}

// List implements backup.Source.
func (s *clusterSource) List(ctx context.Context, cut uint64, at backup.Checkpoint) (uint64, []backup.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	node, err := s.at(at)
	if err != nil {
		return 0, nil, err
	}
	resp, err := node.List(ctx, &perdurev1.ListFilesRequest{Cut: cut, Partition: at.Partition})
	if err != nil {
		return 0, nil, gone(cut, at, err)
	}
	return resp.GetIndex(), backup.ListedOf(resp), nil
}

// Read implements backup.Source. The stream breaks if no part arrives in time.
func (s *clusterSource) Read(ctx context.Context, cut uint64, at backup.Checkpoint, name string, offset int64) (io.ReadCloser, error) {
	node, err := s.at(at)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(s.timeout, cancel)
	stream, err := node.Read(ctx, &perdurev1.ReadFileRequest{Cut: cut, Partition: at.Partition, Name: name, Offset: uint64(offset)})
	if err != nil {
		timer.Stop()
		cancel()
		return nil, gone(cut, at, err)
	}
	return &fileStream{stream: stream, timer: timer, cancel: cancel, timeout: s.timeout, gone: func(err error) error { return gone(cut, at, err) }}, nil
}

// fileStream reads the parts of a file.
type fileStream struct {
	stream  perdurev1.Backups_ReadClient
	timer   *time.Timer
	cancel  context.CancelFunc
	timeout time.Duration
	gone    func(error) error
	part    []byte
}

// Read implements io.Reader. The time between two calls does not count.
func (f *fileStream) Read(p []byte) (int, error) {
	for len(f.part) == 0 {
		f.timer.Reset(f.timeout)
		chunk, err := f.stream.Recv()
		f.timer.Stop()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, f.gone(err)
		}
		f.part = chunk.GetData()
	}
	n := copy(p, f.part)
	f.part = f.part[n:]
	return n, nil
}

// Close implements io.Closer.
func (f *fileStream) Close() error {
	f.timer.Stop()
	f.cancel()
	return nil
}

// Hash implements backup.Source.
func (s *clusterSource) Hash(ctx context.Context, cut uint64, at backup.Checkpoint, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, hashWithin)
	defer cancel()
	node, err := s.at(at)
	if err != nil {
		return "", err
	}
	resp, err := node.Hash(ctx, &perdurev1.HashFileRequest{Cut: cut, Partition: at.Partition, Name: name})
	if err != nil {
		return "", gone(cut, at, err)
	}
	return resp.GetSha256(), nil
}

// Delta implements backup.Source. A node of a version before deltas has none.
func (s *clusterSource) Delta(ctx context.Context, cut uint64, at backup.Checkpoint, from backup.Base, limit int64) (backup.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, deltaWithin)
	defer cancel()
	node, err := s.at(at)
	if err != nil {
		return backup.Listed{}, err
	}
	resp, err := node.Delta(ctx, &perdurev1.DeltaRequest{Cut: cut, Partition: at.Partition, FromCut: from.Cut, FromIndex: from.Index, LimitBytes: uint64(limit)})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return backup.Listed{}, &backup.GoneError{Cut: from.Cut, Partition: at.Partition, Node: at.Node, Err: err}
	case err != nil:
		return backup.Listed{}, gone(from.Cut, at, err)
	case resp.GetFile() == nil:
		return backup.Listed{}, backup.ErrDeltaTooLarge
	}
	return backup.Listed{Name: resp.GetFile().GetName(), Size: int64(resp.GetFile().GetSize())}, nil
}

// Release implements backup.Source.
func (s *clusterSource) Release(ctx context.Context, cut uint64) error {
	_, err := s.c.ReleaseCut(ctx, cut)
	return err
}
