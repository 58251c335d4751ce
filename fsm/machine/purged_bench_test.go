package machine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"perdure/fsm/state/keys"
)

// BenchmarkPurgedJournals deletes nine of ten journals, of so many entries each, key by key or by one range for each, and reads the
// others before anything is compacted. It runs once:
//
//	go test ./fsm/machine -run none -bench PurgedJournals -benchtime 1x
func BenchmarkPurgedJournals(b *testing.B) {
	const (
		entries = 300_000
		kept    = 10 // one of so many
		atOnce  = 64 // purges of a log entry
	)
	value := bytes.Repeat([]byte("x"), 120)
	for _, length := range []int{12, 100, 1000} {
		for _, how := range []string{"keys", "ranges"} {
			b.Run(fmt.Sprintf("%s/%d", how, length), func(b *testing.B) {
				r := openPebble(b)
				prefix := func(i int) []byte { return keys.JournalPrefix("default", fmt.Sprintf("order-%08d", i), uint64(i+1)) }
				executions := entries / length
				batch := r.db.NewBatch()
				commit := func() {
					if err := batch.Commit(pebble.NoSync); err != nil {
						b.Fatal(err)
					}
					batch = r.db.NewBatch()
				}
				for i := range executions {
					for seq := range length {
						_ = batch.Set(keys.JournalEntry("default", fmt.Sprintf("order-%08d", i), uint64(i+1), uint64(seq+1)), value, nil)
					}
					if i%atOnce == 0 {
						commit()
					}
				}
				commit()
				if err := r.db.Flush(); err != nil {
					b.Fatal(err)
				}
				at := time.Now()
				took := func(what string, n int) {
					b.ReportMetric(float64(time.Since(at).Nanoseconds())/float64(n), what)
					at = time.Now()
				}
				purged := 0
				for i := range executions {
					if i%kept == 0 {
						continue
					}
					purged++
					var found [][]byte // a purge reads what it deletes, whatever it writes
					_ = r.Scan(prefix(i), keys.After(prefix(i)), func(key, _ []byte) bool {
						found = append(found, bytes.Clone(key))
						return true
					})
					if how == "ranges" {
						_ = batch.DeleteRange(prefix(i), keys.After(prefix(i)), nil)
					} else {
						for _, key := range found {
							_ = batch.Delete(key, nil)
						}
					}
					if i%atOnce == 0 {
						commit()
					}
				}
				commit()
				took("ns/purge", purged)
				live := 0
				for i := 0; i < executions; i += kept {
					live++
					if err := r.Scan(prefix(i), keys.After(prefix(i)), func(_, _ []byte) bool { return true }); err != nil {
						b.Fatal(err)
					}
				}
				took("ns/read", live)
				for i := 0; i < executions; i += kept {
					if _, ok, err := r.Get(keys.AppendUint64(prefix(i), 1)); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
				took("ns/get", live)
				seen := 0
				if err := r.Scan([]byte{byte(keys.Journal)}, nil, func(_, _ []byte) bool { seen++; return true }); err != nil {
					b.Fatal(err)
				}
				took("ns/scan", seen)
				if err := r.db.Flush(); err != nil {
					b.Fatal(err)
				}
				took("ns/flush", purged)
				for i := 0; i < executions; i += kept {
					_ = r.Scan(prefix(i), keys.After(prefix(i)), func(_, _ []byte) bool { return true })
				}
				took("ns/read-flushed", live)
				if err := r.db.Compact(b.Context(), []byte{byte(keys.Journal)}, []byte{byte(keys.Journal) + 1}, false); err != nil {
					b.Fatal(err)
				}
				took("ns/compact", purged)
			})
		}
	}
}
