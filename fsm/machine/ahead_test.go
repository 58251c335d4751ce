package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// readingRanges is a reading that can scan ranges, or cannot.
type readingRanges struct {
	reading
	ranges int
	err    error
}

func (r *readingRanges) ScanRanges(ranges []state.Range, fn func(i int, key, value []byte) bool) error {
	r.ranges++
	if r.err != nil {
		return r.err
	}
	return r.Reader.(state.RangeReader).ScanRanges(ranges, fn)
}

// asleep is a world whose executions e-1, e-2, … wait for timers that are due, all of them out of memory, and its state below. The
// last one has more entries than are read ahead.
func asleep(t *testing.T, executions int) (*world, *readingRanges) {
	w := newWorldAt(t, state.LevelPromise, 1) // whose journals are rows
	var waits []*commandv1.Command
	for n := range executions {
		v := w.begin(fmt.Sprint("e-", n), "f")
		if n == executions-1 {
			w.commit(v, strings.Repeat("step s -> x; ", aheadEntries)+"nothing")
		}
		waits = append(waits, w.commitCmd(v, "sleep 10; await "+fmt.Sprint(v.nextChild)))
	}
	p := w.parts[0]
	w.apply(p, &commandv1.Entry{Commands: waits})
	w.now += 10
	below := &readingRanges{reading: reading{Reader: p.state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}}
	return w, below
}

// Executions that wake together are read together, and the state is as if each had been read by itself.
func TestManyWakesAreReadAhead(t *testing.T) {
	const executions = 2 * aheadLeast
	var sums []uint64
	for _, ahead := range []bool{true, false} {
		w, below := asleep(t, executions)
		p := w.parts[0]
		cfg := p.cfg
		cfg.CheckInvariants, cfg.aheadLeast = false, 0
		if !ahead {
			cfg.aheadLeast = executions + 1
		}
		m, err := New(cfg, below)
		if err != nil {
			t.Fatal(err)
		}
		clear(below.gets)
		clear(below.scans)
		p.m = m
		w.tick()
		tasks := w.take("w2", executions, "f")
		if len(tasks) != executions {
			t.Fatalf("%d tasks are assigned", len(tasks))
		}
		if got := below.ranges > 0; got != ahead {
			t.Errorf("ranges are read: %t", got)
		}
		singly := below.gets[keys.Promise] + below.gets[keys.Task] + below.gets[keys.Header]
		if ahead && singly > 0 || !ahead && singly < 4*executions {
			t.Errorf("ahead: %t; %d rows are read singly", ahead, singly)
		}
		// The long journal is read by itself.
		if n := below.scans[keys.Journal]; ahead && n != 1 || !ahead && n != executions {
			t.Errorf("ahead: %t; %d journals are scanned", ahead, n)
		}
		for _, v := range tasks {
			w.commit(v, "return done")
		}
		sums = append(sums, p.m.Checksum())
	}
	if sums[0] != sums[1] {
		t.Errorf("checksums %d", sums)
	}
}

// Many tasks are read ahead in pieces.
func TestManyTasksAreReadAhead(t *testing.T) {
	const executions = aheadMost + aheadLeast
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	var starts []*commandv1.Command
	for n := range executions {
		starts = append(starts, startCmd(w.request(), fmt.Sprint("e-", n), "f", "in"))
	}
	p := w.parts[0]
	w.apply(p, &commandv1.Entry{Commands: starts})
	below := &readingRanges{reading: reading{Reader: p.state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}}
	cfg := p.cfg
	cfg.CheckInvariants, cfg.aheadLeast = false, 0
	m, err := New(cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	clear(below.gets)
	clear(below.scans)
	p.m = m
	if n := len(w.take("w1", executions, "f")); n != executions {
		t.Errorf("%d tasks are assigned", n)
	}
	if n := below.gets[keys.Promise] + below.gets[keys.Task] + below.gets[keys.Header] + below.scans[keys.Journal]; below.ranges != 2 || n > 0 {
		t.Errorf("%d reads ahead, %d others", below.ranges, n)
	}
}

// A read ahead that fails stops the replica, as any read does.
func TestFailedReadAhead(t *testing.T) {
	w, below := asleep(t, aheadLeast)
	p := w.parts[0]
	m, err := New(p.cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	below.err = errors.New("the disk")
	_, err = m.Apply(p.index+1, &commandv1.Entry{TimeMs: w.now, Commands: []*commandv1.Command{tickCmd(0)}})
	if !errors.Is(err, below.err) {
		t.Errorf("apply returned %v", err)
	}
}

// A read ahead takes a bounded number of entries and bytes of one id, and keeps no part of a journal.
func TestReadAheadIsBounded(t *testing.T) {
	for _, c := range []struct {
		entries, bytes int
		kept           bool
	}{{1, 1, true}, {aheadEntries, 1, true}, {aheadEntries + 1, 1, false}, {2, aheadBytes / 2, true}, {2, aheadBytes/2 + 1, false}} {
		below := state.NewMemReader()
		for _, incarnation := range []uint64{3, 9} {
			for seq := range c.entries {
				below.Apply([]state.Write{{Key: keys.JournalEntry("ns", "e", incarnation, uint64(seq)), Value: make([]byte, c.bytes)}})
			}
		}
		r := newReadCache(below, 1<<20)
		prefix := keys.Of(keys.Journal, "ns", "e")
		for range 2 { // a tick reads ahead for each kind of deadline
			if err := r.read(below, []state.Range{{Lower: prefix, Upper: keys.After(prefix)}}); err != nil {
				t.Fatal(err)
			}
		}
		rows, known := r.journalAhead(keys.JournalEntry("ns", "e", 3, 0), keys.JournalEntry("ns", "e", 3, 99))
		if known != c.kept || known && len(rows) != c.entries {
			t.Errorf("%d entries of %d bytes: %d are read ahead, %t", c.entries, c.bytes, len(rows), known)
		}
		if _, known := r.journalAhead(keys.JournalEntry("ns", "e", 9, 0), keys.JournalEntry("ns", "e", 9, 99)); known && 2*c.entries > aheadEntries {
			t.Errorf("%d entries of %d bytes: the second journal is beyond the bound", c.entries, c.bytes)
		}
		got := 0
		if err := r.Scan(keys.JournalEntry("ns", "e", 3, 1), keys.JournalEntry("ns", "e", 3, 3), func(_, _ []byte) bool { got++; return true }); err != nil || got != max(0, min(c.entries, 3)-1) {
			t.Errorf("%d entries: a part of them has %d, %v", c.entries, got, err)
		}
	}
}
