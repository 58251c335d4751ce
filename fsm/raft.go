package fsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
)

// entryFormat is the first byte of every log entry: how the rest is encoded.
const entryFormat = 1

// EncodeEntry encodes an entry for the Raft log.
func EncodeEntry(e *commandv1.Entry) ([]byte, error) {
	b := make([]byte, 1, 1+proto.Size(e))
	b[0] = entryFormat
	return proto.MarshalOptions{Deterministic: true, UseCachedSize: true}.MarshalAppend(b, e) // of proto.Size
}

var _ raft.BatchingFSM = (*Store)(nil)

// Apply implements raft.FSM; see ApplyBatch.
func (s *Store) Apply(l *raft.Log) any { return s.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. For a command entry the response is its *machine.Result (nil if the
// state already had the entry), or an error after which the store applies nothing; for any other entry it is
// nil. If one fails, the responses of all are errors, also of those before it, which are applied. Nothing refers to their bytes afterwards.
func (s *Store) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	if s.failed() == nil {
		if err := s.apply(logs, out); err != nil {
			s.fail(err)
		}
	}
	if err := s.failed(); err != nil {
		for i := range out {
			out[i] = err
		}
	}
	return out
}

func (s *Store) apply(logs []*raft.Log, out []any) error {
	var results []*machine.Result
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		res, err := s.applyOne(l)
		if err != nil {
			return err
		}
		if res == nil {
			continue
		}
		out[i] = res
		results = append(results, res)
		if res.Cut != 0 {
			s.report(results)
			results = nil
			s.checkpoint(res.Cut)
		}
	}
	s.report(results)
	return nil
}

func (s *Store) report(results []*machine.Result) {
	if s.opts.OnApplied != nil {
		for _, res := range results {
			s.opts.OnApplied(res)
		}
	}
}

// applyOne applies a command entry; the result is nil if the state had it.
func (s *Store) applyOne(l *raft.Log) (res *machine.Result, err error) {
	err = s.read(func(db *pebble.DB) (err error) {
		s.pending.take()
		defer s.pending.release()
		defer func() {
			if err != nil {
				s.fail(err) // before a read finds that nothing is pending
			}
		}()
		before := s.machine.Applied()
		if l.Index <= before {
			return nil
		}
		e, err := s.decoder.entry(l.Data)
		if err != nil {
			return errors.Join(&DamagedError{s.dir, fmt.Errorf("index %d: %w", l.Index, err)}, s.storePending(db))
		}
		if res, err = s.machine.Apply(l.Index, e); err != nil {
			return s.damaged(err)
		}
		present := Mark{s.machine.Applied(), s.machine.Checksum()}
		s.marks.add(present, crosses(before, l.Index))
		s.stuck.set(s.machine.Stuck())
		if s.machine.Pending() < s.opts.pendingKeys && s.machine.WriteBytes() < pendingBytes && res.Cut == 0 {
			return nil
		}
		return s.storePending(db)
	})
	return res, err
}

func commit(db *pebble.DB, writes []state.Write) error {
	b := db.NewBatchWithSize(batchSize(writes), pebble.WithMaxRetainedSizeBytes(2*pendingBytes))
	for _, w := range writes {
		var err error
		if w.Value == nil {
			err = b.Delete(w.Key, nil)
		} else {
			err = b.Set(w.Key, w.Value, nil)
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Close()
}

func batchSize(writes []state.Write) int { return 64 + 16*len(writes) + sizeOf(writes) }

// sizeOf is the bytes of keys and values.
func sizeOf(writes []state.Write) (n int) {
	for _, w := range writes {
		n += len(w.Key) + len(w.Value)
	}
	return n
}

// marker is a raft.FSMSnapshot without content: the state is its own snapshot (see Cover).
type marker struct{}

// Persist implements raft.FSMSnapshot.
func (marker) Persist(sink raft.SnapshotSink) error { return sink.Close() }

// Release implements raft.FSMSnapshot.
func (marker) Release() {}

// Snapshot implements raft.FSM.
func (s *Store) Snapshot() (raft.FSMSnapshot, error) {
	if err := s.failed(); err != nil {
		return nil, err
	}
	return marker{}, nil
}

// Restore implements raft.FSM: it replaces the state by the content of a snapshot.
func (s *Store) Restore(content io.ReadCloser) error {
	before := s.machine
	err := s.restore(content)
	if s.machine != before && s.opts.OnRestored != nil {
		s.opts.OnRestored()
	}
	return errors.Join(err, content.Close())
}
