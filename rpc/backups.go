package rpc

import (
	"context"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// Bounds of the calls for a backup.
const (
	maxCutTime     = 5 * time.Minute
	maxListTime    = time.Minute
	maxReadTime    = time.Hour
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
	if in.Name == "" || len(in.Name) > maxFileNameBytes {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the name has %d bytes, 1 to %d are allowed", len(in.Name), maxFileNameBytes)
	}
	_, err := operate(stream.Context(), b.s, maxReadTime, errStopping(), func(ctx context.Context, o Operator) (struct{}, error) {
		return struct{}{}, o.ReadCheckpoint(ctx, in, stream.Send)
	})
	return err
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

// cutNumber refuses what is no cut.
func cutNumber(n uint64) error {
	if n == 0 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "cut 0 is before the first")
	}
	return nil
}
