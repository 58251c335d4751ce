package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// Bounds of the calls for a backup.
const (
	maxCutTime     = 5 * time.Minute
	maxListTime    = time.Minute
	maxReadTime    = time.Hour
	maxHashTime    = 10 * time.Minute
	maxDeltaTime   = 30 * time.Minute
	maxReleaseTime = time.Minute
)

// maxFileNameBytes bounds the name of a checkpoint's file.
const maxFileNameBytes = 255

type backups struct {
	perdurev1.UnimplementedBackupsServer
	s *Server
}

// Cut implements Backups.
func (b *backups) Cut(ctx context.Context, in *perdurev1.CutRequest) (*perdurev1.CutResponse, error) {
	return operate(ctx, b.s, maxCutTime, errCutOff(), func(ctx context.Context, o Operator) (*perdurev1.CutResponse, error) {
		return o.Cut(ctx, in)
	})
}

// List implements Backups.
func (b *backups) List(ctx context.Context, in *perdurev1.ListFilesRequest) (*perdurev1.ListFilesResponse, error) {
	if err := firstError(partitionNumber(in.Partition), cutNumber(in.Cut)); err != nil {
		return nil, err
	}
	return operate(ctx, b.s, maxListTime, errStopping(), func(ctx context.Context, o Operator) (*perdurev1.ListFilesResponse, error) {
		return o.ListCheckpoint(ctx, in)
	})
}

// Read implements Backups.
func (b *backups) Read(in *perdurev1.ReadFileRequest, stream perdurev1.Backups_ReadServer) error {
	if err := firstError(partitionNumber(in.Partition), cutNumber(in.Cut)); err != nil {
		return err
	}
	if err := checkpointFile(in.Name); err != nil {
		return err
	}
	_, err := operate(stream.Context(), b.s, maxReadTime, errStopping(), func(ctx context.Context, o Operator) (struct{}, error) {
		return struct{}{}, o.ReadCheckpoint(ctx, in, stream.Send)
	})
	return err
}

// Hash implements Backups.
func (b *backups) Hash(ctx context.Context, in *perdurev1.HashFileRequest) (*perdurev1.HashFileResponse, error) {
	if err := firstError(partitionNumber(in.Partition), cutNumber(in.Cut), checkpointFile(in.Name)); err != nil {
		return nil, err
	}
	return operate(ctx, b.s, maxHashTime, errStopping(), func(ctx context.Context, o Operator) (*perdurev1.HashFileResponse, error) {
		sum := sha256.New()
		err := o.ReadCheckpoint(ctx, &perdurev1.ReadFileRequest{Cut: in.Cut, Partition: in.Partition, Name: in.Name}, func(c *perdurev1.FileChunk) error {
			_, err := sum.Write(c.Data)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &perdurev1.HashFileResponse{Sha256: hex.EncodeToString(sum.Sum(nil))}, nil
	})
}

// Delta implements Backups.
func (b *backups) Delta(ctx context.Context, in *perdurev1.DeltaRequest) (*perdurev1.DeltaResponse, error) {
	if err := firstError(partitionNumber(in.Partition), cutNumber(in.Cut), cutNumber(in.FromCut)); err != nil {
		return nil, err
	}
	if in.FromCut >= in.Cut {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "from_cut: %d is not before cut %d", in.FromCut, in.Cut)
	}
	return operate(ctx, b.s, maxDeltaTime, errStopping(), func(ctx context.Context, o Operator) (*perdurev1.DeltaResponse, error) {
		return o.MakeDelta(ctx, in)
	})
}

// Release implements Backups.
func (b *backups) Release(ctx context.Context, in *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error) {
	if err := cutNumber(in.Cut); err != nil {
		return nil, err
	}
	return operate(ctx, b.s, maxReleaseTime, errCutOff(), func(ctx context.Context, o Operator) (*perdurev1.ReleaseCutResponse, error) {
		return o.ReleaseCut(ctx, in)
	})
}

// checkpointFile refuses what is no name of a file.
func checkpointFile(name string) error {
	if name == "" || len(name) > maxFileNameBytes {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the name has %d bytes, 1 to %d are allowed", len(name), maxFileNameBytes)
	}
	return nil
}

// cutNumber refuses what is no cut.
func cutNumber(n uint64) error {
	if n == 0 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "cut 0 is before the first")
	}
	return nil
}
