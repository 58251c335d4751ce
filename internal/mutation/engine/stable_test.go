package engine

import "perdure/internal/mutation"

// stableBugs break the writes that must be on disk before an answer: terms, votes, entries of the log.
var stableBugs = append([]mutation.Bug{
	{
		File: "partition/stable/boltfile/boltfile.go", Rule: "stable: a vote is synced before it is given",
		From: `Path: path,
			BoltOptions`, To: `Path: path, NoSync: true,
			BoltOptions`, Pkg: "partition/stable", Tests: "TestFailedSync",
	},
	{
		File: "partition/stable/stable.go", Rule: "stable: what could not be written was not set",
		From: "if err := f.write(st); err != nil {\n\t\treturn err\n\t}\n\tf.state = st", To: "f.state = st\n\t_ = f.write(st)",
		Tests: "TestFailedWrite",
	},
	{
		File: "partition/stable/stable.go", Rule: "stable: a write is on disk when Set returns",
		From: "if err := f.write(st); err != nil {\n\t\treturn err\n\t}\n\tf.state = st",
		To:   "if f.state = st; len(st.values) == 0 {\n\t\treturn f.write(st)\n\t}", Tests: "TestStores",
	},
	{
		File: "partition/stable/stable.go", Rule: "stable: the terms are still there at the next start",
		From: "f.state = st\n\treturn nil\n}\n\n// write makes", To: "f.state = newState()\n\tf.state.stamp = st.stamp\n\treturn nil\n}\n\n// write makes", Tests: "TestStores",
	},
	{
		File: "partition/stable/state.go", Rule: "stable: a record that was damaged is refused",
		From: `if xxhash.Sum64(body) != binary.BigEndian.Uint64(b[len(body):]) {`, To: `if len(body) == 0 {`, Tests: "TestDamage",
	},
	{
		File: "partition/stable/state.go", Rule: "stable: a vote of one group is none of another's",
		From: `v, ok := s.values[valueKey{g, string(key)}]`, To: `v, ok := s.values[valueKey{g &^ 1, string(key)}]`, Tests: "TestStores",
	},
	{
		File: "partition/raftlog/pebble.go", Rule: "log: an entry is synced before it is acknowledged",
		From: `b.Commit(pebble.Sync)`, To: `b.Commit(pebble.NoSync)`, Tests: "TestFailedSync",
	},
	{
		File: "partition/raftlog/group.go", Rule: "log: an entry that could not be written is not acknowledged",
		From: "l.store.drv.append(l.group, a.restart, a.recs) })); err != nil {", To: "l.store.drv.append(l.group, a.restart, a.recs) })); err != nil && len(a.recs) > 1 {",
		Tests: "TestFailedSync",
	},
	{
		File: "partition/raftlog/codec.go", Rule: "log: an entry that was damaged is refused",
		From: `if checksum(key, body) != binary.BigEndian.Uint64(b[len(body):]) {`, To: `if len(body) == 0 {`, Tests: "TestEntryRoundTrip",
	},
}, syncBugs...)
