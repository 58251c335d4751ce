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
	l := &guardedLog{LogStore: store, disk: disk.New(disk.Options{FS: vfs.NewMem(), Reserve: reserve, Usage: usage}), stuck: func() bool { return false }}
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

// TestGuardedLogOnStuckCluster: while no majority has space, the log takes from the reserve what a new leader
// needs: what a majority lacks, in place of a conflicting end too, and the entries of its election. Neither
// uses up the reserve.
func TestGuardedLogOnStuckCluster(t *testing.T) {
	const reserve = 1 << 20
	var left atomic.Int64 // free space, and the reserve
	left.Store(100 * reserve)
	fs := vfs.NewMem()
	free := func() int64 {
		if _, err := fs.Stat(disk.ReserveFile); err == nil {
			return left.Load() - reserve
		}
		return left.Load()
	}
	guard := disk.New(disk.Options{FS: fs, Reserve: reserve, Usage: func() (int64, int64, error) { return max(free(), 0), 100 * reserve, nil }})
	guard.Run()
	defer guard.Close()
	stuck := false
	l := &guardedLog{LogStore: raft.NewInmemStore(), disk: guard, stuck: func() bool { return stuck }}
	next := uint64(1)
	put := func(kind raft.LogType, bytes int) error {
		err := l.StoreLog(&raft.Log{Index: next, Term: next, Type: kind, Data: make([]byte, bytes)})
		if err == nil {
			next++
			if left.Add(-int64(bytes + entryOverhead)); free() < 0 {
				guard.Wait(0) // as a write does that meets the full disk
			}
		}
		return err
	}
	for range 10 {
		if err := put(raft.LogCommand, 100); err != nil {
			t.Fatal(err)
		}
	}
	left.Store(reserve + reserve/4)
	if err := put(raft.LogCommand, 100); !isDiskFull(err) {
		t.Fatalf("an entry that a majority has without this log: %v", err)
	}
	stuck = true
	if err := l.DeleteRange(9, 10); err != nil {
		t.Fatalf("a conflicting end: %v", err)
	}
	next = 9
	for _, kind := range []raft.LogType{raft.LogCommand, raft.LogNoop, raft.LogBarrier} {
		if err := put(kind, 100); err != nil {
			t.Fatalf("an entry of type %v: %v", kind, err)
		}
	}
	for n := 0; put(raft.LogCommand, 4<<10) == nil; n++ {
		if n > reserve/(4<<10) {
			t.Fatal("entries that a majority lacks use up the reserve")
		}
	}
	if got := left.Load(); got < reserve/2 || got > reserve/2+8<<10 {
		t.Errorf("%d bytes are left when entries are refused, want half of the reserve", got)
	}
	before := left.Load()
	for n := 0; put(raft.LogNoop, 0) == nil; n++ {
		if n > reserve/4/entryOverhead {
			t.Fatal("elections without an end use up the reserve")
		}
	}
	if got := before - left.Load(); got < reserve/16 || got > reserve/8+8<<10 {
		t.Errorf("elections used %d bytes, want an eighth of the reserve", got)
	}
	if err := put(raft.LogConfiguration, 100); err != nil {
		t.Errorf("a configuration: %v", err)
	}
}
