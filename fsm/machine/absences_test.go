package machine

import (
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// absentTwin is a state with promises, and what is written to it as the machine does: first noted, later stored.
type absentTwin struct {
	below *state.MemReader
	batch *layer
	a     *absences
	exist map[string]bool
}

func newAbsentTwin() *absentTwin {
	below := state.NewMemReader()
	return &absentTwin{below, newLayer(below), newAbsences(), map[string]bool{}}
}

func (x *absentTwin) write(objectID string, removed bool) {
	w := &write{key: keys.Of(keys.Promise, "ns", objectID), value: []byte{1}, removed: removed}
	w.hash = xxhash.Sum64(w.key)
	if removed {
		w.value = nil
	}
	x.a.write(w)
	x.batch.set(w)
	x.exist[objectID] = !removed
}

func (x *absentTwin) store() {
	x.batch.ordered(func(w *write) { x.below.Apply([]state.Write{{Key: w.key, Value: w.value}}) })
	x.batch.reset()
}

// Whatever is written, stored and removed between the pieces that are read, no promise that there is counts as absent, and once the
// filter is made nearly all others do. Neighbours are of other families.
func TestAbsent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := newAbsentTwin()
		for _, family := range []keys.Family{keys.Promise - 1, keys.Promise + 1} {
			x.below.Apply([]state.Write{{Key: keys.Of(family, "ns", "e"), Value: []byte{1}}})
		}
		stored := rapid.SampledFrom([]int{0, 1, absentPiece - 1, absentPiece, absentPiece + 1, 3*absentPiece + 7}).Draw(rt, "stored")
		for i := range stored {
			id := fmt.Sprint(i)
			x.below.Apply([]state.Write{{Key: keys.Of(keys.Promise, "ns", id), Value: []byte{1}}})
			x.exist[id] = true
		}
		check := func() {
			for id, there := range x.exist {
				if there && x.a.none(keys.Of(keys.Promise, "ns", id)) {
					rt.Fatalf("promise %s counts as absent", id)
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(rt, "operations") {
			switch rapid.IntRange(0, 4).Draw(rt, "operation") {
			case 0, 1:
				x.write(fmt.Sprint(rapid.IntRange(0, 5000).Draw(rt, "id")), false)
			case 2:
				x.write(fmt.Sprint(rapid.IntRange(0, 5000).Draw(rt, "id")), true)
			case 3:
				x.store()
			case 4:
				if err := x.a.step(x.batch); err != nil {
					rt.Fatal(err)
				}
			}
			if rapid.IntRange(0, 30).Draw(rt, "again") == 0 && x.a.next == nil {
				x.a.removed = 1 << 30
			}
			check()
		}
		for range 10 {
			if err := x.a.step(x.batch); err != nil {
				rt.Fatal(err)
			}
		}
		check()
		known := 0
		for i := range 1000 {
			if x.a.none(keys.Of(keys.Promise, "ns", fmt.Sprint("free-", i))) {
				known++
			}
		}
		if known < 950 {
			rt.Fatalf("of 1000 free ids %d are known to be free", known)
		}
	})
}

// A filter of many parts still answers, within its bytes.
func TestBloomGrows(t *testing.T) {
	const n = 500_000
	f := &bloom{}
	hash := func(i int) uint64 { return xxhash.Sum64String(fmt.Sprint(i)) }
	for i := range n {
		f.add(hash(i))
		f.add(hash(i))
	}
	wrong := 0
	for i := range n {
		if !f.has(hash(i)) {
			t.Fatalf("it has forgotten %d", i)
		}
		if i < n/10 && f.has(hash(-1-i)) {
			wrong++
		}
	}
	bytes := 0
	for _, p := range f.parts {
		bytes += 64 * len(p.blocks)
	}
	if wrong > n/10/10 || bytes > 4*n || f.size > n || f.size < n*9/10 {
		t.Errorf("%d of %d others are there, %d bytes, %d hashes", wrong, n/10, bytes, f.size)
	}
}

// Removed promises leave their filter when it is made again.
func TestAbsentIsMadeAgain(t *testing.T) {
	x := newAbsentTwin()
	steps := func() {
		for range 100 {
			x.store()
			if err := x.a.step(x.batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps()
	for i := range 3 * absentRemoved {
		x.write(fmt.Sprint(i), false)
	}
	steps()
	for i := range 3*absentRemoved - 10 {
		x.write(fmt.Sprint(i), true)
	}
	steps()
	if x.a.next != nil || x.a.whole.size != 10 || x.a.none(keys.Of(keys.Promise, "ns", fmt.Sprint(3*absentRemoved-1))) {
		t.Errorf("the filter has %d promises, want 10; the next: %t", x.a.whole.size, x.a.next != nil)
	}
}

// A filter that is being made has what is written where it has read already.
func TestAbsencesHaveWhatIsWrittenMeanwhile(t *testing.T) {
	x := newAbsentTwin()
	for i := range 2 * absentPiece {
		x.below.Apply([]state.Write{{Key: keys.Of(keys.Promise, "ns", fmt.Sprintf("e%04d", i)), Value: []byte{1}}})
	}
	for i := range 2 {
		if err := x.a.step(x.batch); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			x.write("e", false)
		}
	}
	if x.a.whole == nil || x.a.none(keys.Of(keys.Promise, "ns", "e")) {
		t.Errorf("the filter is made: %t; it has not what was written meanwhile", x.a.whole != nil)
	}
}

// A filter that begins between an entry and its storing has what the entry wrote.
func TestAbsencesHaveWhatIsNotStored(t *testing.T) {
	w := newWorld(t, 1)
	m, err := New(Config{Partitions: 1}, state.NewMemReader())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		cmd := startCmd(w.request(), fmt.Sprint("e", i), "f", "in")
		if res, err := m.Apply(i+1, &commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{cmd}}); err != nil || res.Replies[0].GetError() != nil {
			t.Fatal(res, err)
		}
		m.reads.absences.removed = 1 << 30
		if more, err := m.Learn(); more || err != nil {
			t.Fatal(more, err)
		}
	}
	if a := m.reads.absences; a.next != nil || a.whole.size != 2 || a.none(keys.Of(keys.Promise, ns, "e0")) {
		t.Errorf("the filter has %d promises, want 2; the next: %t", a.whole.size, a.next != nil)
	}
}
