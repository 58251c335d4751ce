package embed

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/backup"
	"perdure/backup/schedule"
	"perdure/backup/stores"
	"perdure/internal/clock"
	"perdure/partition"
)

// Bounds of the schedule's settings.
const (
	maxBackupEvery = 365 * 24 * time.Hour
	maxBackupKeep  = 100_000
)

// Bounds of the calls for a scheduled backup.
const (
	cutWithin = 5 * time.Minute
	// listWithin also bounds the wait for the next part of a file, and the removal of a cut.
	listWithin = time.Minute
	hashWithin = 10 * time.Minute
	// deltaWithin bounds the time in which a node compares two states, after those of other partitions.
	deltaWithin = 30 * time.Minute
)

// checkBackupURL refuses what is no location of backups; the environment is read when the first one is made.
func checkBackupURL(value any) string {
	url := *value.(*string)
	if url == "" {
		return ""
	}
	if err := stores.Check(url, func(string) string { return "" }); err != nil {
		return err.Error()
	}
	return ""
}

// schedule makes the schedule of the settings, which were checked.
func (c *Config) schedule(source *nodeSource, log *slog.Logger) *schedule.Schedule {
	return schedule.New(schedule.Options{
		URL: c.BackupURL, Open: func() (backup.Store, error) { return stores.Open(c.BackupURL, nil) },
		Source: source, Every: c.BackupEvery, Keep: c.BackupKeep, Rate: c.BackupRate,
		Leads: source.leads, Clock: clock.System{}, Log: log,
	})
}

// runBackups starts the schedule, until stopBackups is called.
func (n *Node) runBackups() {
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { n.backups.Run(ctx) })
	n.stopBackups = func() {
		cancel()
		run.Wait()
	}
}

// nodeSource is the cluster of a node as the source of a backup: it asks the members over their peer ports.
type nodeSource struct{ node *partition.Node }

// leads reports whether the node leads partition 0.
func (s *nodeSource) leads() bool {
	r, err := s.node.Router().Replica(0)
	return err == nil && r.Serving()
}

// gone makes the refusal of a node without the checkpoint a *backup.GoneError.
func gone(cut uint64, at backup.Checkpoint, err error) error {
	if e, ok := api.FromStatus(err); ok && e.Reason == perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND {
		return &backup.GoneError{Cut: cut, Partition: at.Partition, Node: at.Node, Err: e}
	}
	return err
}

// Cluster implements backup.Source.
func (s *nodeSource) Cluster(context.Context) (string, error) {
	return s.node.Identity().ClusterID, nil
}

// Cut implements backup.Source.
func (s *nodeSource) Cut(ctx context.Context) (backup.Cut, error) {
	ctx, cancel := context.WithTimeout(ctx, cutWithin)
	defer cancel()
	resp, err := s.node.Operator().Cut(ctx, &perdurev1.CutRequest{})
	if err != nil {
		return backup.Cut{}, err
	}
	return backup.CutOf(resp), nil
}

// List implements backup.Source.
func (s *nodeSource) List(ctx context.Context, cut uint64, at backup.Checkpoint) (uint64, []backup.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	resp, err := s.node.Checkpoints().List(ctx, at.Node, &perdurev1.ListFilesRequest{Cut: cut, Partition: at.Partition})
	if err != nil {
		return 0, nil, gone(cut, at, err)
	}
	return resp.GetIndex(), backup.ListedOf(resp), nil
}

// Hash implements backup.Source.
func (s *nodeSource) Hash(ctx context.Context, cut uint64, at backup.Checkpoint, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, hashWithin)
	defer cancel()
	resp, err := s.node.Checkpoints().Hash(ctx, at.Node, &perdurev1.HashFileRequest{Cut: cut, Partition: at.Partition, Name: name})
	if err != nil {
		return "", gone(cut, at, err)
	}
	return resp.GetSha256(), nil
}

// Delta implements backup.Source. A node of a version before deltas has none.
func (s *nodeSource) Delta(ctx context.Context, cut uint64, at backup.Checkpoint, from backup.Base, limit int64) (backup.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, deltaWithin)
	defer cancel()
	resp, err := s.node.Checkpoints().Delta(ctx, at.Node, &perdurev1.DeltaRequest{Cut: cut, Partition: at.Partition, FromCut: from.Cut, FromIndex: from.Index, LimitBytes: uint64(limit)})
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
func (s *nodeSource) Release(ctx context.Context, cut uint64) error {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	_, err := s.node.Operator().ReleaseCut(ctx, &perdurev1.ReleaseCutRequest{Cut: cut})
	return err
}

// errLate ends a stream of which no part arrived in time.
var errLate = errors.New("no part of the file arrived in time")

// Read implements backup.Source. The stream breaks if no part arrives in time.
func (s *nodeSource) Read(ctx context.Context, cut uint64, at backup.Checkpoint, name string, offset int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(listWithin, func() { cancel(errLate) })
	r, w := io.Pipe()
	f := &pipedFile{PipeReader: r, stop: func() { cancel(nil) }}
	f.sender.Go(func() {
		err := s.node.Checkpoints().Read(ctx, at.Node, &perdurev1.ReadFileRequest{Cut: cut, Partition: at.Partition, Name: name, Offset: uint64(offset)},
			func(chunk *perdurev1.FileChunk) error {
				timer.Stop() // the time that the reader takes does not count
				_, err := w.Write(chunk.GetData())
				timer.Reset(listWithin)
				return err
			})
		timer.Stop()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		w.CloseWithError(gone(cut, at, err)) // io.EOF for nil
	})
	return f, nil
}

// pipedFile is a file that a goroutine reads from a node. Close waits for that.
type pipedFile struct {
	*io.PipeReader
	stop   func()
	sender sync.WaitGroup
}

// Close implements io.Closer.
func (f *pipedFile) Close() error {
	f.stop()
	err := f.PipeReader.Close()
	f.sender.Wait()
	return err
}
