package pebbleopen

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/testkit"
)

// Pebble compacts a table of tombstones as soon as it is written, and not where they are kept.
func TestKeepTombstones(t *testing.T) {
	for _, keep := range []bool{false, true} {
		o := &pebble.Options{FS: vfs.NewMem()}
		if keep {
			KeepTombstones(o)
		}
		db, err := Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		key := func(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }
		for i := range 5000 {
			err = errors.Join(err, db.Set(key(i), key(i), pebble.NoSync))
		}
		err = errors.Join(err, db.Compact(t.Context(), key(0), key(9999), false))
		for i := 0; i < 5000; i += 2 {
			err = errors.Join(err, db.Delete(key(i), pebble.NoSync))
		}
		if err = errors.Join(err, db.Flush()); err != nil {
			t.Fatal(err)
		}
		compacted := func() bool { return db.Metrics().Compact.TombstoneDensityCount > 0 }
		if !keep {
			testkit.Eventually(t, soon, "a compaction of tombstones", compacted, nil)
		} else if of := o.Experimental.TombstoneDenseCompactionThreshold; of >= 0 || compacted() { // from 0 on is a threshold
			t.Errorf("tables with a part of %v are compacted", of)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
