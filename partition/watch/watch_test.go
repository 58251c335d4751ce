package watch

import (
	"fmt"
	"strings"
	"testing"

	"perdure/fsm/state"
)

// TestWatchesAreBounded: watches are bounded in pieces and in bytes. One beyond the bounds gets no value and
// costs nothing; a stopped one frees its share.
func TestWatchesAreBounded(t *testing.T) {
	for _, c := range []struct {
		what string
		id   string
		most int
	}{
		{"pieces", "", maxCount},
		{"bytes", strings.Repeat("x", 2000), maxBytes / (2000 + 8 + overhead)},
	} {
		w := &Set{}
		var all []*Watch
		ref := func(i int) string { return fmt.Sprintf("%s%08d", c.id, i) }
		for i := range c.most + 10 {
			x := w.Add(Settled, "", ref(i))
			all = append(all, x)
			if x.registered != (i < c.most) {
				t.Fatalf("%s: watch %d is registered: %v", c.what, i, x.registered)
			}
		}
		last := all[len(all)-1]
		w.Wake(Settled, []state.Ref{{ID: ref(0)}, last.key.ref})
		if len(all[0].C) != 1 || len(last.C) != 0 {
			t.Errorf("%s: %d values for the first, %d for the last", c.what, len(all[0].C), len(last.C))
		}
		if n := w.bytes.Load(); n > maxBytes || w.waiting.Load() != int64(c.most) {
			t.Errorf("%s: %d watches of %d bytes", c.what, w.waiting.Load(), n)
		}
		all[0].Stop()
		if x := w.Add(Settled, "", ref(0)); !x.registered {
			t.Errorf("%s: not registered after one was stopped", c.what)
		} else {
			x.Stop()
		}
		for _, x := range all[1:] {
			x.Stop()
		}
		if w.bytes.Load() != 0 || w.waiting.Load() != 0 || len(w.byKey) != 0 {
			t.Errorf("%s: %d watches of %d bytes are left", c.what, w.waiting.Load(), w.bytes.Load())
		}
	}
}
