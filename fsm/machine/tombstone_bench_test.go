package machine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// pebbleReader is a state as replicas have it on disk, where what was removed leaves a trace until it is
// compacted: in memory it does not.
type pebbleReader struct{ db *pebble.DB }

func openPebble(t testing.TB) pebbleReader {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), &pebble.Options{DisableWAL: true, MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, L0StopWritesThreshold: 32, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return pebbleReader{db}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// Get implements Reader.
func (r pebbleReader) Get(key []byte) ([]byte, bool, error) {
	v, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return append([]byte{}, v...), true, closer.Close()
}

// Scan implements Reader.
func (r pebbleReader) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	it, err := r.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && fn(it.Key(), it.Value()); ok = it.Next() {
	}
	return it.Close()
}

// come puts n keys in order and removes each when so many others have come behind it; at the end each calls
// look now and then, with how many are gone. What is not gone is left.
func (r pebbleReader) come(b *testing.B, n, behind int, key func(i int) []byte, value []byte) {
	b.Helper()
	batch := r.db.NewBatch()
	for i := range n {
		_ = batch.Set(key(i), value, nil)
		if i >= behind {
			_ = batch.Delete(key(i-behind), nil)
		}
		if i%64 == 63 || i == n-1 {
			if err := batch.Commit(pebble.NoSync); err != nil {
				b.Fatal(err)
			}
			batch = r.db.NewBatch()
		}
	}
}

// BenchmarkTombstones looks at the front of the indexes from which entries go all the time, after so many have
// gone, in a store as large as it is after half a minute of a busy partition.
func BenchmarkTombstones(b *testing.B) {
	const behind = 100
	message, err := state.Deterministic.Marshal(&commandv1.Message{Namespace: "default", ToId: "order-00000000", FromId: "order-00000001",
		Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{Id: "order-00000000", Name: "s", Payload: bytes.Repeat([]byte("x"), 100)}}})
	if err != nil {
		b.Fatal(err)
	}
	for _, gone := range []int{1_000, 20_000, 50_000, 100_000, 200_000} {
		b.Run(fmt.Sprintf("due/%d", gone), func(b *testing.B) {
			r := openPebble(b)
			r.come(b, gone+behind, behind, func(i int) []byte {
				return keys.DeadlineOf(keys.DeadlineLease, 1_700_000_000_000+int64(i), "default", fmt.Sprintf("order-%08d", i))
			}, []byte{})
			if _, ok, err := query.NextExpiration(r); !ok || err != nil {
				b.Fatal(ok, err)
			}
			var search query.DeadlineSearch
			for b.Loop() { // the first one, of all, walks over what is gone
				if _, ok, err := search.Next(r, 1_700_000_000_000+int64(gone)+behind); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run(fmt.Sprintf("outgoing/%d", gone), func(b *testing.B) {
			r := openPebble(b)
			r.come(b, gone+behind, behind, func(i int) []byte { return keys.OutboxOf(1, 1, uint64(i+1)) }, message)
			if err := r.db.Set(keys.Number(keys.Channel, 1), state.Channel{Epoch: 1, Last: uint64(gone + behind)}.Encode(), pebble.NoSync); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, msgs, err := query.Outgoing(r, 1, state.Channel{}, 64, 1<<30); len(msgs) != 64 || err != nil {
					b.Fatal(len(msgs), err)
				}
			}
		})
	}
}
