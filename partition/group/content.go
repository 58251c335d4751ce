package group

import (
	"context"
	"io"

	"perdure/partition/disk"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
)

// contentChunk bounds a partition's content in one message.
const contentChunk = 1 << 20

// SendContent sends a copy of the state, as the leader, in pieces of at most 1 MiB, which send must not keep. It
// blocks until all is sent. The copy covers every entry that any member's snapshot marker covers. Errors: why
// this replica does not lead, TRY_LATER when the state cannot be read, send's.
func (r *Replica) SendContent(ctx context.Context, send func([]byte) error) error {
	if !r.Serving() {
		return r.NotServing()
	}
	if r.disk != nil && r.env.DiskLevel() >= disk.Critical {
		return r.errDiskFull(disk.Critical)
	}
	// A state read after this barrier covers every entry that any member's snapshot marker covers.
	if err := raftgroup.Await(r.raft.Barrier(raftgroup.EnqueueTimeout), r.killed, ctx.Done()); err != nil {
		return refusal.NotLeader(r.id, r.hint())
	}
	read, write := io.Pipe()
	go func() {
		_, err := r.store.WriteContent(write)
		_ = write.CloseWithError(err) // a nil error ends the content
	}()
	defer func() { _ = read.Close() }() // ends the writer
	buf := make([]byte, contentChunk)
	for {
		n, err := io.ReadFull(read, buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil
		default:
			return refusal.TryLater(r.id, "the content could not be read: "+err.Error())
		}
	}
}
