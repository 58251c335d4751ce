package group

import (
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/partition/disk"
)

// TestGuardedLog: the log refuses entries for which there is no space before it stores anything. It accepts
// entries that replace a conflicting end that is already removed, and Raft's own.
func TestGuardedLog(t *testing.T) {
	const reserve = 16 << 20
	var free atomic.Int64
	free.Store(100 * reserve)
	usage := func() (int64, int64, error) { return free.Load(), 1 << 40, nil }
	store := raft.NewInmemStore()
	l := &guardedLog{LogStore: store, disk: disk.New(disk.Options{FS: vfs.NewMem(), Reserve: reserve, Usage: usage})}
	entries := func(from, n uint64, term uint64) (out []*raft.Log) {
		for i := range n {
			out = append(out, &raft.Log{Index: from + i, Term: term, Type: raft.LogCommand, Data: make([]byte, 100)})
		}
		return out
	}
	last := func() uint64 { i, _ := l.LastIndex(); return i }
	if err := l.StoreLogs(entries(1, 10, 1)); err != nil {
		t.Fatal(err)
	}
	free.Store(reserve / 2) // one byte would be too much
	if err := l.StoreLogs(entries(11, 1, 1)); !isDiskFull(err) || last() != 10 {
		t.Fatalf("an entry for which there is no space: %v, the log ends at %d", err, last())
	}
	if err := l.DeleteRange(6, 10); !isDiskFull(err) || last() != 10 {
		t.Fatalf("a conflicting end without space for what follows: %v, the log ends at %d", err, last())
	}
	if err := l.StoreLog(&raft.Log{Index: 11, Term: 2, Type: raft.LogNoop}); err != nil {
		t.Fatalf("an entry of Raft's own: %v", err)
	}
	if err := l.DeleteRange(1, 3); err != nil {
		t.Fatalf("the beginning of the log: %v", err)
	}
	free.Store(100 * reserve)
	if err := l.DeleteRange(6, 11); err != nil || last() != 5 {
		t.Fatalf("a conflicting end: %v, the log ends at %d", err, last())
	}
	free.Store(0)
	if err := l.StoreLogs(entries(6, 2, 2)); err != nil || last() != 7 {
		t.Fatalf("what takes its place: %v, the log ends at %d", err, last())
	}
	if err := l.StoreLogs(entries(8, 1, 2)); !isDiskFull(err) {
		t.Fatalf("what follows that: %v", err)
	}
}
