package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"perdure/fsm/state"
)

// Ranges of Pebble, near each other or far, with removed keys between them, are those of a plain map.
func TestScanRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		plain := state.NewMemReader()
		key := func(n int) []byte { return fmt.Appendf(nil, "%04d", n) }
		most := rapid.SampledFrom([]int{12, 20, 400}).Draw(t, "keys")
		for range rapid.IntRange(0, min(2*most, 200)).Draw(t, "writes") {
			w := state.Write{Key: key(rapid.IntRange(0, most).Draw(t, "key"))}
			if rapid.IntRange(0, 3).Draw(t, "removed") > 0 {
				w.Value = w.Key
				err = db.Set(w.Key, w.Value, pebble.NoSync)
			} else {
				err = db.Delete(w.Key, pebble.NoSync)
			}
			if rapid.IntRange(0, 50).Draw(t, "flush") == 0 {
				_ = db.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			plain.Apply([]state.Write{w})
		}
		bounds := rapid.SliceOfNDistinct(rapid.IntRange(0, most+1), 0, min(most, 40), rapid.ID[int]).Draw(t, "bounds")
		slices.Sort(bounds)
		var ranges []state.Range
		for i := 0; i+1 < len(bounds); i += 2 {
			ranges = append(ranges, state.Range{Lower: key(bounds[i]), Upper: key(bounds[i+1])})
		}
		stop := rapid.IntRange(1, 5).Draw(t, "stop after")
		read := func(r state.RangeReader) (out []string) {
			counts := map[int]int{}
			if err := r.ScanRanges(ranges, func(i int, key, value []byte) bool {
				if !bytes.Equal(key, value) {
					t.Fatalf("key %q has %q", key, value)
				}
				out = append(out, fmt.Sprintf("%d %s", i, key))
				counts[i]++
				return counts[i] < stop
			}); err != nil {
				t.Fatal(err)
			}
			return out
		}
		if got, want := read(view{db}), read(plain); !slices.Equal(got, want) {
			t.Fatalf("ranges %q:\n%q, must be\n%q", ranges, got, want)
		}
	})
}
