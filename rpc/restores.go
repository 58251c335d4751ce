package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// Bounds of a restore.
const (
	// maxImportTime is how long one import may take.
	maxImportTime = 24 * time.Hour
	// maxImportBytes bounds the rows of one message, if they are several.
	maxImportBytes = 1 << 20
	// importInFlight bounds the messages of one stream that are in the log and not stored yet.
	importInFlight = 4
	// importTimeout is how long a partition may take to store the rows of one message, a new leader's election included.
	importTimeout = 2 * time.Minute
)

type restores struct {
	perdurev1.UnimplementedRestoresServer
	s *Server
}

// Import implements Restores.
func (r *restores) Import(stream perdurev1.Restores_ImportServer) error {
	first, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "an import without a first message")
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(stream.Context(), maxImportTime)
	defer cancel()
	run := &importing{s: r.s, ctx: ctx, restore: first.Restore, partitions: r.s.router.Partitions(), out: &perdurev1.ImportResponse{}}
	if err := run.begin(first); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if err := run.drain(); err != nil {
				return err
			}
			return stream.SendAndClose(run.out)
		}
		if err == nil {
			err = run.take(in)
		}
		if err != nil {
			cancel()
			_ = run.flights.Wait() // err says more
			return err
		}
	}
}

// importing is one import.
type importing struct {
	s          *Server
	ctx        context.Context
	restore    uint64
	partitions uint32
	// flights store messages, at most importInFlight. flying ends with their first error.
	flights *errgroup.Group
	flying  context.Context

	mu sync.Mutex
	// ended are the partitions whose restore had ended before.
	ended map[uint32]bool
	out   *perdurev1.ImportResponse
}

// fly permits further flights.
func (r *importing) fly() {
	r.flights, r.flying = errgroup.WithContext(r.ctx)
	r.flights.SetLimit(importInFlight)
}

// drain waits until all messages are stored.
func (r *importing) drain() error {
	err := r.flights.Wait()
	r.fly()
	return err
}

// begin reserves all partitions for the restore: if one of them is not empty, none gets a row.
func (r *importing) begin(in *perdurev1.ImportRequest) error {
	switch {
	case in.Restore == 0:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "restore: must not be 0")
	case in.Partitions != r.partitions:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "partitions: rows for %d, the cluster has %d", in.Partitions, r.partitions)
	case len(in.Rows) > 0 || in.Done != nil:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "rows: must not be in the first message")
	}
	r.ended = map[uint32]bool{}
	r.fly()
	for p := range r.partitions {
		if err := r.store(p, nil); err != nil {
			return err
		}
	}
	return nil
}

// take begins to store the rows of one message: no row depends on another one. An end is stored when all rows are. The
// error may be that of an earlier message.
func (r *importing) take(in *perdurev1.ImportRequest) error {
	if failed := context.Cause(r.flying); failed != nil {
		return failed
	}
	switch {
	case in.Restore != r.restore:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "restore: %016x in an import of %016x", in.Restore, r.restore)
	case in.Partition >= r.partitions:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "partition: %d, the cluster has %d", in.Partition, r.partitions)
	case in.Done != nil && in.Done.Level > state.FeatureLevel:
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "done.level: the backup is of feature level %d, this node knows up to %d", in.Done.Level, state.FeatureLevel)
	}
	size := 0
	for _, row := range in.Rows {
		size += len(row.Key) + len(row.Value)
	}
	if size > maxImportBytes && len(in.Rows) > 1 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "rows: %d bytes in %d rows exceed %d", size, len(in.Rows), maxImportBytes)
	}
	if !r.hasEnded(in.Partition) && len(in.Rows) > 0 {
		r.flights.Go(func() error { // it waits while as many as may be are in flight
			if err := r.store(in.Partition, in.Rows); err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.out.Rows += uint64(len(in.Rows))
			r.out.Bytes += uint64(size)
			return nil
		})
	}
	if in.Done == nil {
		return nil
	}
	if err := r.drain(); err != nil || r.hasEnded(in.Partition) {
		return err
	}
	cmd := &commandv1.Command{Kind: &commandv1.Command_ImportDone{ImportDone: &commandv1.ImportDone{
		Restore: r.restore, Base: in.Done.Base, ClockMs: in.Done.ClockMs, Level: in.Done.Level, Evicted: in.Done.Evicted}}}
	for more := true; more; {
		reply, err := r.propose(in.Partition, cmd)
		if err != nil {
			return err
		}
		more = reply.GetImportDone().GetMore()
	}
	return nil
}

// store puts rows into a partition's log.
func (r *importing) store(partition uint32, rows []*perdurev1.ImportedRow) error {
	in := &commandv1.Import{Restore: r.restore}
	for _, row := range rows {
		in.Rows = append(in.Rows, &commandv1.ImportRow{Key: row.Key, Value: row.Value})
	}
	reply, err := r.propose(partition, &commandv1.Command{Kind: &commandv1.Command_Import{Import: in}})
	if err == nil && reply.GetImport().GetDone() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended[partition] = true
	}
	return err
}

func (r *importing) hasEnded(partition uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[partition]
}

// propose puts a command into a partition's log, and repeats that while no leader answers.
func (r *importing) propose(partition uint32, cmd *commandv1.Command) (reply *commandv1.Reply, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, importTimeout)
	defer cancel()
	err = r.s.retry(ctx, func() (err error) {
		reply, err = r.s.router.Deliver(ctx, partition, cmd)
		return err
	})
	return reply, err
}
