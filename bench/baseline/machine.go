package baseline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
)

// machine counts commands, and writes as many keys and bytes as it is told to. The state is Pebble without a
// write-ahead log, as a node's is.
type machine struct {
	db      *pebble.DB // nil if it only counts
	keys    float64    // of a command
	value   []byte
	applied atomic.Int64
}

// keyBytes is the size of a key: a hash and a number.
const keyBytes = 24

var _ raft.BatchingFSM = (*machine)(nil)

func openMachine(dir string, keys float64, bytes int) (*machine, error) {
	m := &machine{keys: keys, value: make([]byte, max(bytes-keyBytes, 0))}
	if keys == 0 {
		return m, nil
	}
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(m.value); err != nil { // what a block's compression cannot shrink
		return nil, err
	}
	var err error
	m.db, err = pebble.Open(dir, &pebble.Options{DisableWAL: true, ErrorIfExists: true, FormatMajorVersion: pebble.FormatValueSeparation, Logger: quiet{}})
	return m, err
}

// quiet is a logger that reports nothing but what ends the process.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// Apply implements raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. The entries of one call share one Pebble batch.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	var batch *pebble.Batch
	if m.db != nil {
		batch = m.db.NewBatch()
		defer func() { _ = batch.Close() }() // Commit has reported what is wrong
	}
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		n, size := binary.Uvarint(l.Data)
		if size <= 0 {
			out[i] = errors.New("an entry without commands")
			continue
		}
		for range n {
			m.write(batch, m.applied.Load())
			m.applied.Add(1)
		}
	}
	if batch != nil && !batch.Empty() {
		if err := batch.Commit(pebble.NoSync); err != nil {
			panic(err) // the measurement is void
		}
	}
	return out
}

// write writes the keys of command number n.
func (m *machine) write(b *pebble.Batch, n int64) {
	if b == nil {
		return
	}
	var key [keyBytes]byte
	for k := int64(float64(n) * m.keys); k < int64(float64(n+1)*m.keys); k++ {
		// Neighbours in time are no neighbours in the state.
		binary.BigEndian.PutUint64(key[:], uint64(k)*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint64(key[8:], uint64(k))
		if err := b.Set(key[:], m.value, nil); err != nil {
			panic(err) // as above
		}
	}
}

// Snapshot implements raft.FSM. A measurement ends before the first one would be due.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	return nil, raft.ErrNothingNewToSnapshot
}

// Restore implements raft.FSM.
func (m *machine) Restore(content io.ReadCloser) error {
	return errors.Join(errors.New("a baseline has no snapshots"), content.Close())
}

func (m *machine) close() error {
	if m.db == nil {
		return nil
	}
	return m.db.Close()
}
