package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// Every batching of the same log gives the same state and the same answers.
func TestApplyBatch(t *testing.T) {
	s := newScript(t, 1, 300)
	for _, atOnce := range []int{1, 2, 7, 300} {
		store := open(t, vfs.NewMem(), "state", true)
		var answers []any
		for from := 0; from < len(s.logs); from += atOnce {
			answers = append(answers, store.ApplyBatch(s.logs[from:min(len(s.logs), from+atOnce)])...)
		}
		for i, a := range answers {
			want := s.results[i]
			if want == nil {
				if a != nil {
					t.Fatalf("entry %d is not for the machine and is answered with %v", i, a)
				}
				continue
			}
			got, ok := a.(*machine.Result)
			if !ok || len(got.Replies) != len(want.Replies) {
				t.Fatalf("entry %d is answered with %v", i, a)
			}
			for k := range got.Replies {
				if !proto.Equal(got.Replies[k], want.Replies[k]) {
					t.Fatalf("entry %d, command %d: %v, a replay has %v", i, k, got.Replies[k], want.Replies[k])
				}
			}
		}
		st, err := s.agrees(store)
		if err != nil {
			t.Fatalf("%d at once: %v", atOnce, err)
		}
		if st.Applied != s.last(len(s.logs)) {
			t.Fatalf("%d at once: applied %d", atOnce, st.Applied)
		}
	}
}

// The entries of one call are stored in several batches if they write much, each with its index and checksum.
func TestApplyBatchByBytes(t *testing.T) {
	var written []int
	w := newWatcher()
	opts := w.options(vfs.NewMem(), true)
	opts.OnWritten = func(_, bytes int) { written = append(written, bytes) }
	applied := 0
	opts.OnApplied = func(*machine.Result) { applied++ }
	store, err := Open("state", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	const entries, size = 12, pendingBytes / 4
	var logs []*raft.Log
	for i := range entries {
		data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{{Namespace: ns, Id: fmt.Sprint("p", i),
			Kind: &commandv1.Command_CreatePromise{CreatePromise: &perdurev1.CreatePromiseRequest{Id: fmt.Sprint("p", i), Param: make([]byte, size)}}}}})
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: data})
	}
	for i, a := range store.ApplyBatch(logs) {
		if _, ok := a.(*machine.Result); !ok {
			t.Fatalf("entry %d is answered with %v", i+1, a)
		}
	}
	most := slices.Max(written)
	if applied != entries || len(written) != 3 || most > pendingBytes+size+size/8 {
		t.Errorf("%d entries of %d KiB are stored in %d batches, of %d bytes at most", applied, size>>10, len(written), most)
	}
	st, err := store.Status()
	if err != nil || st.Applied != entries || st.Checksum != store.machine.Checksum() {
		t.Errorf("the state is at %+v, %v", st, err)
	}
}

// A restart continues at the state's index and skips entries that the log repeats.
func TestRestartSkipsWhatIsApplied(t *testing.T) {
	s := newScript(t, 2, 200)
	fs := vfs.NewMem()
	done := 0
	for _, upTo := range []int{1, 50, 51, 120, 200} {
		w := newWatcher()
		store, err := Open("state", w.options(fs, done == 0))
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range store.ApplyBatch(s.logs[:upTo]) {
			res, isResult := a.(*machine.Result)
			if fresh := i >= done && s.results[i] != nil; isResult != fresh || fresh && res == nil {
				t.Fatalf("entry %d of %d, %d of them applied before: %v", i, upTo, done, a)
			}
		}
		if st, err := s.agrees(store); err != nil || st.Applied != s.last(upTo) {
			t.Fatalf("after %d entries: %+v, %v", upTo, st, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		done = upTo
	}
}

func TestClosed(t *testing.T) {
	s := newScript(t, 3, 50)
	fs := vfs.NewMem()
	store := open(t, fs, "state", true)
	s.apply(t, store, 0, 50, 10)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	for name, err := range map[string]error{
		"View":  store.View(func(state.Reader) error { t.Error("a view of a closed store"); return nil }),
		"Flush": store.Flush(), "Cover": store.Cover(7),
		"Status":       func() error { _, err := store.Status(); return err }(),
		"Query":        func() error { _, _, err := store.Query(&commandv1.Query{}); return err }(),
		"WriteContent": func() error { _, err := store.WriteContent(io.Discard); return err }(),
		"Metrics":      func() error { _, err := store.Metrics(); return err }(),
		"Restore":      store.Restore(io.NopCloser(strings.NewReader(""))),
	} {
		if !errors.Is(err, ErrClosed) && name != "Restore" || err == nil {
			t.Errorf("%s of a closed store: %v", name, err)
		}
	}
	// Closing alone has made everything durable.
	again := open(t, fs, "state", false)
	if st, err := s.agrees(again); err != nil || st.Applied != s.last(50) {
		t.Errorf("opened again: %+v, %v", st, err)
	}
}

// A foreign store is refused by name and left unchanged.
func TestRefused(t *testing.T) {
	s := newScript(t, 4, 60)
	made := func(t *testing.T) vfs.FS {
		fs := vfs.NewMem()
		store := open(t, fs, "state", true)
		s.apply(t, store, 0, 60, 10)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	raw := func(t *testing.T, fs vfs.FS, change func(db *pebble.DB) error) {
		db, err := pebble.Open("state", &pebble.Options{FS: fs, FormatMajorVersion: format, Logger: quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(change(db), db.Flush(), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	isMissing := func(err error) bool { var e *MissingError; return errors.As(err, &e) && e.Dir == "state" }
	isExists := func(err error) bool { var e *ExistsError; return errors.As(err, &e) && e.Dir == "state" }
	isForeign := func(err error) bool { var e *ForeignError; return errors.As(err, &e) && e.Dir == "state" }
	isDamaged := func(err error) bool { var e *DamagedError; return errors.As(err, &e) && e.Dir == "state" }
	for _, c := range []struct {
		name   string
		fs     func(t *testing.T) vfs.FS
		change func(*Options)
		is     func(error) bool
		says   string
	}{
		{"missing", func(*testing.T) vfs.FS { return vfs.NewMem() }, nil, isMissing, "fsm: state store state is missing: no such directory"},
		{"an empty directory", func(t *testing.T) vfs.FS {
			fs := vfs.NewMem()
			if err := fs.MkdirAll("state", 0o755); err != nil {
				t.Fatal(err)
			}
			return fs
		}, nil, isMissing, "fsm: state store state is missing: the directory holds no database"},
		{"in use already", made, func(o *Options) { o.Create = true }, isExists, "fsm: state holds a state store already"},
		{"another's", made, func(o *Options) { o.Stamp = []byte("other") }, isForeign, `is stamped "cluster/server/state-0000", this node expects "other": it belongs elsewhere`},
		{"never finished", func(t *testing.T) vfs.FS {
			fs := made(t)
			raw(t, fs, func(db *pebble.DB) error { return db.Delete(keys.MetaKey(metaStamp), nil) })
			return fs
		}, nil, isDamaged, "the store was never finished: it has no stamp"},
		{"from a newer version", func(t *testing.T) vfs.FS {
			fs := made(t)
			raw(t, fs, func(db *pebble.DB) error {
				return db.Set(keys.MetaKey("feature"), []byte{0, 0, 0, 0, 0, 0, 0, state.FeatureLevel + 1}, nil)
			})
			return fs
		}, nil, isDamaged, "it was written by a newer version"},
		{"a number that is none", func(t *testing.T) vfs.FS {
			fs := made(t)
			raw(t, fs, func(db *pebble.DB) error { return db.Set(keys.MetaKey("applied"), []byte{1, 2}, nil) })
			return fs
		}, nil, isDamaged, "fsm: damaged value applied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := c.fs(t)
			before := dump(t, fs, "state")
			opts := newWatcher().options(fs, false)
			if c.change != nil {
				c.change(&opts)
			}
			for what, try := range map[string]func() error{
				"Inspect": func() error { _, err := Inspect("state", opts); return err },
				"Open":    func() error { _, err := Open("state", opts); return err },
			} {
				if err := try(); err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, must say %q", what, err, c.says)
				}
				if after := dump(t, fs, "state"); after != before {
					t.Errorf("%s has changed the files:\n%s\nbefore:\n%s", what, after, before)
				}
			}
		})
	}
}

// dump lists the files of a directory with their content, but for the lock.
func dump(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		return err.Error()
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		f, err := fs.Open(fs.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %x\n", name, len(content), xxhash.Sum64(content))
	}
	return b.String()
}

// An entry that cannot be read stops the store for good. What comes before it is applied and stored. An entry that the machine
// does not know may be half applied: what was not stored before it is lost, and no read takes an earlier state for the last.
func TestUnreadableEntryStops(t *testing.T) {
	s := newScript(t, 5, 20)
	next := s.logs[19].Index + 1
	unknown, err := proto.Marshal(&commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{{Namespace: ns}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"empty":                   {nil, "an empty log entry"},
		"unknown format":          {[]byte{9, 1, 2, 3}, "log entry of format 9, this program knows 1: written by a newer version"},
		"damaged":                 {[]byte{entryFormat, 0xff, 0xff}, "damaged log entry"},
		"unknown kind of command": {append([]byte{entryFormat}, unknown...), "written by a newer version; this replica must not guess"},
	} {
		t.Run(name, func(t *testing.T) {
			fs, w := vfs.NewMem(), newWatcher()
			store, err := Open("state", w.options(fs, true))
			if err != nil {
				t.Fatal(err)
			}
			s.apply(t, store, 0, 10, 10)
			batch := []*raft.Log{s.logs[10], {Index: next, Type: raft.LogCommand, Data: c.data}, s.logs[11]}
			for _, again := range []bool{false, true} {
				for i, a := range store.ApplyBatch(batch) {
					err, failed := a.(error)
					if !failed || !strings.Contains(err.Error(), c.says) {
						t.Errorf("again %v, entry %d: %v", again, i, a)
					}
				}
			}
			if errs := w.said(); len(errs) != 1 || !strings.Contains(errs[0].Error(), c.says) || !strings.Contains(errs[0].Error(), "state store state") {
				t.Errorf("OnFatal got: %v", errs)
			}
			if _, err := store.Snapshot(); err == nil {
				t.Error("a halted store made a snapshot")
			}
			if store.Cover(100) == nil || store.Flush() == nil {
				t.Error("a halted store promises durability")
			}
			st, err := s.agrees(store)
			switch {
			case name == "unknown kind of command":
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("a read of a state without its last entries: %+v, %v", st, err)
				}
				if _, _, err := store.Query(shortQueries(t, s)[0]); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("a short read of it: %v", err)
				}
			case err != nil || st.Applied != s.last(11) || st.Covered == 100:
				t.Errorf("the state is at %+v, %v", st, err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Reads concurrent with the machine see whole entries, also during an exchange of the store.
func TestReadsBesideApplyAndRestore(t *testing.T) {
	s := newScript(t, 6, 400)
	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 300, 20)
	var content bytes.Buffer
	if _, err := source.WriteContent(&content); err != nil {
		t.Fatal(err)
	}
	store := open(t, vfs.NewMem(), "state", true)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	reads := make([]int, 4)
	for i := range reads {
		readers.Add(1)
		go func() {
			defer readers.Done()
			last := uint64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				// One view, so index, checksum and content are of one state.
				if err := store.View(func(r state.Reader) error {
					applied, err := state.MetaNumber(r, state.MetaApplied)
					if err != nil {
						return err
					}
					n, ok := s.position(applied)
					if !ok || applied < last {
						return fmt.Errorf("applied %d after %d", applied, last)
					}
					last = applied
					sum, err := state.MetaNumber(r, state.MetaChecksum)
					if err == nil && n > 0 && sum != s.checksums[n-1] {
						err = fmt.Errorf("at %d the checksum is %x, not %x", applied, sum, s.checksums[n-1])
					}
					if err == nil && n > 0 && reads[i]%16 == 0 && len(contentOf(r)) != len(contentOf(s.states[n-1])) {
						err = fmt.Errorf("at %d the state is not whole", applied)
					}
					return err
				}); err != nil {
					t.Errorf("read: %v", err)
					return
				}
				reads[i]++
			}
		}()
	}
	s.apply(t, store, 0, 200, 3)
	if err := store.Restore(io.NopCloser(bytes.NewReader(content.Bytes()))); err != nil {
		t.Error(err)
	}
	s.apply(t, store, 250, 400, 3) // the log may repeat what the content had
	close(stop)
	readers.Wait()
	if st, err := s.agrees(store); err != nil || st.Applied != s.last(400) || st.Received != s.last(300) {
		t.Errorf("at last: %+v, %v", st, err)
	}
}

// Query answers with the index of the state it read.
func TestQuery(t *testing.T) {
	s := newScript(t, 7, 30)
	store := open(t, vfs.NewMem(), "state", true)
	for n := range s.logs {
		s.apply(t, store, n, n+1, 1)
		reply, index, err := store.Query(&commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{Limit: 1000}}})
		if err != nil || index != s.last(n+1) {
			t.Fatalf("after entry %d: index %d, %v", n, index, err)
		}
		want, err := query.Answer(s.states[n], 0, &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{Limit: 1000}}})
		if err != nil || !proto.Equal(reply, want) {
			t.Fatalf("after entry %d: %v, a replay has %v (%v)", n, reply, want, err)
		}
	}
}

func TestEntryRoundTrip(t *testing.T) {
	e := &commandv1.Entry{TimeMs: 5, Commands: []*commandv1.Command{{Namespace: ns, Id: "x", Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: 3}}}}}
	b, err := EncodeEntry(e)
	if err != nil || b[0] != entryFormat {
		t.Fatalf("%x, %v", b, err)
	}
	again, err := EncodeEntry(e)
	if err != nil || !bytes.Equal(b, again) {
		t.Fatalf("the same entry gives %x and %x (%v)", b, again, err)
	}
	back, err := DecodeEntry(b)
	if err != nil || !proto.Equal(back, e) {
		t.Fatalf("%v, %v", back, err)
	}
}
