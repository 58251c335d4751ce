package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/state"
)

func contentOfStore(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	size, err := s.WriteContent(&b)
	if err != nil || size != int64(b.Len()) {
		t.Fatalf("%d bytes written, %d returned, %v", b.Len(), size, err)
	}
	return b.Bytes()
}

// A store's exported content makes any other store equal to it, whatever that held before.
func TestContentRoundTrip(t *testing.T) {
	s := newScript(t, 11, 300)
	lengths := []int{0, 1, 150, 300}
	if testing.Short() {
		lengths = []int{0, 150}
	}
	for _, upTo := range lengths {
		source := open(t, vfs.NewMem(), "source", true)
		s.apply(t, source, 0, upTo, 25)
		content := contentOfStore(t, source)
		if again := contentOfStore(t, source); !bytes.Equal(content, again) {
			t.Fatal("the same state has two contents")
		}
		for _, had := range []int{0, 90} {
			fs := vfs.NewMem()
			store := open(t, fs, "state", true)
			s.apply(t, store, 0, had, 10)
			if err := store.Restore(io.NopCloser(bytes.NewReader(content))); err != nil {
				t.Fatal(err)
			}
			st, err := s.agrees(store)
			if err != nil || st.Applied != s.last(upTo) || st.Received != s.last(upTo) {
				t.Fatalf("%d entries over %d: %+v, %v", upTo, had, st, err)
			}
			if again := contentOfStore(t, store); !bytes.Equal(content, again) {
				t.Fatalf("%d entries over %d: it exports another content", upTo, had)
			}
			// The store continues from there, with its own stamp, and durably.
			s.apply(t, store, max(0, upTo-5), 300, 10)
			if st, err = s.agrees(store); err != nil || st.Applied != s.last(300) {
				t.Fatalf("and then: %+v, %v", st, err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if st, err = Inspect("state", newWatcher().options(fs, false)); err != nil || st.Received != s.last(upTo) {
				t.Fatalf("closed: %+v, %v", st, err)
			}
		}
	}
}

// The covered index goes along, since what the sender has covered the content covers too.
func TestContentBringsCovered(t *testing.T) {
	s := newScript(t, 12, 40)
	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 40, 10)
	if err := source.Cover(s.last(40) + 3); err != nil {
		t.Fatal(err)
	}
	store := open(t, vfs.NewMem(), "state", true)
	if err := store.Restore(io.NopCloser(bytes.NewReader(contentOfStore(t, source)))); err != nil {
		t.Fatal(err)
	}
	if st, err := store.Status(); err != nil || st.Covered != s.last(40)+3 {
		t.Errorf("%+v, %v", st, err)
	}
}

// Content that was damaged or cut on its way is refused, and the present state stays in use.
func TestDamagedContent(t *testing.T) {
	s := newScript(t, 13, 60)
	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 40, 10)
	content := contentOfStore(t, source)
	fs := vfs.NewMem()
	store := open(t, fs, "state", true)
	s.apply(t, store, 0, 20, 5)
	refuse := func(name string, b []byte) {
		t.Helper()
		err := store.Restore(io.NopCloser(bytes.NewReader(b)))
		var damaged *DamagedError
		if !errors.As(err, &damaged) || !strings.Contains(err.Error(), "snapshot content") {
			t.Fatalf("%s: %v", name, err)
		}
		if st, err := store.Status(); err != nil || st.Applied != s.last(20) {
			t.Fatalf("%s: then the store is at %+v, %v", name, st, err)
		}
		if _, err := fs.Stat("state.incoming"); err == nil {
			t.Fatalf("%s: its remains stay", name)
		}
	}
	rng := rand.New(rand.NewPCG(13, 13))
	for _, at := range positions(rng, len(content), 150) {
		refuse(fmt.Sprintf("byte %d of %d", at, len(content)), flipped(content, at))
	}
	for _, to := range positions(rng, len(content), 60) {
		refuse(fmt.Sprintf("cut at %d of %d", to, len(content)), content[:to])
	}
	if testing.Short() {
		return
	}
	// A length beyond any that is written, under a good checksum.
	huge := binary.BigEndian.AppendUint32([]byte(contentMagic), maxContentKV+1)
	huge = append(huge, make([]byte, 4)...)
	refuse("a huge key", binary.BigEndian.AppendUint64(huge, xxhash.Sum64(huge)))
	refuse("something else", []byte("PK\x03\x04 is not one of ours"))
	// The state is still whole and in service.
	s.apply(t, store, 15, 60, 7)
	if st, err := s.agrees(store); err != nil || st.Applied != s.last(60) {
		t.Errorf("at last: %+v, %v", st, err)
	}
}

func flipped(b []byte, at int) []byte {
	out := bytes.Clone(b)
	out[at] ^= 1 << (at % 8)
	return out
}

// positions are the first and last few of n, and some between.
func positions(rng *rand.Rand, n, some int) []int {
	if testing.Short() {
		some /= 5
	}
	var out []int
	for k := range min(n, 20) {
		out = append(out, k, n-1-k)
	}
	for range some {
		out = append(out, rng.IntN(n))
	}
	return out
}

// brokenWriter fails after some bytes.
type brokenWriter struct{ left int }

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errors.New("the line is dead")
	}
	return len(b), nil
}

// A receiver that goes away is no fault of the store.
func TestContentToBrokenWriter(t *testing.T) {
	s := newScript(t, 14, 200)
	store := open(t, vfs.NewMem(), "state", true)
	s.apply(t, store, 0, 200, 20)
	size := len(contentOfStore(t, store))
	for _, left := range []int{0, 10, size - 1} {
		if _, err := store.WriteContent(&brokenWriter{left}); err == nil || !strings.Contains(err.Error(), "the line is dead") {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
	if _, err := store.WriteContent(&brokenWriter{size}); err != nil {
		t.Error(err)
	}
	if st, err := s.agrees(store); err != nil || st.Applied != s.last(200) {
		t.Errorf("%+v, %v", st, err)
	}
}

// Recover finishes an exchange that had moved the old store away, and undoes one that had not.
func TestRecover(t *testing.T) {
	s := newScript(t, 15, 60)
	const dir = "data/state"
	for _, c := range []struct {
		name string
		has  []string // of "", ".incoming", ".retired"
		want uint64   // applied index of what is found, 0 for none
	}{
		{"nothing", nil, 0},
		{"a store", []string{""}, s.last(20)},
		{"a store, and a new one being filled", []string{"", ".incoming"}, s.last(20)},
		{"the old one moved away, the new one complete", []string{".incoming", ".retired"}, s.last(40)},
		{"the new one in place, the old one not removed", []string{"", ".retired"}, s.last(20)},
		{"a new one being filled and no store: it was never this one's", []string{".incoming"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			if err := fs.MkdirAll("data", 0o755); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range c.has {
				upTo := map[string]int{"": 20, ".incoming": 40, ".retired": 60}[suffix]
				store := open(t, fs, dir+suffix, true)
				s.apply(t, store, 0, upTo, 10)
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // twice is once
				if err := Recover(fs, dir); err != nil {
					t.Fatal(err)
				}
				for _, suffix := range []string{".incoming", ".retired"} {
					if _, err := fs.Stat(dir + suffix); err == nil {
						t.Errorf("%s is left", dir+suffix)
					}
				}
			}
			st, err := Inspect(dir, newWatcher().options(fs, false))
			var missing *MissingError
			if c.want == 0 && !errors.As(err, &missing) || c.want != 0 && (err != nil || st.Applied != c.want) {
				t.Errorf("found %+v, %v; want applied %d", st, err, c.want)
			}
		})
	}
}

// Snapshot's content is empty: the state is its own, made durable by Cover.
func TestSnapshotIsAMarker(t *testing.T) {
	store := open(t, vfs.NewMem(), "state", true)
	snap, err := store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	sink := &markedSink{}
	if err := snap.Persist(sink); err != nil || !sink.closed || sink.written > 0 {
		t.Errorf("%+v, %v", sink, err)
	}
	snap.Release()
	_ = store.View(func(state.Reader) error { return nil })
}

type markedSink struct {
	written int
	closed  bool
}

func (s *markedSink) Write(b []byte) (int, error) { s.written += len(b); return len(b), nil }
func (s *markedSink) Close() error                { s.closed = true; return nil }
func (s *markedSink) ID() string                  { return "1-1-1" }
func (s *markedSink) Cancel() error               { return nil }
