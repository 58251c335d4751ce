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
// nil. The entries of one call share Pebble batches of batchBytes. Nothing refers to their bytes afterwards.
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
	var a applied
	for i, l := range logs {
		if l.Type != raft.LogCommand || l.Index <= s.machine.Applied() {
			continue
		}
		e, err := s.decoder.entry(l.Data)
		if err != nil {
			return &DamagedError{s.dir, fmt.Errorf("index %d: %w", l.Index, err)}
		}
		before := s.machine.Applied()
		res, err := s.machine.Apply(l.Index, e)
		if err != nil {
			return s.damaged(err)
		}
		out[i] = res
		a.results = append(a.results, res)
		if crosses(before, l.Index) {
			a.noted = append(a.noted, Mark{l.Index, s.machine.Checksum()})
		}
		if s.machine.WriteBytes() >= batchBytes || res.Cut != 0 {
			if err := s.store(a); err != nil {
				return err
			}
			a = applied{}
		}
		if res.Cut != 0 {
			s.checkpoint(res.Cut)
		}
	}
	return s.store(a)
}

// batchBytes bounds what the entries of one batch write, before they are stored: a small entry can write far more than
// its own size. One entry always fits.
const batchBytes = 4 << 20

// applied is what entries gave whose writes are not stored yet.
type applied struct {
	results []*machine.Result
	noted   []Mark
}

// store stores the writes of applied entries in one batch.
func (s *Store) store(a applied) error {
	writes := s.machine.Writes()
	if len(writes) == 0 {
		return nil
	}
	s.steady.begin()
	if err := s.read(func(db *pebble.DB) error { return commit(db, writes) }); err != nil {
		return s.damaged(err) // and the version stays odd
	}
	s.steady.end(s.machine)
	if s.opts.OnWritten != nil {
		s.opts.OnWritten(len(writes), sizeOf(writes))
	}
	s.machine.Committed()
	s.stuck.set(s.machine.Stuck())
	s.marks.add(a.noted, Mark{s.machine.Applied(), s.machine.Checksum()})
	if s.opts.OnApplied != nil {
		for _, res := range a.results {
			s.opts.OnApplied(res)
		}
	}
	return nil
}

func commit(db *pebble.DB, writes []state.Write) error {
	b := db.NewBatchWithSize(batchSize(writes))
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
	s.steady.begin()
	err := s.restore(content)
	if s.machine != before && s.opts.OnRestored != nil {
		s.opts.OnRestored()
	}
	return errors.Join(err, content.Close())
}
