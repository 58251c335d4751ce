package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// reading counts point reads and scans by family.
type reading struct {
	state.Reader
	gets, scans map[keys.Family]int
	rows        int // of all scans
}

func (r *reading) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	r.scans[keys.Family(lower[0])]++
	return r.Reader.Scan(lower, upper, func(key, value []byte) bool {
		r.rows++
		return fn(key, value)
	})
}

func (r *reading) Get(key []byte) ([]byte, bool, error) {
	r.gets[keys.Family(key[0])]++
	return r.Reader.Get(key)
}

// Whatever is read and written in whatever order, the cache answers as what is below it does, within its bytes.
func TestReadCacheAnswersAsBelow(t *testing.T) {
	for _, size := range []int{-1, 0, 600, 4000, 1 << 20} {
		rapid.Check(t, func(t *rapid.T) { readThroughCache(t, size) })
	}
}

// readThroughCache reads and writes at random through a cache of so many bytes.
func readThroughCache(t *rapid.T, bytes int) {
	below := state.NewMemReader()
	c := newReadCache(below, bytes)
	for range rapid.IntRange(100, 300).Draw(t, "operations") {
		family := rapid.SampledFrom([]keys.Family{keys.Promise, keys.Task, keys.Callback, keys.Journal}).Draw(t, "family")
		key := keys.Of(family, "ns", fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id")))
		switch rapid.IntRange(0, 3).Draw(t, "operation") {
		case 0:
			w := &write{key: key, value: []byte(strings.Repeat("v", rapid.SampledFrom([]int{0, 20, 100, 300}).Draw(t, "length")) + fmt.Sprint(rapid.Int().Draw(t, "version")))}
			below.Apply([]state.Write{{Key: w.key, Value: w.value}})
			c.written(w)
		case 1:
			below.Apply([]state.Write{{Key: key}})
			c.written(&write{key: key, removed: true})
		default:
			want, present, _ := below.Get(key)
			for range 2 {
				if got, ok, err := c.Get(key); err != nil || ok != present || string(got) != string(want) {
					t.Fatalf("%x is %q, %t, %v, must be %q, %t", key, got, ok, err, want, present)
				}
			}
		}
		size := 0
		for key, v := range c.young {
			if v.size != len(v.value) {
				t.Fatalf("a value of %d bytes counts %d", len(v.value), v.size)
			}
			size += readCost + len(key) + v.size
		}
		if size != c.bytes || size > max(c.max, 0) {
			t.Fatalf("it holds %d bytes, counts %d, may hold %d", size, c.bytes, c.max)
		}
	}
}

// An execution in progress costs no read of a state below: each of its objects was written or read before.
func TestExecutionsInProgressAreNotRead(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	p := w.parts[0]
	below := &reading{Reader: p.state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}
	cfg := p.cfg
	cfg.CheckInvariants = false
	m, err := New(cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	p.m = m
	below.gets = map[keys.Family]int{}
	const executions = 20
	var held []*view
	for i := range executions {
		w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", "in"))
	}
	if got := below.gets[keys.Promise]; got != 0 {
		t.Errorf("%d starts read %d promises", executions, got)
	}
	held = w.take("w1", executions, "f")
	clear(below.gets)
	for range 3 {
		for _, v := range held {
			w.commit(v, "step s -> x")
		}
	}
	for _, v := range held {
		w.commit(v, "return done")
	}
	for family, n := range below.gets {
		if n > 0 {
			t.Errorf("%d keys of family %#x are read", n, byte(family))
		}
	}
}

// A fan-out reads of the state below only whether the ids of its children are taken. It scans nothing.
func TestFanOutIsNotRead(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	p := w.parts[0]
	below := &reading{Reader: p.state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}
	cfg := p.cfg
	cfg.CheckInvariants = false
	m, err := New(cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	p.m = m
	const children = 12
	parent := w.begin("e", "f")
	var text strings.Builder
	for range children {
		text.WriteString("child g in; ")
	}
	cmd := w.commitCmd(parent, text.String()+"all 0 1 2 3 4 5 6 7 8 9 10 11")
	clear(below.gets)
	clear(below.scans)
	res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: []*commandv1.Grant{grant("w1", 2*children, "f", "g")}})
	var ends []*commandv1.Command
	for _, v := range w.assigned(res) {
		ends = append(ends, w.commitCmd(v, "return x"))
	}
	if len(ends) != children {
		t.Fatalf("%d children have begun", len(ends))
	}
	res = w.apply(p, &commandv1.Entry{Commands: ends, Grants: []*commandv1.Grant{grant("w1", 1, "f", "g")}})
	if len(res.Effects.Assigned) != 1 || res.Effects.Assigned[0].Token.Id != "e" {
		t.Errorf("the parent is not resumed: %v", res.Effects.Assigned)
	}
	if n := below.gets[keys.Promise]; n > children {
		t.Errorf("%d promises are read", n)
	}
	for _, f := range []keys.Family{keys.Callback, keys.AwaitedBy, keys.Task, keys.Header, keys.Ready} {
		if below.gets[f]+below.scans[f] > 0 {
			t.Errorf("family %#x: %d reads, %d scans", byte(f), below.gets[f], below.scans[f])
		}
	}
}

// Tasks that wait in the state and tasks that became pending in the entry are assigned in the order of their age.
func TestQueueOverStateAndEntry(t *testing.T) {
	for credit := 1; credit <= 5; credit++ {
		w := newWorld(t, 1)
		for _, id := range []string{"a", "b"} {
			w.do(startCmd(w.request(), id, "f", "in"))
		}
		w.now++
		res := w.apply(w.parts[0], &commandv1.Entry{Grants: []*commandv1.Grant{grant("w1", credit, "f")}, Commands: []*commandv1.Command{
			startCmd(w.request(), "c", "f", "in"), startCmd(w.request(), "d", "f", "in"),
			startCmd(w.request(), "x", "g", "in"), startCmd(w.request(), "y", "g", "in")}})
		var got []string
		for _, a := range res.Effects.Assigned {
			got = append(got, a.Token.Id)
		}
		if want := []string{"a", "b", "c", "d"}[:min(credit, 4)]; !slices.Equal(got, want) {
			t.Errorf("credit %d: %v are assigned, must be %v", credit, got, want)
		}
	}
}

// A task that a grant of the entry has taken is not in the queue for the next grant.
func TestQueueWithoutWhatIsTaken(t *testing.T) {
	w := newWorld(t, 1)
	other := grant("w2", 5, "f", "g")
	res := w.apply(w.parts[0], &commandv1.Entry{Grants: []*commandv1.Grant{grant("w1", 2, "f"), other}, Commands: []*commandv1.Command{
		startCmd(w.request(), "a", "f", "in"), startCmd(w.request(), "b", "f", "in"), startCmd(w.request(), "c", "f", "in")}})
	by := map[string]string{}
	for _, a := range res.Effects.Assigned {
		by[a.Token.Id] = a.Worker
	}
	if len(res.Effects.Assigned) != 3 || by["a"] != "w1" || by["b"] != "w1" || by["c"] != "w2" {
		t.Errorf("assigned: %v", by)
	}
}

// Whatever a machine has applied, the sets of keys that it believes empty are.
func TestEmptySetsAreEmpty(t *testing.T) {
	for seed := range int64(4) {
		s := simulate(t, seeded(2000+seed), 400)
		for _, p := range s.parts {
			var fresh presence
			if err := fresh.read(p.state); err != nil {
				t.Fatal(err)
			}
			for i, n := range fresh.counts {
				if got := p.m.present.counts[i]; got != n {
					t.Fatalf("seed %d: slot %d counts %d, the state has %d", seed, i, got, n)
				}
			}
		}
	}
}

// A count that has reached its bound no longer says how many keys there are, so it stays.
func TestFullCountStays(t *testing.T) {
	p := presence{counts: make([]uint8, presenceSlots)}
	prefix := keys.Of(keys.Callback, "ns", "id")
	for range 300 {
		p.add(prefix)
	}
	for range 299 {
		p.remove(prefix)
	}
	if p.none(prefix) {
		t.Error("one of 300 keys is left, and none is counted")
	}
}
