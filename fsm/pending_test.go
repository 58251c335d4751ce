package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// shortQueries are queries about every execution of a script, and what they read.
func shortQueries(t *testing.T, s *script) (out []*commandv1.Query) {
	t.Helper()
	list, err := query.Answer(s.states[len(s.states)-1], 0, &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{Limit: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.GetList().Executions {
		q := func(of *commandv1.Query) { of.Namespace, of.Id = ns, e.Id; out = append(out, of) }
		q(&commandv1.Query{Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}})
		q(&commandv1.Query{Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
		q(&commandv1.Query{Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{}}})
		for version := range uint64(4) {
			q(&commandv1.Query{Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: e.Incarnation, Version: version}}})
		}
	}
	if len(out) == 0 {
		t.Fatal("the script starts nothing")
	}
	return out
}

// TestFree: no id that an execution has counts as free, and nearly all others do.
func TestFree(t *testing.T) {
	s := newScript(t, 8, 400)
	store := open(t, vfs.NewMem(), "state", true)
	held := 0
	for from := 0; from < 400; from += 40 {
		s.apply(t, store, from, from+40, 20)
		list, err := query.Answer(s.states[from+39], 0, &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{Limit: 1000}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.GetList().Executions {
			if held++; store.Free(ns, e.Id) {
				t.Errorf("after %d entries, %q counts as free", from+40, e.Id)
			}
		}
	}
	free := 0
	for i := range 100 {
		if store.Free(ns, fmt.Sprint("free-", i)) {
			free++
		}
	}
	if held == 0 || free < 90 {
		t.Errorf("%d ids are held, and %d of 100 others free", held, free)
	}
}

// TestLearn: a store that was opened on many ids knows free ones when it has learnt of all others, whatever is applied meanwhile.
// Entries read nothing for that: a start applies thousands at once.
func TestLearn(t *testing.T) {
	const held = 1000
	fs := vfs.NewMem()
	index := uint64(0)
	apply := func(s *Store, cmds ...*commandv1.Command) {
		t.Helper()
		data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1000, Commands: cmds})
		if err != nil {
			t.Fatal(err)
		}
		index++
		if err, failed := s.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}).(error); failed {
			t.Fatal(err)
		}
	}
	start := func(name string) *commandv1.Command {
		return &commandv1.Command{Namespace: ns, Id: name, Request: request(name), Kind: &commandv1.Command_Start{
			Start: &perdurev1.StartRequest{Id: name, Function: "f", Input: []byte("in")}}}
	}
	first := open(t, fs, "state", true)
	cmds := []*commandv1.Command{{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{RegisterFunctions: &commandv1.RegisterFunctions{Functions: []string{"f"}}}}}
	for n := range held {
		cmds = append(cmds, start(fmt.Sprint("e", n)))
	}
	apply(first, cmds...)
	if err := first.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	store := open(t, fs, "state", false)
	for range 20 {
		apply(store, tick())
	}
	if store.Free(ns, "free") {
		t.Error("entries have read what no command needed")
	}
	pieces := 0
	for more := true; more; pieces++ {
		apply(store, start(fmt.Sprint("late", pieces)))
		var err error
		if more, err = store.Learn(); err != nil {
			t.Fatal(err)
		}
	}
	if pieces < 3 || pieces > held {
		t.Errorf("%d ids were read in %d pieces", held, pieces)
	}
	for _, name := range []string{"e0", "e7", fmt.Sprint("e", held-1), "late0", fmt.Sprint("late", pieces-1)} {
		if store.Free(ns, name) {
			t.Errorf("%s counts as free", name)
		}
	}
	if !store.Free(ns, "free") {
		t.Error("an id that nobody has does not count as free")
	}
}

// TestShortReads: reads without a snapshot, while entries are applied and the state is replaced, answer as the state at
// the index that they return.
func TestShortReads(t *testing.T) {
	s := newScript(t, 8, 400)
	queries := shortQueries(t, s)
	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 300, 20)
	var content bytes.Buffer
	if _, err := source.WriteContent(&content); err != nil {
		t.Fatal(err)
	}
	store := open(t, vfs.NewMem(), "state", true)
	s.apply(t, store, 0, 2, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for n := range 4 {
		by := store.steady
		if n%2 > 0 {
			by = store.locked
		}
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				q := queries[rand.IntN(len(queries))]
				reply, index, err := store.queryShort(by, q)
				if errors.Is(err, errChanged) {
					continue
				}
				n, ok := s.position(index)
				if err != nil || !ok || n == 0 {
					t.Errorf("read at %d: %v", index, err)
					return
				}
				if want, err := query.Answer(s.states[n-1], 0, q); err != nil || !proto.Equal(reply, want) {
					t.Errorf("%v at %d: %v, a replay has %v (%v)", q, index, reply, want, err)
					return
				}
			}
		})
	}
	s.apply(t, store, 2, 200, 3)
	if err := store.Restore(io.NopCloser(bytes.NewReader(content.Bytes()))); err != nil {
		t.Error(err)
	}
	s.apply(t, store, 250, 400, 3)
	close(stop)
	readers.Wait()
	for i, q := range queries { // while nothing is applied, none fails
		by := store.steady
		if i%2 > 0 {
			by = store.locked
		}
		reply, index, err := store.queryShort(by, q)
		if want, _ := query.Answer(s.states[len(s.states)-1], 0, q); err != nil || index != s.last(400) || !proto.Equal(reply, want) {
			t.Fatalf("%v at %d: %v, %v; want %v", q, index, reply, err, want)
		}
	}
}

// TestSteadyVersions: a read ends when an entry is applied after it has begun, and none begins while what is pending is
// stored. One of pending and stored rows has both.
func TestSteadyVersions(t *testing.T) {
	s := newScript(t, 9, 30)
	q := shortQueries(t, s)[0]
	store := open(t, vfs.NewMem(), "state", true)
	s.apply(t, store, 0, 10, 1)
	if _, _, err := store.queryShort(store.steady, q); err != nil {
		t.Error(err)
	}
	before := steadyView{view{store.db}, store, store.pending.version.Load()}
	read := func() (get, scan error) {
		_, _, pending := before.Get(keys.MetaKey(state.MetaApplied))
		_, _, absent := before.Get(keys.MetaKey("x"))
		if get = pending; errors.Is(pending, errChanged) != errors.Is(absent, errChanged) {
			t.Errorf("of a key that is pending: %v, of one that is not: %v", pending, absent)
		}
		return get, before.Scan([]byte{0}, []byte{255}, func(_, _ []byte) bool { return false })
	}
	if get, scan := read(); get != nil || scan != nil {
		t.Error(get, scan)
	}
	s.apply(t, store, 10, 11, 1)
	if get, scan := read(); !errors.Is(get, errChanged) || !errors.Is(scan, errChanged) {
		t.Error("read of a former version:", get, scan)
	}
	store.pending.take()
	store.pending.store(store.machine.Writes())
	if _, _, err := store.queryShort(store.steady, q); !errors.Is(err, errChanged) {
		t.Errorf("while a batch is stored: %v", err)
	}
	store.pending.store(nil)
	store.pending.release()
	if _, index, err := store.queryShort(store.steady, q); err != nil || index != s.last(11) {
		t.Errorf("after it: %d, %v", index, err)
	}
}

// TestLockedReads: a read that a busy leader does not let finish holds up what is applied, and stores nothing. What it returns is of one
// moment.
func TestLockedReads(t *testing.T) {
	s := newScript(t, 13, 60)
	w := newWatcher()
	opts := w.options(vfs.NewMem(), true)
	opts.pendingKeys = pendingKeys
	stored := 0
	opts.OnWritten = func(_, _ int) { stored++ }
	store, err := Open("state", opts)
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, store, 0, 30, 1)
	runs, applied := 0, make(chan struct{})
	if err := store.Peek(func(r state.Reader) error {
		runs++
		before, err := state.MetaNumber(r, state.MetaApplied)
		if runs <= steadyTries && err == nil {
			s.apply(t, store, 29+runs, 30+runs, 1)
		} else if err == nil {
			go func() {
				defer close(applied)
				s.apply(t, store, 29+runs, 60, 1)
			}()
			if store.pending.mu.TryLock() {
				t.Error("an entry may be applied during the last run")
				store.pending.mu.Unlock()
			}
		}
		after, err2 := state.MetaNumber(r, state.MetaApplied)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if before != after || after != s.last(29+runs) {
			t.Errorf("run %d is at %d, then at %d; the state is at %d", runs, before, after, s.last(29+runs))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	<-applied
	if runs != steadyTries+1 || stored != 0 {
		t.Errorf("it ran %d times, and %d batches were stored", runs, stored)
	}
	if st, err := s.agrees(store); err != nil || st.Applied != s.last(60) {
		t.Errorf("the state is at %+v, %v", st, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// TestLockedScans: a scan that holds up entries has all rows, pending or stored.
func TestLockedScans(t *testing.T) {
	s := newScript(t, 14, 60)
	opts := newWatcher().options(vfs.NewMem(), true)
	opts.pendingKeys = pendingKeys
	store, err := Open("state", opts)
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, store, 0, 40, 7)
	if err := store.Flush(); err != nil {
		t.Fatal(err)
	}
	s.apply(t, store, 40, 60, 1)
	rows := func(r state.Reader) (out []string, err error) {
		for family := range byte(255) {
			err = errors.Join(err, r.Scan([]byte{family}, []byte{family + 1}, func(key, value []byte) bool {
				if key[0] != byte(keys.Meta) {
					out = append(out, fmt.Sprintf("%x=%x", key, value))
				}
				return true
			}))
		}
		return out, err
	}
	want, err := rows(s.states[59])
	if err != nil {
		t.Fatal(err)
	}
	if err := store.locked(func(_ present, r state.Reader) error {
		if have, err := rows(r); err != nil || !slices.Equal(have, want) {
			t.Errorf("%d rows, %v; want %d", len(have), err, len(want))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// A partition that is being restored answers nothing, also by a read without a snapshot.
func TestSteadyWhileImporting(t *testing.T) {
	store := open(t, vfs.NewMem(), "state", true)
	data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{
		{Kind: &commandv1.Command_Import{Import: &commandv1.Import{Restore: 7}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err, failed := store.Apply(&raft.Log{Index: 1, Type: raft.LogCommand, Data: data}).(error); failed {
		t.Fatal(err)
	}
	q := &commandv1.Query{Namespace: ns, Id: "e", Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}
	steady, _, err := store.queryShort(store.steady, q)
	if err != nil {
		t.Fatal(err)
	}
	var whole *commandv1.QueryReply
	if err := store.View(func(r state.Reader) (err error) {
		whole, err = query.Answer(r, 0, q)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(steady, whole) || whole.GetError() == nil {
		t.Errorf("answers %v, by a snapshot %v", steady, whole)
	}
}

// TestPendingReads: what is not stored yet is read, by queries, snapshots, audits and copies, also while it is being stored.
// Short queries store nothing.
func TestPendingReads(t *testing.T) {
	s := newScript(t, 11, 60)
	for name, storing := range map[string]bool{"pending": false, "being stored": true} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher()
			opts := w.options(vfs.NewMem(), true)
			opts.pendingKeys = pendingKeys
			stored := 0
			opts.OnWritten = func(_, _ int) { stored++ }
			store, err := Open("state", opts)
			if err != nil {
				t.Fatal(err)
			}
			s.apply(t, store, 0, 40, 7)
			if err := store.Flush(); err != nil {
				t.Fatal(err)
			}
			s.apply(t, store, 40, 60, 1)
			if stored != 1 || store.machine.Pending() == 0 {
				t.Fatalf("%d batches, %d keys are pending", stored, store.machine.Pending())
			}
			if err := store.Peek(func(r state.Reader) error {
				if n, err := state.MetaNumber(r, state.MetaApplied); err != nil || n != s.last(60) {
					t.Errorf("peeks at %d, %v", n, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if st, err := store.Status(); err != nil || st.Applied != s.last(60) {
				t.Errorf("the status is %+v, %v", st, err)
			}
			due := &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_Schedules{Schedules: &perdurev1.SearchSchedulesRequest{Namespace: ns, DueMs: math.MaxInt64}}}
			for _, q := range append(shortQueries(t, s), due) {
				reply, index, err := store.Query(q)
				if err != nil || index != s.last(60) {
					t.Fatalf("at %d: %v", index, err)
				}
				if want, err := query.Answer(s.states[59], 0, q); err != nil || !proto.Equal(reply, want) {
					t.Errorf("%v: %v, a replay has %v (%v)", q, reply, want, err)
				}
			}
			if stored != 1 {
				t.Errorf("short queries and the status have stored %d batches", stored-1)
			}
			if storing {
				// As a disk that is full holds it up.
				store.pending.take()
				store.pending.store(store.machine.Writes())
			}
			for _, q := range shortQueries(t, s) {
				reply, index, err := store.queryShort(store.locked, q)
				if want, _ := query.Answer(s.states[59], 0, q); err != nil || index != s.last(60) || !proto.Equal(reply, want) {
					t.Errorf("locked: %v at %d: %v, a replay has %v (%v)", q, index, reply, want, err)
				}
			}
			if st, err := s.agrees(store); err != nil || st.Applied != s.last(60) {
				t.Errorf("the state is at %+v, %v", st, err)
			}
			var content bytes.Buffer
			if _, err := store.WriteContent(&content); err != nil {
				t.Error(err)
			}
			if storing {
				store.pending.store(nil)
				store.pending.release()
			}
			copied := open(t, vfs.NewMem(), "copy", true)
			if err := copied.Restore(io.NopCloser(&content)); err != nil {
				t.Fatal(err)
			}
			if st, err := s.agrees(copied); err != nil || st.Applied != s.last(60) {
				t.Errorf("the copy is at %+v, %v", st, err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReadsSeeWhatIsApplied: reads beside the applying goroutine have at least the entries that were applied before them.
func TestReadsSeeWhatIsApplied(t *testing.T) {
	s := newScript(t, 12, 400)
	queries := shortQueries(t, s)
	store := open(t, vfs.NewMem(), "state", true)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for n := range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				before, at := store.Present().Index, uint64(0)
				var err error
				if n == 0 {
					_, at, err = store.Query(queries[rand.IntN(len(queries))])
				} else {
					read := store.View
					if n == 1 {
						read = store.Peek
					}
					err = read(func(r state.Reader) (err error) {
						at, err = state.MetaNumber(r, state.MetaApplied)
						return err
					})
				}
				if err != nil || at < before {
					t.Errorf("a read at %d, after entry %d was applied: %v", at, before, err)
					return
				}
			}
		})
	}
	s.apply(t, store, 0, 400, 3)
	close(done)
	readers.Wait()
}

// TestOverlay: writes above a state are read as those of the state with these writes.
func TestOverlay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Custom(func(t *rapid.T) []byte {
			return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 255}), 1, 3).Draw(t, "key")
		})
		below, whole := state.NewMemReader(), state.NewMemReader()
		o := overlay{below: below}
		for range rapid.IntRange(0, 12).Draw(t, "keys below") {
			w := []state.Write{{Key: key.Draw(t, "key"), Value: []byte("below")}}
			below.Apply(w)
			whole.Apply(w)
		}
		for range rapid.IntRange(0, 12).Draw(t, "writes") {
			w := state.Write{Key: key.Draw(t, "key")}
			if i, written := slices.BinarySearchFunc(o.writes, w.Key, compareWrite); !written {
				if rapid.Bool().Draw(t, "put") {
					w.Value = []byte("above")
				}
				o.writes = slices.Insert(o.writes, i, w)
				whole.Apply([]state.Write{w})
			}
		}
		k := key.Draw(t, "key")
		have, ok, err := o.Get(k)
		if want, there, _ := whole.Get(k); err != nil || ok != there || !bytes.Equal(have, want) {
			t.Fatalf("%x is %q, %v, %v; want %q, %v", k, have, ok, err, want, there)
		}
		var lower, upper []byte
		if rapid.Bool().Draw(t, "bounded") {
			lower, upper = key.Draw(t, "lower"), key.Draw(t, "upper")
			if bytes.Compare(lower, upper) > 0 {
				lower, upper = upper, lower
			}
		}
		most := rapid.IntRange(1, 20).Draw(t, "most")
		scan := func(r state.Reader) (rows []string) {
			if err := r.Scan(lower, upper, func(key, value []byte) bool {
				rows = append(rows, string(key)+"="+string(value))
				return len(rows) < most
			}); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		if have, want := scan(o), scan(whole); !slices.Equal(have, want) {
			t.Fatalf("%d rows in [%x, %x): %q, want %q", most, lower, upper, have, want)
		}
	})
}
