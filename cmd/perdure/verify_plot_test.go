package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// A plot is one partition's state of a copy, into which violations are planted.
type plot struct {
	t  *testing.T
	db *pebble.DB
}

// plant changes one partition of a data directory behind everybody's back.
func plant(t *testing.T, dir string, partition uint32, change func(s *plot)) {
	t.Helper()
	db, err := pebble.Open(filepath.Join(dir, fmt.Sprintf("state-%04d", partition)), &pebble.Options{
		ErrorIfNotExists: true, DisableWAL: true, FormatMajorVersion: pebble.FormatValueSeparation, Logger: quiet{t}})
	if err != nil {
		t.Fatal(err)
	}
	change(&plot{t, db})
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

type quiet struct{ t *testing.T }

func (quiet) Infof(string, ...any)                {}
func (quiet) Errorf(string, ...any)               {}
func (q quiet) Fatalf(format string, args ...any) { q.t.Errorf(format, args...) }
func (s *plot) put(key, value []byte)             { s.must(s.db.Set(key, value, pebble.NoSync)) }
func (s *plot) must(err error)                    { s.t.Helper(); must(s.t, err) }
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
func here(id string) uint32 { return state.PartitionOf("default", id, realPartitions) }
func of(f keys.Family, parts ...string) []byte {
	return keys.Of(f, append([]string{"default"}, parts...)...)
}

// drop removes a key that must be there.
func (s *plot) drop(key []byte) {
	s.t.Helper()
	s.get(key)
	s.must(s.db.Delete(key, pebble.NoSync))
}

func (s *plot) get(key []byte) []byte {
	s.t.Helper()
	value, closer, err := s.db.Get(key)
	if err != nil {
		s.t.Fatalf("key %q: %v", key, err)
	}
	defer closer.Close()
	return slices.Clone(value)
}

// below lists the keys with a prefix.
func (s *plot) below(prefix []byte) (found [][]byte) {
	s.t.Helper()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	s.must(err)
	for ok := it.First(); ok; ok = it.Next() {
		found = append(found, slices.Clone(it.Key()))
	}
	s.must(it.Close())
	return found
}

// rows gives an execution rows for what is in its header, as one has that took longer.
func (s *plot) rows(id string) {
	s.t.Helper()
	value, closer, err := s.db.Get(of(keys.Header, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return
	}
	s.must(err)
	h, err := state.DecodeHeader(slices.Clone(value))
	s.must(errors.Join(err, closer.Close()))
	if len(h.Open) > 0 {
		for seq, entry := range h.OpenEntries() {
			s.put(keys.JournalEntry("default", id, h.Incarnation, uint64(seq)), entry)
		}
		h.Open = nil
		s.put(of(keys.Header, id), h.Encode())
		return
	}
	task, ok := h.InlineTask()
	if !ok {
		return
	}
	if p, ok := h.InlinePromise(); ok {
		s.put(of(keys.Promise, id), recovery.AppendPromise(nil, p))
	}
	s.put(of(keys.Task, id), recovery.AppendTask(nil, task))
	for seq, entry := range h.InlineEntries() {
		s.put(keys.JournalEntry("default", id, h.Incarnation, uint64(seq)), entry)
	}
	h.Inline = ""
	s.put(of(keys.Header, id), h.Encode())
	class := map[journal.Status]keys.VisibilityClass{
		journal.StatusCompleted: keys.Completed, journal.StatusFailed: keys.Failed, journal.StatusCancelled: keys.Cancelled}[h.Status]
	s.put(keys.VisibilityOf("default", class, h.CreatedMS, id), state.ListingClosed(&h))
}

// entry is the key of a journal entry.
func (s *plot) entry(id string, seq int) []byte {
	s.t.Helper()
	s.rows(id)
	return s.below(of(keys.Journal, id))[seq]
}

func (s *plot) event(id string, seq int, ev journal.Event) {
	s.put(s.entry(id, seq), journal.AppendEntry(nil, journal.Entry{Seq: uint64(seq), Event: ev}))
}

func (s *plot) promise(id string, change func(p *recovery.Promise)) {
	s.t.Helper()
	s.rows(id)
	p, err := recovery.DecodePromise(s.get(of(keys.Promise, id)))
	s.must(err)
	change(&p)
	s.put(of(keys.Promise, id), recovery.AppendPromise(nil, p))
}

func (s *plot) header(id string, change func(h *state.Header)) (h state.Header) {
	s.t.Helper()
	h, err := state.DecodeHeader(s.get(of(keys.Header, id)))
	s.must(err)
	change(&h)
	s.put(of(keys.Header, id), h.Encode())
	return h
}

func (s *plot) task(id string, change func(t *recovery.Task)) {
	s.t.Helper()
	s.rows(id)
	task, err := recovery.DecodeTask(s.get(of(keys.Task, id)))
	s.must(err)
	change(&task)
	s.put(of(keys.Task, id), recovery.AppendTask(nil, task))
}

// mark changes the mark of a child's proxy promise.
func (s *plot) mark(p *recovery.Promise, change func(c *state.ChildElsewhere)) {
	s.t.Helper()
	c, ok := state.ChildOf(*p)
	if !ok {
		s.t.Fatalf("%q is no proxy promise: %q", p.ID, p.Tags)
	}
	change(&c)
	p.Tags = c.Mark()
}

// row changes the bytes of a graph run's node: old, which must be there once, becomes new.
func (s *plot) row(run string, node int, old, new string) {
	s.t.Helper()
	key := s.below(of(keys.Node, run))[node]
	value := s.get(key)
	if bytes.Count(value, []byte(old)) != 1 {
		s.t.Fatalf("node %d of %s has %q, not %q once", node, run, value, old)
	}
	s.put(key, bytes.Replace(value, []byte(old), []byte(new), 1))
}

// end changes the last bytes of a node's row, which are its output behind the output's length.
func (s *plot) end(run string, node int, old, new string) {
	s.t.Helper()
	key := s.below(of(keys.Node, run))[node]
	rest, ok := bytes.CutSuffix(s.get(key), []byte(old))
	if !ok {
		s.t.Fatalf("node %d of %s has %q, which does not end in %q", node, run, s.get(key), old)
	}
	s.put(key, append(rest, new...))
}

// replace changes the first entry of a journal that is of a kind, and keeps its time.
func (s *plot) replace(id string, kind journal.Kind, change func(ev journal.Event) journal.Event) {
	s.t.Helper()
	s.rows(id)
	for _, key := range s.below(of(keys.Journal, id)) {
		e, err := journal.DecodeEntry(s.get(key))
		s.must(err)
		if e.Event.Kind() == kind {
			e.Event = change(e.Event)
			s.put(key, journal.AppendEntry(nil, e))
			return
		}
	}
	s.t.Fatalf("the journal of %s has no %s", id, kind)
}

func value(text string) []byte {
	return recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte(text)})
}
