package workers

import (
	"fmt"
	"testing"
)

// A task leaves out what its worker has only if it is the next one after that with which the function waits, and once.
func TestKept(t *testing.T) {
	s := newStage(t)
	w := s.splits("w", 10)
	defer w.Detach()
	w.AddCapacity(10)
	w.Keeps(tokenOf("a", 1), 7)
	w.Keeps(tokenOf("b", 1), 8)
	w.Keeps(tokenOf("b", 3), 9)
	for _, c := range []struct {
		id            string
		version, from uint64
	}{{"a", 2, 7}, {"a", 2, 0}, {"a", 3, 0}, {"b", 3, 0}, {"b", 4, 9}, {"c", 1, 0}} {
		s.assign("w", tokenOf(c.id, c.version))
		d, ok := w.Next(t.Context())
		if !ok || d.Token.Id != c.id || d.Task.Entries[0].Seq != c.from {
			t.Errorf("task %s at version %d comes from entry %d on, not %d", c.id, c.version, d.Task.GetEntries()[0].GetSeq(), c.from)
		}
		w.Finished(d.Token)
	}
}

// A worker's functions are known while it keeps them: the one that has waited the longest is forgotten first, and what is known of
// them is bounded however often it says the same.
func TestKeptAsWorkersDo(t *testing.T) {
	for _, c := range []struct{ says, most int }{{0, maxKept}, {3, 3}, {1, 1}, {maxKept + 1, maxKept}} {
		s := newStage(t)
		w := s.splits("w", 10)
		w.MaxKept = c.says
		name := func(i int) string { return fmt.Sprint("f", i) }
		last := 3*c.most + 1
		for i := range last + 1 {
			for range 3 {
				w.Keeps(tokenOf(name(i), 1), 5)
			}
			if i%2 == 0 && i > last-c.most {
				w.fromSeq(tokenOf(name(i), 2))
				w.Keeps(tokenOf(name(i), 1), 5)
			}
		}
		if n, order := len(w.kept.entries), len(w.kept.order); n != c.most || order > 2*c.most {
			t.Errorf("of %d functions %d are known, in an order of %d", c.most, n, order)
		}
		for i := last; i > last-2*c.most; i-- {
			if known := w.fromSeq(tokenOf(name(i), 2)) > 0; known && i <= last-c.most-c.most/2 {
				t.Errorf("of %d functions the one before the last %d is known", c.most, last-i)
			}
		}
		for i := range 5 * c.most { // each goes on before others wait
			w.Keeps(tokenOf(fmt.Sprint("g", i), 1), 5)
			w.fromSeq(tokenOf(fmt.Sprint("g", i), 2))
		}
		if order := len(w.kept.order); order > 2*c.most {
			t.Errorf("of %d functions an order of %d is known", c.most, order)
		}
		w.Keeps(tokenOf("another", 1), 5)
		if w.fromSeq(tokenOf("another", 2)) != 5 {
			t.Error("the last one is not known")
		}
		w.Detach()
	}
}
