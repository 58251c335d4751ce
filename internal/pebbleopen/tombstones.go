package pebbleopen

import "github.com/cockroachdb/pebble/v2"

// keepTombstones is an option as Pebble's own file has it. A float has no other place in packages that must not calculate with any.
const keepTombstones = "[Options]\n  tombstone_dense_compaction_threshold=-1\n"

// KeepTombstones lets deleted keys wait for the compactions that the levels' sizes ask for. Pebble would else compact a table in
// which they are dense as soon as it is written, with all that it overlaps in the last level. It is for databases whose readers
// do not begin where keys come and go.
func KeepTombstones(o *pebble.Options) {
	if err := o.Parse(keepTombstones, nil); err != nil {
		panic("pebbleopen: " + err.Error()) // the text is constant
	}
}
