package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
)

const dir = "group-1/markers"

// caller is the environment of a store: the state that it covers, and the contents that it received.
type caller struct {
	fs      vfs.FS
	covered uint64
	refuse  error // of Cover, Commit

	places    map[string]*place
	discarded []string
	content   func(Marker) (io.ReadCloser, int64, error)
}

type place struct {
	bytes.Buffer
	c                  *caller
	committed, aborted bool
	failAt             int
}

func (p *place) Write(b []byte) (int, error) {
	if p.failAt > 0 && p.Len()+len(b) >= p.failAt {
		return 0, errors.New("no space")
	}
	return p.Buffer.Write(b)
}

func (p *place) Commit() error {
	if p.committed || p.aborted {
		panic("committed twice")
	}
	if p.c.refuse != nil {
		return p.c.refuse
	}
	p.committed = true
	return nil
}

func (p *place) Abort() error {
	if p.committed || p.aborted {
		panic("aborted twice")
	}
	p.aborted = true
	return nil
}

func newCaller(fs vfs.FS) *caller {
	return &caller{fs: fs, places: map[string]*place{}, content: func(m Marker) (io.ReadCloser, int64, error) {
		s := "state covering " + m.ID
		return io.NopCloser(strings.NewReader(s)), int64(len(s)), nil
	}}
}

func (c *caller) options(create bool) Options {
	return Options{
		Group: 1, FS: c.fs, MustCreate: create,
		Cover: func(m Marker) error {
			if c.refuse != nil {
				return c.refuse
			}
			c.covered = m.Index
			return nil
		},
		Content: func(m Marker) (io.ReadCloser, int64, error) { return c.content(m) },
		Receive: func(m Marker) (Receiver, error) {
			if m.Origin != Received {
				return nil, fmt.Errorf("asked to receive a %s marker", m.Origin)
			}
			p := &place{c: c}
			c.places[m.ID] = p
			return p, nil
		},
		Discard: func(m Marker) { c.discarded = append(c.discarded, m.ID) },
	}
}

func (c *caller) open(t testing.TB, create bool) *Store {
	t.Helper()
	s, err := Open(dir, c.options(create))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var servers = raft.Configuration{Servers: []raft.Server{
	{ID: "n1-a", Address: "10.0.0.1:7402"}, {ID: "n2-b", Address: "10.0.0.2:7402"},
	{Suffrage: raft.Nonvoter, ID: "n3-c", Address: "10.0.0.3:7402"},
}}

func create(t testing.TB, s *Store, index uint64) raft.SnapshotSink {
	t.Helper()
	k, err := s.Create(1, index, 3, servers, index-1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// local makes a marker as Raft does for its own state.
func local(t testing.TB, s *Store, index uint64) {
	t.Helper()
	if err := create(t, s, index).Close(); err != nil {
		t.Fatal(err)
	}
}

// receive makes one as Raft does when content arrives.
func receive(t testing.TB, s *Store, index uint64, content string) string {
	t.Helper()
	k := create(t, s, index)
	if n, err := io.Copy(k, strings.NewReader(content)); err != nil || n != int64(len(content)) {
		t.Fatalf("copied %d, %v", n, err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	return k.ID()
}

func indexes(s *Store) string {
	var out []string
	for _, m := range s.Markers() {
		out = append(out, fmt.Sprintf("%d %s", m.Index, m.Origin))
	}
	return strings.Join(out, ", ")
}

func want(t testing.TB, s *Store, markers string) {
	t.Helper()
	if got := indexes(s); got != markers {
		t.Fatalf("markers are %q, want %q", got, markers)
	}
}

func TestLocal(t *testing.T) {
	c := newCaller(vfs.NewMem())
	s := c.open(t, true)
	want(t, s, "")
	k := create(t, s, 10)
	want(t, s, "") // not before Close
	if c.covered != 0 {
		t.Fatal("covered before Close")
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Cancel(); err != nil {
		t.Fatal(err)
	}
	if c.covered != 10 || len(c.places) != 0 {
		t.Fatalf("covered %d, places %v", c.covered, c.places)
	}
	want(t, s, "10 local")
	metas, err := s.List()
	if err != nil || len(metas) != 1 {
		t.Fatal(metas, err)
	}
	m := metas[0]
	if m.Index != 10 || m.Term != 3 || m.Version != 1 || m.ConfigurationIndex != 9 || fmt.Sprint(m.Configuration) != fmt.Sprint(servers) || m.ID != k.ID() {
		t.Fatalf("%+v", m)
	}
	local(t, s, 20)
	local(t, s, 30)
	want(t, s, "30 local, 20 local") // two remain
	s = c.open(t, false)
	want(t, s, "30 local, 20 local")
	if again := s.Markers()[0]; fmt.Sprint(again.Configuration) != fmt.Sprint(servers) || again.ConfigurationIndex != 29 {
		t.Fatalf("%+v", again)
	}
	// A number is not used twice, also after a restart.
	if k := create(t, s, 30); k.ID() == s.Markers()[0].ID {
		t.Fatalf("id %s again", k.ID())
	}
}

func TestOpenContent(t *testing.T) {
	c := newCaller(vfs.NewMem())
	s := c.open(t, true)
	local(t, s, 10)
	id := s.Markers()[0].ID
	meta, r, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r)
	if string(b) != "state covering "+id || meta.Size != int64(len(b)) || meta.Index != 10 {
		t.Fatalf("%q, %+v", b, meta)
	}
	if m, ok := MarkerOf(r); !ok || m.ID != id || m.Origin != Local {
		t.Fatalf("%+v, %v", m, ok)
	}
	if m, ok := MarkerOf(wrapper{wrapper{r}}); !ok || m.ID != id {
		t.Fatalf("through wrappers: %+v, %v", m, ok)
	}
	if _, ok := MarkerOf(io.NopCloser(strings.NewReader(""))); ok {
		t.Fatal("a foreign reader has a marker")
	}
	var none *NotFoundError
	if _, _, err := s.Open("1-2-3"); !errors.As(err, &none) {
		t.Fatalf("unknown id: %v", err)
	}
	broken := errors.New("no checkpoint")
	c.content = func(Marker) (io.ReadCloser, int64, error) { return nil, 0, broken }
	if _, _, err := s.Open(id); !errors.Is(err, broken) {
		t.Fatalf("%v", err)
	}
	c.content = func(Marker) (io.ReadCloser, int64, error) { return io.NopCloser(strings.NewReader("")), 0, nil }
	var empty *EmptyError
	if _, _, err := s.Open(id); !errors.As(err, &empty) {
		t.Fatalf("empty content: %v", err)
	}
}

// Raft closes what the state machine has closed.
func TestContentIsClosedOnce(t *testing.T) {
	c := newCaller(vfs.NewMem())
	s := c.open(t, true)
	local(t, s, 10)
	opened := &closeCounter{Reader: strings.NewReader("state")}
	c.content = func(Marker) (io.ReadCloser, int64, error) { return opened, 5, nil }
	_, r, err := s.Open(s.Markers()[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); !errors.Is(err, errClosing) {
			t.Errorf("closing: %v", err)
		}
	}
	if opened.closed != 1 {
		t.Errorf("closed %d times", opened.closed)
	}
}

var errClosing = errors.New("closed, with a fault")

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return errClosing }

// wrapper is what Raft puts around a reader.
type wrapper struct{ io.ReadCloser }

func (w wrapper) WrappedReadCloser() io.ReadCloser { return w.ReadCloser }

func TestReceived(t *testing.T) {
	c := newCaller(vfs.NewMem())
	s := c.open(t, true)
	local(t, s, 5)
	id := receive(t, s, 100, "the state of another")
	if c.covered != 5 {
		t.Fatal("a received snapshot covered the local state")
	}
	if p := c.places[id]; p == nil || !p.committed || p.String() != "the state of another" {
		t.Fatalf("%+v", c.places)
	}
	want(t, s, "100 received, 5 local")
	if s.Markers()[0].Size != 20 {
		t.Fatalf("size %d", s.Markers()[0].Size)
	}
	s = c.open(t, false)
	want(t, s, "100 received, 5 local")
	local(t, s, 110)
	if len(c.discarded) != 0 {
		t.Fatalf("discarded %v", c.discarded)
	}
	local(t, s, 120)
	want(t, s, "120 local, 110 local")
	if fmt.Sprint(c.discarded) != fmt.Sprint([]string{id}) {
		t.Fatalf("discarded %v, want %s", c.discarded, id)
	}
	// Plain writes count as content too.
	k := create(t, s, 200)
	for _, part := range []string{"a", "bc"} {
		if _, err := io.WriteString(k, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, s, "200 received, 120 local")
	if _, err := k.Write([]byte("x")); err == nil {
		t.Fatal("write after Close")
	}
}

func TestNothingIsListed(t *testing.T) {
	boom := errors.New("boom")
	for name, run := range map[string]func(t *testing.T, c *caller, s *Store){
		"cancelled before content": func(t *testing.T, c *caller, s *Store) {
			k := create(t, s, 10)
			if err := errors.Join(k.Cancel(), k.Cancel()); err != nil {
				t.Fatal(err)
			}
			if k.Close() == nil {
				t.Fatal("closed after Cancel")
			}
		},
		"cancelled within content": func(t *testing.T, c *caller, s *Store) {
			k := create(t, s, 10)
			_, _ = io.Copy(k, strings.NewReader("half"))
			if err := k.Cancel(); err != nil {
				t.Fatal(err)
			}
			if !c.places[k.ID()].aborted {
				t.Fatal("content stays")
			}
		},
		"empty content": func(t *testing.T, c *caller, s *Store) {
			k := create(t, s, 10)
			// As Raft copies: from a reader that can do nothing but read.
			if _, err := io.Copy(k, struct{ io.Reader }{strings.NewReader("")}); err != nil {
				t.Fatal(err)
			}
			var empty *EmptyError
			if err := k.Close(); !errors.As(err, &empty) || c.covered != 0 || !c.places[k.ID()].aborted {
				t.Fatalf("%v, covered %d", err, c.covered)
			}
		},
		"the state cannot cover": func(t *testing.T, c *caller, s *Store) {
			c.refuse = boom
			k := create(t, s, 10)
			if err := k.Close(); !errors.Is(err, boom) {
				t.Fatal(err)
			}
			if err := k.Close(); !errors.Is(err, boom) {
				t.Fatal("the second Close forgets the first")
			}
		},
		"the content is refused": func(t *testing.T, c *caller, s *Store) {
			c.refuse = boom
			k := create(t, s, 10)
			_, _ = io.Copy(k, strings.NewReader("content"))
			if err := k.Close(); !errors.Is(err, boom) {
				t.Fatal(err)
			}
		},
		"the content cannot be written": func(t *testing.T, c *caller, s *Store) {
			k := create(t, s, 10)
			_, _ = k.Write([]byte("abc"))
			c.places[k.ID()].failAt = 5
			if _, err := io.Copy(k, strings.NewReader("defgh")); err == nil {
				t.Fatal("a failed write passed")
			}
			if err := k.Close(); err == nil || !c.places[k.ID()].aborted {
				t.Fatalf("%v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCaller(vfs.NewMem())
			s := c.open(t, true)
			local(t, s, 5)
			c.covered = 0
			run(t, c, s)
			want(t, s, "5 local")
			c.refuse = nil
			want(t, c.open(t, false), "5 local")
		})
	}
}

func TestDirectory(t *testing.T) {
	c := newCaller(vfs.NewMem())
	var missing *MissingError
	if _, err := Open(dir, c.options(false)); !errors.As(err, &missing) {
		t.Fatalf("missing directory: %v", err)
	}
	s := c.open(t, true)
	c.open(t, true) // still empty
	local(t, s, 5)
	var exists *ExistsError
	if _, err := Open(dir, c.options(true)); !errors.As(err, &exists) {
		t.Fatalf("create over markers: %v", err)
	}
	for _, o := range []func(*Options){func(o *Options) { o.Cover = nil }, func(o *Options) { o.Content = nil }, func(o *Options) { o.Receive = nil }} {
		opts := c.options(false)
		o(&opts)
		if _, err := Open(dir, opts); err == nil {
			t.Error("accepted without a function")
		}
	}
	// Another group's marker is not taken for one's own.
	opts := c.options(false)
	opts.Group = 2
	var corrupt *CorruptError
	if _, err := Open(dir, opts); !errors.As(err, &corrupt) {
		t.Fatalf("marker of another group: %v", err)
	}
	// On the real file system too.
	real := newCaller(vfs.Default)
	path := filepath.Join(t.TempDir(), "a", "b")
	rs, err := Open(path, real.options(true))
	if err != nil {
		t.Fatal(err)
	}
	local(t, rs, 7)
	if rs, err = Open(path, real.options(false)); err != nil {
		t.Fatal(err)
	}
	want(t, rs, "7 local")
	if names, err := os.ReadDir(path); err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
}

// TestDamage flips and cuts every byte of a marker; each is refused by name.
func TestDamage(t *testing.T) {
	c := newCaller(vfs.NewMem())
	s := c.open(t, true)
	local(t, s, 5)
	path := c.fs.PathJoin(dir, fileStem(1)+markerSuffix)
	good := readFile(t, c.fs, path)
	refused := func(what string, b []byte) {
		t.Helper()
		writeFile(t, c.fs, path, b)
		var corrupt *CorruptError
		if _, err := Open(dir, c.options(false)); !errors.As(err, &corrupt) || corrupt.File != path {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		refused(fmt.Sprintf("byte %d", at), bad)
		refused(fmt.Sprintf("cut to %d", at), good[:at])
	}
	refused("longer", append(bytes.Clone(good), 0))
	writeFile(t, c.fs, path, good)
	want(t, c.open(t, false), "5 local")
	// Under another's name.
	other := c.fs.PathJoin(dir, fileStem(2)+markerSuffix)
	writeFile(t, c.fs, other, good)
	var corrupt *CorruptError
	if _, err := Open(dir, c.options(false)); !errors.As(err, &corrupt) {
		t.Fatalf("marker under another name: %v", err)
	}
}

func readFile(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	// The memory file system scrambles what it was given, when built with the race detector.
	if _, err := f.Write(bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// stepFS calls step before and after each change.
type stepFS struct {
	vfs.FS
	step func() error
}

func (f *stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return &stepFile{file, f}, err
}

func (f *stepFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return &stepFile{file, f}, err
}

func (f *stepFS) Rename(from, to string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *stepFS) Remove(name string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *stepFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir, perm)
}

type stepFile struct {
	vfs.File
	fs *stepFS
}

func (f *stepFile) Write(b []byte) (int, error) {
	if err := f.fs.step(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f *stepFile) Sync() error {
	if err := f.fs.step(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestCrashAtEveryStep: at every moment, the markers are the old ones, or the old and the new, or the new
// ones; none was lost that was listed before and not yet retired; and the store still works.
func TestCrashAtEveryStep(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("unsynced=%d", percent), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			rng := rand.New(rand.NewPCG(1, uint64(percent)))
			type clone struct {
				fs      *vfs.MemFS
				durable uint64 // newest index whose Close had returned
				begun   uint64 // newest index begun
			}
			var clones []clone
			var durable, begun uint64
			fs := &stepFS{FS: mem}
			fs.step = func() error {
				clones = append(clones, clone{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), durable, begun})
				return nil
			}
			c := newCaller(fs)
			s := c.open(t, true)
			made := len(clones)
			for _, index := range []uint64{10, 20, 30, 40} {
				begun = index
				if index == 30 {
					receive(t, s, index, "content")
				} else {
					local(t, s, index)
				}
				durable = index
			}
			_ = fs.step()
			for n, cl := range clones {
				c := newCaller(cl.fs)
				s, err := Open(dir, c.options(false))
				var missing *MissingError
				if errors.As(err, &missing) && n <= made {
					continue // the directory is being made
				}
				if err != nil {
					t.Fatalf("step %d: %v", n, err)
				}
				ms := s.Markers()
				newest := uint64(0)
				if len(ms) > 0 {
					newest = ms[0].Index
				}
				if newest < cl.durable || newest > cl.begun {
					t.Fatalf("step %d: newest is %d; %d was durable, %d begun", n, newest, cl.durable, cl.begun)
				}
				local(t, s, 50)
				want50 := "50 local"
				if got := indexes(c.open(t, false)); !strings.HasPrefix(got, want50) || len(strings.Split(got, ",")) > keep {
					t.Fatalf("step %d: afterwards %q", n, got)
				}
				if names, err := cl.fs.List(dir); err != nil || len(names) > keep {
					t.Fatalf("step %d: files %v, %v", n, names, err)
				}
			}
			t.Logf("%d steps", len(clones))
		})
	}
}

// TestFailureAtEveryStep: an error of the file system at any step of making a marker is reported, lists
// nothing, and the next marker works.
func TestFailureAtEveryStep(t *testing.T) {
	boom := errors.New("boom")
	for failAt := 0; ; failAt++ {
		mem := vfs.NewMem()
		fs := &stepFS{FS: mem, step: func() error { return nil }}
		c := newCaller(fs)
		s := c.open(t, true)
		local(t, s, 10)
		n := 0
		fs.step = func() error {
			n++
			if n == failAt+1 {
				return boom
			}
			return nil
		}
		err := create(t, s, 20).Close()
		fs.step = func() error { return nil }
		if err == nil {
			if n > failAt {
				t.Fatalf("failure at step %d was not reported", failAt)
			}
			if failAt < 4 {
				t.Fatalf("only %d steps", failAt)
			}
			return
		}
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		want(t, s, "10 local")
		local(t, s, 30)
		want(t, s, "30 local, 10 local")
		want(t, c.open(t, false), "30 local, 10 local")
	}
}

func FuzzDecodeMarker(f *testing.F) {
	m := Marker{Origin: Local, Seq: 3, SnapshotMeta: raft.SnapshotMeta{Version: 1, Index: 5, Term: 2, Configuration: servers}}
	for _, m := range []Marker{m, {Origin: Received}} {
		b := encodeMarker(1, &m)
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := binary.BigEndian.AppendUint64(bytes.Clone(body), xxhash.Sum64(body))
		m, err := decodeMarker(1, b)
		if err == nil && !bytes.Equal(encodeMarker(1, &m), b) {
			t.Fatalf("%x is accepted, but written as %x", b, encodeMarker(1, &m))
		}
	})
}
