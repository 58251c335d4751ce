package disk

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/testkit"
)

// TestTablesYieldInVirtualTime: before each write of a table other goroutines run, as long as the table is young. Logs do not wait.
func TestTablesYieldInVirtualTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		g := newSmallDisk(1 << 30).guard(1 << 20)
		yields := 0
		g.yield = func() { yields++ }
		for _, c := range []struct {
			name     string
			category vfs.DiskWriteCategory
			table    bool
		}{{"000001.sst", "pebble-memtable-flush", true}, {"000002.sst", "pebble-compaction", true}, {"000003.log", "pebble-wal", false}} {
			f, err := g.FS().Create(c.name, c.category)
			if err != nil {
				t.Fatal(err)
			}
			write := func(after string, want int) {
				t.Helper()
				yields = 0
				for range 3 {
					if _, err := f.Write([]byte("block")); err != nil {
						t.Fatal(err)
					}
				}
				if !c.table {
					want = 0
				}
				if yields != want {
					t.Errorf("%s, %s: %d of 3 writes yield, want %d", c.name, after, yields, want)
				}
			}
			write("new", 3)
			testkit.Advance(yieldFor - time.Millisecond)
			write("nearly as long as it yields", 3)
			testkit.Advance(time.Millisecond)
			write("after that", 0)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
