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
	for i := range 2*maxKept + 1 {
		w.Keeps(tokenOf(fmt.Sprint(i), 1), 5)
	}
	if n := len(w.kept.entries); n < 1 || n > maxKept {
		t.Errorf("%d functions are known, more than %d", n, maxKept)
	}
}
