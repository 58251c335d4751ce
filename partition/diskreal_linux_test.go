package partition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/testkit"
	"perdure/partition/group"
)

// tinyDisk mounts a file system of its own, in memory.
func tinyDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		testkit.Lacks(t, "a file system to mount", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill writes a file until the disk is full.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRealDisksFull: another program fills real file systems under a load of writes, first one of them and
// then all three. No node halts. When the space is freed writes continue by themselves, and nothing is lost.
func TestRealDisksFull(t *testing.T) {
	var dirs []string
	all := newClusterWith(t, 3, neverActs, func(cfg *Config) {
		dir := tinyDisk(t)
		dirs = append(dirs, dir)
		cfg.FS, cfg.Stable, cfg.DataDir = vfs.Default, nil, filepath.Join(dir, "data")
		cfg.DiskReserve = 4 << 20
	})
	var mu sync.Mutex
	var acked []string
	busy, quiet := context.WithCancel(bg(t))
	var writers sync.WaitGroup
	t.Cleanup(func() { quiet(); writers.Wait() })
	for w := range 3 {
		writers.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				ctx, cancel := context.WithTimeout(busy, 5*time.Second)
				_, err := all[(w+i)%3].router.Propose(ctx, startCmd("start "+id, id, "f", noise(4000)))
				cancel()
				if err == nil {
					mu.Lock()
					acked = append(acked, id)
					mu.Unlock()
				}
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acked) }
	more := func(what string, n int) {
		t.Helper()
		before := count()
		waitFor(t, what, func() bool {
			for _, m := range all {
				if err := m.Err(); err != nil {
					t.Fatalf("%s: %s has halted: %v", what, m.cfg.NodeID, err)
				}
			}
			return count() >= before+n
		}, func() string { return fmt.Sprint(count() - before) })
	}
	free := func(dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
				t.Fatal(err)
			}
		}
	}
	more("writes before", 50)
	fill(t, dirs[0])
	more("writes while one disk is full", 200)
	free(dirs[0])
	more("writes afterwards", 50)
	for _, dir := range dirs {
		fill(t, dir)
	}
	for _, m := range all {
		waitFor(t, m.cfg.NodeID+" to say so", func() bool { return m.Err() != nil || m.NotReady() != nil }, func() string { return "ready" })
		if err := m.Err(); err != nil {
			t.Fatalf("%s has halted: %v", m.cfg.NodeID, err)
		}
	}
	free(dirs...)
	more("writes when the space is freed", 50)
	quiet()
	writers.Wait()
	for _, id := range acked {
		if reply, _, err := all[1].router.Query(bg(t), group.Linearizable, describeQuery(id)); err != nil || reply.GetDescribe() == nil {
			t.Errorf("%s was acknowledged: %v, %v", id, reply, err)
		}
	}
	for p := range uint32(3) {
		equalReplicas(t, all, p)
	}
}
