// Package pebbleopen opens Pebble databases so that an opening that fails leaves nothing behind.
//
// pebble.Open may start a compaction and fail after that. It then frees the files that the compaction reads,
// which panics on a goroutine of Pebble's and ends the process. It also gives up the directory's lock while
// the compaction still writes there. So this package grants no compaction before Open has returned a
// database.
//
// KeepTombstones sets one option that Pebble has no name for.
package pebbleopen

import "github.com/cockroachdb/pebble/v2"

// Open is pebble.Open, but that compactions begin after it; it sets the options' compaction scheduler. It
// blocks as pebble.Open does: on a disk that fails, perhaps for ever.
func Open(dir string, o *pebble.Options) (*pebble.DB, error) {
	compactions := &scheduler{}
	o.Experimental.CompactionScheduler = compactions
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	compactions.begin()
	return db, nil
}
