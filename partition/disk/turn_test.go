package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/testkit"
)

// The tables of compactions are written in turns, a flush's beside them. One that is not closed delays the next for turnWait, and
// one that could not be made holds no turn.
func TestCompactionsTakeTurnsInVirtualTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		g := newSmallDisk(1 << 30).guard(1 << 20)
		g.turns = make(chan struct{}, turnsOf(2))
		create := func(name string, category vfs.DiskWriteCategory) <-chan vfs.File {
			made := make(chan vfs.File, 1)
			go func() {
				f, err := g.FS().Create(name, category)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				made <- f
			}()
			synctest.Wait()
			return made
		}
		if f := <-create("none/000000.sst", "pebble-compaction"); f != nil {
			t.Fatal("a file in no folder")
		}
		first := <-create("000001.sst", "pebble-compaction")
		flushed := <-create("000002.sst", "pebble-memtable-flush")
		second := create("000003.sst", "pebble-compaction")
		if len(second) > 0 {
			t.Fatal("two compactions write at once")
		}
		if err := errors.Join(flushed.Close(), first.Close()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		hangs := <-second
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("after the end of the first the second waits for another %v", waited)
		}
		third := <-create("000004.sst", "pebble-compaction")
		if waited := time.Since(begun); waited != turnWait {
			t.Errorf("the third waits for %v beside one that hangs", waited)
		}
		if err := errors.Join(third.Close(), hangs.Close()); err != nil {
			t.Fatal(err)
		}
		if n := len(g.turns); n != 0 {
			t.Errorf("%d turns are taken when all is written", n)
		}
	})
}

// TestCompactionsPauseInVirtualTime: a compaction works for a third of the time, unless another one waits, memtables are flushed
// meanwhile, or its table is old. Flushes and logs do not pause.
func TestCompactionsPauseInVirtualTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		g := newSmallDisk(1 << 30).guard(1 << 20)
		g.turns = make(chan struct{}, 1)
		create := func(name string, category vfs.DiskWriteCategory) vfs.File {
			f, err := g.FS().Create(name, category)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		pauses := func(what string, f vfs.File, worked, want time.Duration) {
			t.Helper()
			testkit.Advance(worked)
			begun := time.Now()
			if _, err := f.Write([]byte("block")); err != nil {
				t.Fatal(err)
			}
			if paused := time.Since(begun); paused != want {
				t.Errorf("%s: pauses for %v after %v, want %v", what, paused, worked, want)
			}
		}
		shut := func(f vfs.File) {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		log := create("000001.log", "pebble-wal")
		f := create("000002.sst", "pebble-compaction")
		pauses("a compaction", f, time.Millisecond, 2*time.Millisecond)
		pauses("a compaction", f, 3*time.Millisecond, 6*time.Millisecond)
		pauses("after a long block", f, time.Minute/1000, pauseMost)
		pauses("a log", log, time.Millisecond, 0)
		for n := range pauseFlushed {
			pauses("before the flush of many memtables", f, time.Millisecond, 4*time.Millisecond) // it counts the millisecond before, too
			flushed := create(fmt.Sprintf("%06d.sst", 10+n), "pebble-memtable-flush")
			pauses("a flush", flushed, time.Millisecond, 0)
			shut(flushed)
		}
		pauses("after it", f, time.Millisecond, 0)
		shut(f)
		f = create("000003.sst", "pebble-compaction")
		pauses("the next table", f, time.Millisecond, 2*time.Millisecond)
		second := make(chan vfs.File)
		go func() { second <- create("000004.sst", "pebble-compaction") }()
		synctest.Wait()
		pauses("while another one waits", f, time.Millisecond, 0)
		shut(f)
		f = <-second
		pauses("the other one", f, time.Millisecond, 2*time.Millisecond)
		testkit.Advance(pauseFor)
		pauses("a table that is old", f, time.Millisecond, 0)
		shut(f)
		shut(log)
	})
}
