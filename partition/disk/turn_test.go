package disk

import (
	"errors"
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
