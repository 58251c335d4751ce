package stable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// kind is one implementation: open makes the store, again closes it and opens it as a restart would.
type kind struct {
	open  func(testing.TB) Store
	again func(testing.TB, Store) Store
}

func openFile(t testing.TB, path string, create bool) *File {
	t.Helper()
	f, err := Open(path, Options{MustCreate: create, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

var kinds = map[string]kind{
	"File": {
		open: func(t testing.TB) Store { return openFile(t, filepath.Join(t.TempDir(), "raft", "stable.bolt"), true) },
		again: func(t testing.TB, s Store) Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openFile(t, s.(*File).path, false)
		},
	},
	"Memory": {
		open:  func(testing.TB) Store { return NewMemory() },
		again: func(_ testing.TB, s Store) Store { _ = s.Close(); return s.(*Memory).Clone() },
	},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStores(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Run("Values", func(t *testing.T) { testValues(t, k) })
			t.Run("Groups", func(t *testing.T) { testGroups(t, k) })
			t.Run("Stamp", func(t *testing.T) { testStamp(t, k) })
			t.Run("Closed", func(t *testing.T) { testClosed(t, k) })
			t.Run("Concurrent", func(t *testing.T) { testConcurrent(t, k) })
			t.Run("Model", func(t *testing.T) { testModel(t, k) })
		})
	}
}

func testValues(t *testing.T, k kind) {
	s := k.open(t)
	g := s.Group(3)
	_, err := g.Get([]byte("CurrentTerm"))
	_, err64 := g.GetUint64([]byte("CurrentTerm"))
	for _, err := range []error{err, err64} {
		// Raft compares the text.
		if !errors.Is(err, ErrNotFound) || err.Error() != "not found" {
			t.Fatalf("unset key: %v", err)
		}
	}
	must(t, g.SetUint64([]byte("CurrentTerm"), 1<<63+7))
	must(t, g.Set([]byte("LastVoteCand"), []byte("n1:7402")))
	must(t, g.Set([]byte("empty"), nil))
	must(t, g.Set([]byte("LastVoteCand"), []byte("n2:7402")))
	for range 2 {
		g = s.Group(3)
		if v, err := g.GetUint64([]byte("CurrentTerm")); err != nil || v != 1<<63+7 {
			t.Fatalf("term %d, %v", v, err)
		}
		if v, err := g.Get([]byte("LastVoteCand")); err != nil || string(v) != "n2:7402" {
			t.Fatalf("vote %q, %v", v, err)
		}
		if v, err := g.Get([]byte("empty")); err != nil || len(v) != 0 {
			t.Fatalf("empty %q, %v", v, err)
		}
		if _, err := g.GetUint64([]byte("LastVoteCand")); err == nil {
			t.Fatal("a string was read as a number")
		}
		s = k.again(t, s)
	}
	// The store keeps its own bytes.
	val := []byte("mine")
	must(t, s.Group(3).Set([]byte("k"), val))
	val[0] = 'X'
	got, err := s.Group(3).Get([]byte("k"))
	must(t, err)
	got[1] = 'X'
	if again, _ := s.Group(3).Get([]byte("k")); string(again) != "mine" {
		t.Fatalf("value changed from outside: %q", again)
	}
	for _, bad := range []error{g.Set(nil, nil), g.Set(make([]byte, MaxKeyBytes+1), nil), g.Set([]byte("k"), make([]byte, MaxValueBytes+1))} {
		if bad == nil {
			t.Fatal("out of bounds, accepted")
		}
	}
}

func testGroups(t *testing.T, k kind) {
	s := k.open(t)
	for _, g := range []uint32{1<<32 - 1, 0, 256, 1} {
		must(t, s.Group(g).SetUint64([]byte("t"), uint64(g)))
	}
	must(t, s.DropGroup(256))
	must(t, s.DropGroup(77))
	for range 2 {
		if got := fmt.Sprint(s.Groups()); got != "[0 1 4294967295]" {
			t.Fatalf("groups %s", got)
		}
		if _, err := s.Group(256).Get([]byte("t")); !errors.Is(err, ErrNotFound) {
			t.Fatalf("dropped group answers: %v", err)
		}
		if v, err := s.Group(1<<32 - 1).GetUint64([]byte("t")); err != nil || v != 1<<32-1 {
			t.Fatalf("%d, %v", v, err)
		}
		s = k.again(t, s)
	}
}

func testStamp(t *testing.T, k kind) {
	s := k.open(t)
	if b, ok := s.Stamp(); ok {
		t.Fatalf("new store is stamped %q", b)
	}
	if s.SetStamp(nil) == nil {
		t.Fatal("empty stamp accepted")
	}
	must(t, s.SetStamp([]byte("c/n\x00")))
	s = k.again(t, s)
	if b, ok := s.Stamp(); !ok || string(b) != "c/n\x00" {
		t.Fatalf("stamp %q, %v", b, ok)
	}
}

func testClosed(t *testing.T, k kind) {
	s := k.open(t)
	g := s.Group(1)
	must(t, g.Set([]byte("k"), []byte("v")))
	must(t, s.Close())
	must(t, s.Close())
	_, getErr := g.Get([]byte("k"))
	for name, err := range map[string]error{"Get": getErr, "Set": g.Set([]byte("k"), nil),
		"SetStamp": s.SetStamp([]byte("x")), "DropGroup": s.DropGroup(1)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func testConcurrent(t *testing.T, k kind) {
	s := k.open(t)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range uint32(8) {
		wg.Go(func() {
			for i := range uint64(20) {
				if err := s.Group(g).SetUint64([]byte("term"), i+1); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	s = k.again(t, s)
	for g := range uint32(8) {
		if v, err := s.Group(g).GetUint64([]byte("term")); err != nil || v != 20 {
			t.Fatalf("group %d: %d, %v", g, v, err)
		}
	}
}

func testModel(t *testing.T, k kind) {
	s := k.open(t)
	twin := map[string][]byte{}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			g := rapid.Uint32Range(0, 2).Draw(rt, "group")
			key := []byte(rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(rt, "key"))
			switch rapid.IntRange(0, 8).Draw(rt, "op") {
			case 0:
				s = k.again(t, s)
			case 1:
				must(t, s.DropGroup(g))
				for _, key := range []string{"a", "b", "ab"} {
					delete(twin, fmt.Sprint(g, key))
				}
			default:
				v := rapid.SliceOf(rapid.Byte()).Draw(rt, "value")
				must(t, s.Group(g).Set(key, v))
				twin[fmt.Sprint(g, string(key))] = v
			}
			for g := range uint32(3) {
				for _, key := range []string{"a", "b", "ab"} {
					want, ok := twin[fmt.Sprint(g, key)]
					got, err := s.Group(g).Get([]byte(key))
					if ok != (err == nil) || !bytes.Equal(got, want) {
						rt.Fatalf("group %d, %s: %q, %v; want %q, %v", g, key, got, err, want, ok)
					}
				}
			}
		}
	})
}

func TestClonesAreApart(t *testing.T) {
	a := NewMemory()
	must(t, a.Group(1).Set([]byte("k"), []byte("a")))
	b := a.Clone()
	must(t, b.Group(1).Set([]byte("k"), []byte("b")))
	must(t, b.DropGroup(1))
	if v, err := a.Group(1).Get([]byte("k")); err != nil || string(v) != "a" {
		t.Fatalf("%q, %v", v, err)
	}
}

func TestCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft", "stable.bolt")
	var missing *MissingError
	if _, err := Open(path, Options{MustExist: true}); !errors.As(err, &missing) || missing.Path != path {
		t.Fatalf("missing file: %v", err)
	}
	if _, err := Open(path, Options{}); !errors.As(err, &missing) {
		t.Fatalf("missing file: %v", err)
	}
	if _, err := Open(path, Options{MustExist: true, MustCreate: true}); err == nil {
		t.Fatal("contradiction accepted")
	}
	// The files that a crash during creation leaves are replaced.
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path+".new", []byte("half a file"), 0o600))
	if _, err := Open(path, Options{MustExist: true}); !errors.As(err, &missing) {
		t.Fatalf("half made file: %v", err)
	}
	f := openFile(t, path, true)
	must(t, f.Close())
	// Made, never stamped, no value: as if not made.
	f = openFile(t, path, true)
	must(t, f.Group(0).SetUint64([]byte("CurrentTerm"), 1))
	must(t, f.Close())
	var exists *ExistsError
	if _, err := Open(path, Options{MustCreate: true}); !errors.As(err, &exists) {
		t.Fatalf("create over values: %v", err)
	}
	f = openFile(t, path, false)
	must(t, f.DropGroup(0))
	must(t, f.SetStamp([]byte("s")))
	must(t, f.Close())
	if _, err := Open(path, Options{MustCreate: true}); !errors.As(err, &exists) {
		t.Fatalf("create over a stamp: %v", err)
	}
}

// TestDamage flips bytes all over the file, cuts it and takes its record away. It is refused by name, or
// nothing changed; never an older or a missing value.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stable.bolt")
	f := openFile(t, path, true)
	must(t, f.SetStamp([]byte("cluster/server")))
	for term := range uint64(12) {
		for g := range uint32(16) {
			must(t, f.Group(g).SetUint64([]byte("CurrentTerm"), term+1))
			must(t, f.Group(g).Set([]byte("LastVoteCand"), []byte("10.0.0.1:7402")))
		}
	}
	must(t, f.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	refused, same := 0, 0
	try := func(what string, bad []byte) {
		p := filepath.Join(t.TempDir(), "bad.bolt")
		must(t, os.WriteFile(p, bad, 0o600))
		f, err := Open(p, Options{OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt):
			refused++
			return
		case err != nil:
			t.Errorf("%s: %T %v", what, err, err)
			return
		}
		defer f.Close()
		same++
		if s, ok := f.Stamp(); !ok || string(s) != "cluster/server" {
			t.Errorf("%s: stamp %q", what, s)
		}
		for g := range uint32(16) {
			if v, err := f.Group(g).GetUint64([]byte("CurrentTerm")); err != nil || v != 12 {
				t.Errorf("%s: group %d has term %d, %v", what, g, v, err)
			}
		}
	}
	rng := rand.New(rand.NewPCG(4, 4))
	page := os.Getpagesize()
	for n := range 400 {
		at := rng.IntN(len(b))
		if n%2 == 0 {
			at = rng.IntN(len(b)/page)*page + rng.IntN(96)
		}
		bad := bytes.Clone(b)
		bad[at] ^= 1 << rng.IntN(8)
		try(fmt.Sprintf("byte %d", at), bad)
	}
	t.Logf("%d refused, %d same", refused, same)
	if refused < 25 { // most of the file is free
		t.Errorf("only %d of 400 were refused", refused)
	}
	same = 0
	for _, n := range []int{0, 1, 100, page, 2 * page, 2*page + 5, 3 * page} {
		try(fmt.Sprintf("cut to %d", n), b[:n])
	}
	if same != 0 {
		t.Errorf("%d cut files were accepted", same)
	}
}

// TestFailedWrite: the caller gets the error, and every later call gets it too.
func TestFailedWrite(t *testing.T) {
	calls := 0
	f, err := Open(filepath.Join(t.TempDir(), "stable.bolt"), Options{MustCreate: true, OnFatal: func(error) { calls++ }})
	must(t, err)
	must(t, f.Group(1).SetUint64([]byte("CurrentTerm"), 4))
	must(t, f.db.Close()) // every write fails from here on
	var fatal *FatalError
	if err := f.Group(1).SetUint64([]byte("CurrentTerm"), 5); !errors.As(err, &fatal) {
		t.Fatalf("failed write: %v", err)
	}
	if _, err := f.Group(1).GetUint64([]byte("CurrentTerm")); !errors.As(err, &fatal) {
		t.Fatalf("read after a failed write: %v", err)
	}
	if err := f.Group(2).SetUint64([]byte("CurrentTerm"), 5); !errors.As(err, &fatal) || calls != 1 {
		t.Fatalf("write after a failed write: %v; OnFatal called %d times", err, calls)
	}
}

// TestRaftAcceptsIt lets the library look for state.
func TestRaftAcceptsIt(t *testing.T) {
	m := NewMemory()
	has, err := raft.HasExistingState(raft.NewInmemStore(), m.Group(1), raft.NewDiscardSnapshotStore())
	if err != nil || has {
		t.Fatalf("empty: %v, %v", has, err)
	}
	must(t, m.Group(1).SetUint64([]byte("CurrentTerm"), 2))
	if has, err = raft.HasExistingState(raft.NewInmemStore(), m.Group(1), raft.NewDiscardSnapshotStore()); err != nil || !has {
		t.Fatalf("with a term: %v, %v", has, err)
	}
	if has, err = raft.HasExistingState(raft.NewInmemStore(), m.Group(2), raft.NewDiscardSnapshotStore()); err != nil || has {
		t.Fatalf("another group: %v, %v", has, err)
	}
}

func FuzzDecodeState(f *testing.F) {
	st := newState()
	f.Add(st.encode()[:9])
	st.stamp = []byte("s")
	st.set(1, []byte("a"), []byte("v"))
	st.set(1, []byte("b"), nil)
	st.set(2, []byte("a"), []byte("w"))
	b := st.encode()
	f.Add(b[:len(b)-8])
	f.Fuzz(func(t *testing.T, body []byte) {
		b := binary.BigEndian.AppendUint64(bytes.Clone(body), xxhash.Sum64(body))
		st, err := decodeState(b)
		if err == nil && !bytes.Equal(st.encode(), b) {
			t.Fatalf("%x is accepted, but written as %x", b, st.encode())
		}
	})
}
