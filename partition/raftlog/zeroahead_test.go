package raftlog

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/hashicorp/raft"

	"perdure/internal/crashfs"
)

// sizeFS notes the sizes that syncs find a log to have. Its files refuse WriteAt with fail, if that is set.
type sizeFS struct {
	vfs.FS
	sizes []int64
	fail  error
}

func (fs *sizeFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return &sizeFile{f, fs}, err
}

func (fs *sizeFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return &sizeFile{f, fs}, err
}

type sizeFile struct {
	vfs.File
	fs *sizeFS
}

func (f *sizeFile) SyncData() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	f.fs.sizes = append(f.fs.sizes, info.Size())
	return f.File.SyncData()
}

func (f *sizeFile) Sync() error { return f.SyncData() }

func (f *sizeFile) WriteAt(b []byte, at int64) (int, error) {
	if f.fs.fail != nil {
		return 0, f.fs.fail
	}
	return f.File.WriteAt(b, at)
}

// waitingFS is a full disk: its files' WriteAt would wait for space for ever.
type waitingFS struct{ vfs.FS }

func (fs waitingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return waitingFile{f}, err
}

type waitingFile struct{ vfs.File }

func (waitingFile) WriteAt([]byte, int64) (int, error) { panic("it would wait") }

func (waitingFile) TryWriteAt([]byte, int64) (int, error) { return 0, syscall.ENOSPC }

// TestZeroAheadDoesNotWait: on a full disk zeros are left out, where other writes wait for space.
func TestZeroAheadDoesNotWait(t *testing.T) {
	fs := vfs.NewMem()
	f, err := zeroAheadFS{waitingFS{fs}}.Create("000004.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	all := appendAll(t, f, 3*zeroAfter, 100)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, fs, "000004.log"); !bytes.Equal(got, all) {
		t.Errorf("the log has %d bytes, not the %d that were written", len(got), len(all))
	}
}

// growths counts how often the size changed from one sync to the next.
func (fs *sizeFS) growths() (n int) {
	last := int64(0)
	for _, size := range fs.sizes {
		if size != last {
			n++
		}
		last = size
	}
	return n
}

// appendAll appends pieces of bytes, each with a sync, and returns the whole.
func appendAll(t *testing.T, f vfs.File, pieces, size int) (all []byte) {
	t.Helper()
	for n := range pieces {
		piece := bytes.Repeat([]byte{byte(n%250 + 1)}, size)
		all = append(all, piece...) // Write may change piece, with the race detector
		if _, err := f.Write(piece); err != nil {
			t.Fatal(err)
		}
		sync := f.SyncData
		if n%2 == 0 {
			sync = f.Sync
		}
		if err := sync(); err != nil {
			t.Fatalf("sync %d: %v", n, err)
		}
	}
	return all
}

func content(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestZeroAhead: the syncs of a log that is written in small pieces seldom make the file longer. What was written is there, and zeros
// or what was in the file before follow.
func TestZeroAhead(t *testing.T) {
	const before = 1 << 20 // bytes of a file that is reused
	for _, c := range []struct {
		name, file   string
		pieces, size int
		reuse        bool
		fail         error
		want         int   // growths
		length       int64 // of the file
	}{
		{name: "small", file: "000004.log", pieces: 1000, size: 1000, want: 7, length: 793_000 + zeroBytes},
		{name: "few", file: "000004.log", pieces: zeroAfter - 1, size: 1000, want: zeroAfter - 1, length: (zeroAfter - 1) * 1000},
		{name: "large", file: "000004.log", pieces: 100, size: zeroSmall + 1, want: 100, length: 100 * (zeroSmall + 1)},
		{name: "no log", file: "000004.sst", pieces: 100, size: 1000, want: 100, length: 100_000},
		{name: "reused", file: "000004.log", pieces: 1000, size: 1000, reuse: true, want: 1, length: before},
		{name: "full disk", file: "000004.log", pieces: 100, size: 1000, fail: syscall.ENOSPC, want: 100, length: 100_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			below := &sizeFS{FS: vfs.NewMem(), fail: c.fail}
			fs := zeroAheadFS{below}
			var rest []byte
			open := func() (vfs.File, error) { return fs.Create(c.file, vfs.WriteCategoryUnspecified) }
			if c.reuse {
				rest = bytes.Repeat([]byte{255}, before)
				old, err := below.FS.Create("000003.log", vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := old.Write(bytes.Clone(rest)); err != nil {
					t.Fatal(err)
				}
				if err := old.Close(); err != nil {
					t.Fatal(err)
				}
				open = func() (vfs.File, error) { return fs.ReuseForWrite("000003.log", c.file, vfs.WriteCategoryUnspecified) }
			}
			f, err := open()
			if err != nil {
				t.Fatal(err)
			}
			all := appendAll(t, f, c.pieces, c.size)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := below.growths(); got != c.want {
				t.Errorf("the file grew at %d syncs, not at %d", got, c.want)
			}
			got := content(t, below, c.file)
			if int64(len(got)) != c.length {
				t.Fatalf("%d bytes, not %d", len(got), c.length)
			}
			if !bytes.Equal(got[:len(all)], all) {
				t.Fatal("what was written is not there")
			}
			if rest == nil {
				rest = make([]byte, len(got))
			}
			if tail := got[len(all):]; !bytes.Equal(tail, rest[len(rest)-len(tail):]) {
				t.Error("something else follows what was written")
			}
		})
	}
}

// TestZeroAheadFails: a disk that refuses the zeros for another reason than space fails the sync.
func TestZeroAheadFails(t *testing.T) {
	below := &sizeFS{FS: vfs.NewMem(), fail: syscall.EIO}
	f, err := zeroAheadFS{below}.Create("000004.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= zeroAfter; n++ {
		if _, err := f.Write([]byte("record")); err != nil {
			t.Fatal(err)
		}
		if err := f.SyncData(); (err != nil) != (n == zeroAfter) || (err != nil && !errors.Is(err, syscall.EIO)) {
			t.Fatalf("sync %d: %v", n, err)
		}
	}
}

// TestZeroAheadOfStore: the log of a store that is open ends in zeros, and a store that crashed so opens with all entries.
func TestZeroAheadOfStore(t *testing.T) {
	mem := crashfs.New()
	fatal := func(err error) { t.Errorf("fatal: %v", err) }
	s, err := Open("log", Options{FS: mem, MustCreate: true, OnFatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	const entries = 20
	for i := uint64(1); i <= entries; i++ {
		if err := s.Group(1).StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: []byte("command")}); err != nil {
			t.Fatal(err)
		}
	}
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := wal.Scan(wal.Dir{FS: crashed, Dirname: s.dbDir(crashed)})
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	_, path := logs[0].SegmentLocation(0)
	if b := content(t, crashed, path); len(b) < zeroBytes || len(bytes.TrimRight(b, "\x00")) > len(b)-zeroBytes/2 {
		t.Errorf("the log has %d bytes, %d of them records", len(b), len(bytes.TrimRight(b, "\x00")))
	}
	s, err = Open("log", Options{FS: crashed, OnFatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	if last, err := s.Group(1).LastIndex(); err != nil || last != entries {
		t.Errorf("the last entry is %d, %v", last, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
