// Package logtest is the conformance suite of log stores.
//
// It defines "a log store": every backend of a raftlog.Store must pass Run, and one that passes can be
// configured without a difference for the layers above. Each test works in a directory of its own, made by
// the factory, and compares with a plain model. The package stores nothing: a crash of a test loses only its
// directories.
package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"perdure/partition/raftlog"
)

// Opener opens one store, always the same. With create it makes it.
type Opener func(create bool) (*raftlog.Store, error)

// Factory returns the opener of a new place. It is called once per test, and fails it with t.
type Factory func(t testing.TB) Opener

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Opener)
	}{
		{"Empty", empty},
		{"RoundTrip", roundTrip},
		{"Order", order},
		{"Gap", gap},
		{"DeleteRange", deleteRange},
		{"GroupsAreApart", groupsAreApart},
		{"DropGroup", dropGroup},
		{"Creation", creation},
		{"Stamp", stamp},
		{"Closed", closed},
		{"SequentialReaders", sequentialReaders},
		{"ConcurrentGroups", concurrentGroups},
		{"LogCache", logCache},
		{"Verify", verify},
		{"Model", model},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, factory(t)) })
	}
}

// Entry makes an entry whose content is derived from its index.
func Entry(group uint32, index, term uint64) *raft.Log {
	data := bytes.Repeat([]byte(fmt.Sprintf("g%d i%d t%d|", group, index, term)), int(index%5)+1)
	l := &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: data}
	if index%3 == 0 {
		l.AppendedAt = time.Unix(1_700_000_000+int64(index), int64(index)).UTC()
	}
	if index%7 == 0 {
		l.Extensions = []byte{byte(index), 0, 0xFF}
	}
	if index%11 == 0 {
		l.Type, l.Data = raft.LogNoop, nil
	}
	return l
}

// Entries makes from..to.
func Entries(group uint32, from, to, term uint64) []*raft.Log {
	var out []*raft.Log
	for i := from; i <= to; i++ {
		out = append(out, Entry(group, i, term))
	}
	return out
}

// Equal compares entries as Raft sees them.
func Equal(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data) &&
		bytes.Equal(a.Extensions, b.Extensions) && a.AppendedAt.Equal(b.AppendedAt)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, o Opener, create bool) *raftlog.Store {
	t.Helper()
	s, err := o(create)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopen(t testing.TB, s *raftlog.Store, o Opener) *raftlog.Store {
	t.Helper()
	must(t, s.Close())
	return open(t, o, false)
}

// wantSpan checks the bounds, and that exactly the entries within them are found.
func wantSpan(t testing.TB, l raftlog.Log, first, last uint64) {
	t.Helper()
	f, err := l.FirstIndex()
	must(t, err)
	la, err := l.LastIndex()
	must(t, err)
	if f != first || la != last {
		t.Fatalf("log is %d..%d, want %d..%d", f, la, first, last)
	}
	var out raft.Log
	for _, i := range []uint64{0, first - 1, last + 1} {
		if i == first && i != 0 {
			continue
		}
		if err := l.GetLog(i, &out); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("GetLog(%d) outside %d..%d: %v, want ErrLogNotFound", i, first, last, err)
		}
	}
	must(t, l.Check(context.Background(), 0))
}

func wantEntries(t testing.TB, l raft.LogStore, want []*raft.Log) {
	t.Helper()
	for _, w := range want {
		var got raft.Log
		if err := l.GetLog(w.Index, &got); err != nil {
			t.Fatalf("GetLog(%d): %v", w.Index, err)
		}
		if !Equal(&got, w) {
			t.Fatalf("GetLog(%d) = %+v, want %+v", w.Index, got, w)
		}
	}
}

func empty(t *testing.T, o Opener) {
	s := open(t, o, true)
	wantSpan(t, s.Group(0), 0, 0)
	must(t, s.Group(0).StoreLogs(nil))
	must(t, s.Group(0).DeleteRange(1, 100))
	wantSpan(t, s.Group(0), 0, 0)
	gs, err := s.Groups()
	must(t, err)
	if len(gs) != 0 {
		t.Fatalf("groups %v in an empty store", gs)
	}
	s = reopen(t, s, o)
	wantSpan(t, s.Group(0), 0, 0)
}

func roundTrip(t *testing.T, o Opener) {
	s := open(t, o, true)
	es := Entries(7, 1, 40, 3)
	es = append(es, &raft.Log{Index: 41, Term: 1<<64 - 1, Type: raft.LogConfiguration, Data: make([]byte, 300_000)})
	es = append(es, &raft.Log{Index: 42, Term: 4, Type: raft.LogBarrier, AppendedAt: time.Unix(0, 1).UTC()})
	must(t, s.Group(7).StoreLog(es[0]))
	must(t, s.Group(7).StoreLogs(es[1:]))
	wantSpan(t, s.Group(7), 1, 42)
	wantEntries(t, s.Group(7), es)
	s = reopen(t, s, o)
	wantSpan(t, s.Group(7), 1, 42)
	wantEntries(t, s.Group(7), es)
	// Backwards and by leaps, which no read-ahead helps.
	for _, i := range []int{41, 20, 3, 0, 40, 1} {
		wantEntries(t, s.Group(7), es[i:i+1])
	}
	var got raft.Log
	must(t, s.Group(7).GetLog(11, &got))
	if got.Data != nil {
		t.Fatalf("empty data read back as %#v", got.Data)
	}
}

func order(t *testing.T, o Opener) {
	s := open(t, o, true)
	l := s.Group(1)
	must(t, l.StoreLogs(Entries(1, 5, 9, 1)))
	for name, logs := range map[string][]*raft.Log{
		"overwrites the last": Entries(1, 9, 10, 2),
		"overwrites all":      Entries(1, 1, 20, 2),
		"index 0":             {Entry(1, 0, 1)},
		"hole in the append":  {Entry(1, 10, 1), Entry(1, 12, 1)},
		"not ascending":       {Entry(1, 10, 1), Entry(1, 10, 1)},
	} {
		var oe *raftlog.OrderError
		if err := l.StoreLogs(logs); !errors.As(err, &oe) {
			t.Fatalf("%s: %v, want *OrderError", name, err)
		}
	}
	wantSpan(t, l, 5, 9)
	wantEntries(t, l, Entries(1, 5, 9, 1))
	s = reopen(t, s, o)
	wantSpan(t, s.Group(1), 5, 9)
}

func gap(t *testing.T, o Opener) {
	s := open(t, o, true)
	l := s.Group(1)
	must(t, l.StoreLogs(Entries(1, 1, 50, 1)))
	must(t, l.StoreLogs(Entries(1, 100, 110, 2)))
	wantSpan(t, l, 100, 110)
	wantEntries(t, l, Entries(1, 100, 110, 2))
	s = reopen(t, s, o)
	wantSpan(t, s.Group(1), 100, 110)
	wantEntries(t, s.Group(1), Entries(1, 100, 110, 2))
}

func deleteRange(t *testing.T, o Opener) {
	s := open(t, o, true)
	step := func(name string, min, max, first, last uint64) {
		t.Helper()
		must(t, s.Group(1).DeleteRange(min, max))
		wantSpan(t, s.Group(1), first, last)
		s = reopen(t, s, o)
		wantSpan(t, s.Group(1), first, last)
	}
	must(t, s.Group(1).StoreLogs(Entries(1, 1, 1000, 1)))
	step("below", 0, 0, 1, 1000)
	step("above", 1001, 5000, 1, 1000)
	step("backwards", 7, 5, 1, 1000)
	step("prefix", 1, 300, 301, 1000)
	step("prefix again, from before the first", 1, 400, 401, 1000)
	step("suffix", 901, 1000, 401, 900)
	step("suffix, past the last", 801, 9999, 401, 800)
	var oe *raftlog.OrderError
	if err := s.Group(1).DeleteRange(500, 600); !errors.As(err, &oe) {
		t.Fatalf("middle: %v, want *OrderError", err)
	}
	wantSpan(t, s.Group(1), 401, 800)
	must(t, s.Group(1).StoreLogs(Entries(1, 801, 850, 9)))
	wantEntries(t, s.Group(1), append(Entries(1, 401, 800, 1), Entries(1, 801, 850, 9)...))
	step("all", 0, 1<<63, 0, 0)
	must(t, s.Group(1).StoreLogs(Entries(1, 2, 3, 10)))
	wantSpan(t, s.Group(1), 2, 3)
	step("all, exactly", 2, 3, 0, 0)
}

func groupsAreApart(t *testing.T, o Opener) {
	s := open(t, o, true)
	groups := []uint32{0, 1, 2, 255, 256, 1<<32 - 2, 1<<32 - 1}
	for i, g := range groups {
		must(t, s.Group(g).StoreLogs(Entries(g, uint64(i)+1, uint64(i)+20, 5)))
	}
	must(t, s.Group(1).DeleteRange(0, 1<<64-1))
	must(t, s.Group(256).DeleteRange(0, 10))
	for range 2 {
		got, err := s.Groups()
		must(t, err)
		if fmt.Sprint(got) != fmt.Sprint([]uint32{0, 2, 255, 256, 1<<32 - 2, 1<<32 - 1}) {
			t.Fatalf("groups %v", got)
		}
		for i, g := range groups {
			first, last := uint64(i)+1, uint64(i)+20
			if g == 1 {
				wantSpan(t, s.Group(g), 0, 0)
				continue
			}
			if g == 256 {
				first = 11
			}
			wantSpan(t, s.Group(g), first, last)
			wantEntries(t, s.Group(g), Entries(g, first, last, 5))
		}
		s = reopen(t, s, o)
	}
}

func dropGroup(t *testing.T, o Opener) {
	s := open(t, o, true)
	must(t, s.Group(1).StoreLogs(Entries(1, 1, 10, 1)))
	must(t, s.Group(2).StoreLogs(Entries(2, 1, 10, 1)))
	must(t, s.DropGroup(1))
	must(t, s.DropGroup(3))
	wantSpan(t, s.Group(1), 0, 0)
	must(t, s.Group(1).StoreLogs(Entries(1, 100, 105, 2)))
	wantSpan(t, s.Group(1), 100, 105)
	must(t, s.DropGroup(1))
	s = reopen(t, s, o)
	wantSpan(t, s.Group(1), 0, 0)
	wantSpan(t, s.Group(2), 1, 10)
	must(t, s.Group(1).StoreLogs(Entries(1, 1, 2, 3)))
	wantEntries(t, s.Group(1), Entries(1, 1, 2, 3))
}

func creation(t *testing.T, o Opener) {
	var missing *raftlog.MissingError
	if _, err := o(false); !errors.As(err, &missing) {
		t.Fatalf("open of a missing store: %v, want *MissingError", err)
	}
	if _, err := o(false); !errors.As(err, &missing) {
		t.Fatalf("the first open made something: %v, want *MissingError", err)
	}
	s := open(t, o, true)
	// Made, not stamped, no entry: as if not made.
	must(t, s.Close())
	s = open(t, o, true)
	must(t, s.Group(3).StoreLog(Entry(3, 1, 1)))
	must(t, s.Close())
	var exists *raftlog.ExistsError
	if _, err := o(true); !errors.As(err, &exists) {
		t.Fatalf("create over a store with entries: %v, want *ExistsError", err)
	}
	s = open(t, o, false)
	must(t, s.DropGroup(3))
	must(t, s.SetStamp([]byte("c1/n1")))
	must(t, s.Close())
	if _, err := o(true); !errors.As(err, &exists) {
		t.Fatalf("create over a stamped store: %v, want *ExistsError", err)
	}
	open(t, o, false)
	if _, err := o(false); err == nil {
		t.Fatal("a store was opened twice at once")
	}
}

func stamp(t *testing.T, o Opener) {
	s := open(t, o, true)
	if b, ok := s.Stamp(); ok {
		t.Fatalf("new store is stamped %q", b)
	}
	if s.SetStamp(nil) == nil {
		t.Fatal("empty stamp accepted")
	}
	must(t, s.SetStamp([]byte("first")))
	must(t, s.SetStamp([]byte("cluster/server\x00\xff")))
	for range 2 {
		if b, ok := s.Stamp(); !ok || string(b) != "cluster/server\x00\xff" {
			t.Fatalf("stamp %q, %v", b, ok)
		}
		s = reopen(t, s, o)
	}
}

func closed(t *testing.T, o Opener) {
	s := open(t, o, true)
	l := s.Group(1)
	must(t, l.StoreLog(Entry(1, 1, 1)))
	must(t, s.Close())
	must(t, s.Close())
	var out raft.Log
	_, firstErr := l.FirstIndex()
	_, lastErr := l.LastIndex()
	_, groupsErr := s.Groups()
	_, verifyErr := s.Verify(context.Background())
	for name, err := range map[string]error{
		"FirstIndex": firstErr, "LastIndex": lastErr, "Groups": groupsErr, "Verify": verifyErr,
		"GetLog": l.GetLog(1, &out), "StoreLog": l.StoreLog(Entry(1, 2, 1)), "DeleteRange": l.DeleteRange(1, 1),
		"SetStamp": s.SetStamp([]byte("x")), "DropGroup": s.DropGroup(1), "Check": l.Check(context.Background(), 0),
	} {
		if !errors.Is(err, raftlog.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	s = open(t, o, false)
	wantSpan(t, s.Group(1), 1, 1)
}

// sequentialReaders has forward readers at different places while the log is compacted and appended to.
func sequentialReaders(t *testing.T, o Opener) {
	s := open(t, o, true)
	l := s.Group(1)
	const n, more = 1300, 1600
	must(t, l.StoreLogs(Entries(1, 1, n, 1)))
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for r := range 6 {
		wg.Go(func() {
			for i := uint64(r*150 + 1); i <= n; i++ {
				var got raft.Log
				switch err := l.GetLog(i, &got); {
				case errors.Is(err, raft.ErrLogNotFound):
					if first, _ := l.FirstIndex(); i >= first {
						errs <- fmt.Errorf("reader %d: %d not found, first is %d", r, i, first)
						return
					}
				case err != nil:
					errs <- fmt.Errorf("reader %d: %d: %w", r, i, err)
					return
				case !Equal(&got, Entry(1, i, 1)):
					errs <- fmt.Errorf("reader %d: %d reads %+v", r, i, got)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for to := uint64(50); to <= 600; to += 50 {
			if err := l.DeleteRange(1, to); err != nil {
				errs <- err
			}
		}
	})
	wg.Go(func() {
		for i := uint64(n + 1); i <= more; i += 20 {
			if err := l.StoreLogs(Entries(1, i, i+19, 1)); err != nil {
				errs <- err
			}
		}
	})
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	wantSpan(t, l, 601, more)

	// Entries read ahead must not outlive a truncation.
	var got raft.Log
	must(t, l.GetLog(1000, &got))
	must(t, l.GetLog(1001, &got))
	must(t, l.DeleteRange(1002, more))
	must(t, l.StoreLogs(Entries(1, 1002, 1010, 2)))
	must(t, l.GetLog(1002, &got))
	if got.Term != 2 {
		t.Fatalf("entry 1002 read from before the truncation: %+v", got)
	}
}

func concurrentGroups(t *testing.T, o Opener) {
	s := open(t, o, true)
	const groups, rounds = 8, 25
	var wg sync.WaitGroup
	errs := make(chan error, groups)
	for g := range uint32(groups) {
		wg.Go(func() {
			next := uint64(1)
			for range rounds {
				if err := s.Group(g).StoreLogs(Entries(g, next, next+3, 1)); err != nil {
					errs <- err
					return
				}
				next += 4
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	s = reopen(t, s, o)
	for g := range uint32(groups) {
		wantSpan(t, s.Group(g), 1, 4*rounds)
		wantEntries(t, s.Group(g), Entries(g, 1, 4*rounds, 1))
	}
}

func logCache(t *testing.T, o Opener) {
	s := open(t, o, true)
	if !s.Group(1).IsMonotonic() {
		t.Fatal("log does not report IsMonotonic")
	}
	c := raftlog.NewCache(s.Group(1), raftlog.CacheOptions{})
	if !c.IsMonotonic() {
		t.Fatal("the cache hides IsMonotonic")
	}
	must(t, c.StoreLogs(Entries(1, 1, 700, 1)))
	wantEntries(t, c, Entries(1, 1, 700, 1))
	must(t, c.DeleteRange(600, 700))
	must(t, c.StoreLogs(Entries(1, 600, 650, 2)))
	wantEntries(t, c, append(Entries(1, 1, 599, 1), Entries(1, 600, 650, 2)...))
}

func verify(t *testing.T, o Opener) {
	s := open(t, o, true)
	must(t, s.Group(1).StoreLogs(Entries(1, 10, 5000, 1)))
	must(t, s.Group(9).StoreLogs(Entries(9, 1, 3, 1)))
	r, err := s.Verify(context.Background())
	must(t, err)
	var got []raftlog.GroupReport
	for _, g := range r.Groups {
		if g.Entries > 0 {
			got = append(got, g)
		}
	}
	if len(got) != 2 || got[0].Group != 1 || got[0].First != 10 || got[0].Last != 5000 ||
		got[0].Entries != 4991 || got[1].Group != 9 || got[1].Entries != 3 || got[1].Bytes == 0 {
		t.Fatalf("report %+v", r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled Verify: %v", err)
	}
	must(t, s.Group(1).Check(context.Background(), 4000))
	must(t, s.Group(1).Check(context.Background(), 9999))
}

// model runs random operations against a plain map.
func model(t *testing.T, o Opener) {
	s := open(t, o, true)
	type twin struct {
		first, last uint64
		logs        map[uint64]*raft.Log
	}
	twins := map[uint32]*twin{}
	term := uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.IntRange(1, 12).Draw(rt, "steps")
		for range steps {
			g := rapid.Uint32Range(0, 3).Draw(rt, "group")
			tw := twins[g]
			if tw == nil {
				tw = &twin{logs: map[uint64]*raft.Log{}}
				twins[g] = tw
			}
			l := s.Group(g)
			switch op := rapid.SampledFrom([]string{"append", "append", "append", "gap", "prefix", "suffix", "all", "reopen", "drop"}).Draw(rt, "op"); op {
			case "append", "gap":
				term++
				from := tw.last + 1
				if op == "gap" || tw.last == 0 {
					from = tw.last + 1 + rapid.Uint64Range(1, 50).Draw(rt, "gap")
				}
				es := Entries(g, from, from+rapid.Uint64Range(0, 9).Draw(rt, "n"), term)
				if err := l.StoreLogs(es); err != nil {
					rt.Fatal(err)
				}
				if from != tw.last+1 || tw.last == 0 {
					tw.first, tw.logs = from, map[uint64]*raft.Log{}
				}
				for _, e := range es {
					tw.logs[e.Index], tw.last = e, e.Index
				}
			case "prefix", "suffix", "all":
				if tw.last == 0 {
					continue
				}
				min, max := tw.first, tw.last
				at := rapid.Uint64Range(tw.first, tw.last).Draw(rt, "at")
				if op == "prefix" {
					max = at
				} else if op == "suffix" {
					min = at
				}
				if err := l.DeleteRange(min, max); err != nil {
					rt.Fatal(err)
				}
				for i := min; i <= max; i++ {
					delete(tw.logs, i)
				}
				switch {
				case len(tw.logs) == 0:
					tw.first, tw.last = 0, 0
				case min == tw.first:
					tw.first = max + 1
				default:
					tw.last = min - 1
				}
			case "drop":
				if err := s.DropGroup(g); err != nil {
					rt.Fatal(err)
				}
				*tw = twin{logs: map[uint64]*raft.Log{}}
			case "reopen":
				s = reopen(t, s, o)
			}
			for g, tw := range twins {
				wantSpan(t, s.Group(g), tw.first, tw.last)
				for i := tw.first; i <= tw.last && i != 0; i++ {
					wantEntries(t, s.Group(g), []*raft.Log{tw.logs[i]})
				}
			}
		}
	})
}
