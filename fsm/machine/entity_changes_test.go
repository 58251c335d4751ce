package machine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"perdure/entity"
)

// The changes of a list are the entries that only one of its versions has, wherever they were added and removed.
func TestChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := func(name string) []entity.Entry {
			var out []entity.Entry
			for n := range uint64(8) {
				if rapid.Bool().Draw(t, name) {
					out = append(out, entity.Entry{Seq: n + 1})
				}
			}
			return out
		}
		before, after := numbers("before"), numbers("after")
		if rapid.Bool().Draw(t, "only the ends change") && len(before) > 0 {
			after = append(before[rapid.IntRange(0, len(before)).Draw(t, "gone"):len(before):len(before)], entity.Entry{Seq: 9}, entity.Entry{Seq: 10})
		}
		checkChanges(t, before, after)
	})
}

// TestChangesInTheMiddle: an entry in the middle is another one, while both ends are the same.
func TestChangesInTheMiddle(t *testing.T) {
	checkChanges(t, []entity.Entry{{Seq: 1}, {Seq: 2}, {Seq: 4}}, []entity.Entry{{Seq: 1}, {Seq: 3}, {Seq: 4}})
}

// checkChanges compares changes with a search of each entry in the other list.
func checkChanges(t rapid.TB, before, after []entity.Entry) {
	t.Helper()
	gone, added := changes(before, after)
	only := func(these, those []entity.Entry) (out []uint64) {
		for _, e := range these {
			if !slices.ContainsFunc(those, func(o entity.Entry) bool { return o.Seq == e.Seq }) {
				out = append(out, e.Seq)
			}
		}
		return out
	}
	seqs := func(list []entity.Entry) (out []uint64) {
		for _, e := range list {
			out = append(out, e.Seq)
		}
		return out
	}
	if !slices.Equal(seqs(gone), only(before, after)) || !slices.Equal(seqs(added), only(after, before)) {
		t.Fatalf("%v to %v: %v is gone, %v added", seqs(before), seqs(after), seqs(gone), seqs(added))
	}
}
