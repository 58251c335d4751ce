package raftlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/internal/crashfs"
	"perdure/internal/fsync"
	"perdure/internal/testkit"
	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

// TestPowerLoss crashes a store again and again while groups append, truncate and compact, during flushes and
// compactions. Every clone must open (nothing legitimate is taken for damage), without holes, with every
// entry that was acknowledged, and accept further writes.
func TestPowerLoss(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	fs := crashfs.New()
	rng := rand.New(rand.NewPCG(11, 12))
	const groups, crashes = 4, 25
	create := true
	for n := range crashes {
		s, err := raftlog.Open("log", raftlog.Options{FS: fs, MustCreate: create, MemTableBytes: 64 << 10,
			OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
		if err != nil {
			t.Fatalf("crash %d: %v", n, err)
		}
		if create {
			if err := s.SetStamp([]byte("c/s")); err != nil {
				t.Fatal(err)
			}
			create = false
		}
		if b, ok := s.Stamp(); !ok || string(b) != "c/s" {
			t.Fatalf("crash %d: stamp %q, %v", n, b, ok)
		}
		if _, err := s.Verify(context.Background()); err != nil {
			t.Fatalf("crash %d: %v", n, err)
		}
		// The entries that must be there, at both ends. In odd rounds tails are truncated; then the end moves
		// both ways and is not checked.
		var acked, floor [groups]atomic.Uint64
		var done atomic.Uint64
		stop, further := make(chan struct{}), make(chan struct{}, 1)
		poke := func() {
			select {
			case further <- struct{}{}:
			default:
			}
		}
		var wg sync.WaitGroup
		for g := range uint32(groups) {
			seed := rng.Uint64()
			l := s.Group(g)
			last, lastErr := l.LastIndex()
			first, firstErr := l.FirstIndex()
			if err := errors.Join(firstErr, lastErr); err != nil {
				t.Fatal(err)
			}
			conflicts := n%2 == 1
			if !conflicts {
				acked[g].Store(last)
			}
			floor[g].Store(max(first, 1))
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 1))
				for {
					select {
					case <-stop:
						return
					default:
					}
					var err error
					switch k := rng.IntN(20); {
					case k == 0 && conflicts && last > first+10:
						// A conflict: the tail goes, another comes.
						err = l.DeleteRange(last-4, last)
						last -= 5
					case k == 1 && last > first+200:
						floor[g].Store(first + 101)
						err = l.DeleteRange(first, first+100)
						first += 101
					default:
						if last == 0 {
							first = 1
						}
						m := uint64(rng.IntN(20)) + 1
						if err = l.StoreLogs(logtest.Entries(g, last+1, last+m, 1)); err == nil {
							last += m
							if !conflicts {
								acked[g].Store(last)
							}
						}
					}
					if err != nil {
						t.Errorf("group %d: %v", g, err)
						poke()
						return
					}
					done.Add(1)
					poke()
				}
			})
		}
		for want := uint64(rng.IntN(400)); done.Load() < want && !t.Failed(); {
			<-further
		}
		var must [groups]uint64
		for g := range must {
			must[g] = acked[g].Load()
		}
		next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[n%3], RNG: rng})
		var low [groups]uint64
		for g := range low {
			low[g] = floor[g].Load()
		}
		close(stop)
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		check(t, next, n, must[:], low[:])
		fs = next
	}
}

// check opens a copy, so that the clone itself is opened once, by the next round.
func check(t *testing.T, fs *crashfs.FS, n int, must, low []uint64) {
	t.Helper()
	copied := fs.CrashClone(vfs.CrashCloneCfg{})
	s, err := raftlog.Open("log", raftlog.Options{FS: copied, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatalf("crash %d: %v", n, err)
	}
	defer s.Close()
	if _, err := s.Verify(context.Background()); err != nil {
		t.Fatalf("crash %d: %v", n, err)
	}
	for g := range must {
		last, err := s.Group(uint32(g)).LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		if last < must[g] {
			t.Fatalf("crash %d: group %d ends at %d, %d were acknowledged", n, g, last, must[g])
		}
		first, err := s.Group(uint32(g)).FirstIndex()
		if err != nil || (last != 0 && first > low[g]) {
			t.Fatalf("crash %d: group %d begins at %d (%v), only what is below %d was deleted", n, g, first, err, low[g])
		}
		for i := first; i <= last && i != 0; i++ {
			var got raft.Log
			if err := s.Group(uint32(g)).GetLog(i, &got); err != nil {
				t.Fatal(err)
			}
			if !logtest.Equal(&got, logtest.Entry(uint32(g), i, 1)) {
				t.Fatalf("crash %d: group %d, index %d: %+v", n, g, i, got)
			}
		}
	}
}

// TestCrashWhileCreating crashes at every step of making a store: each clone can be made again, and none
// is taken for a store that exists.
func TestCrashWhileCreating(t *testing.T) {
	var clones []*crashfs.FS
	mem := crashfs.New()
	rng := rand.New(rand.NewPCG(21, 22))
	fs := &stepFS{FS: mem, step: func() {
		clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rng}))
	}}
	s, err := raftlog.Open("a/log", raftlog.Options{FS: fs, MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	fs.rest() // the seal may still be at work
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(clones) < 10 {
		t.Fatalf("only %d steps", len(clones))
	}
	for n, c := range clones {
		fatal := func(err error) { t.Errorf("fatal: %v", err) }
		s, err := raftlog.Open("a/log", raftlog.Options{FS: c.CrashClone(vfs.CrashCloneCfg{}), MustExist: true, OnFatal: fatal})
		var missing *raftlog.MissingError
		if err == nil {
			// Complete: it must be empty and unstamped.
			if gs, err := s.Groups(); err != nil || len(gs) != 0 {
				t.Fatalf("step %d: groups %v, %v", n, gs, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.As(err, &missing) {
			t.Fatalf("step %d: %v, want *MissingError", n, err)
		}
		s, err = raftlog.Open("a/log", raftlog.Options{FS: c, MustCreate: true, OnFatal: fatal})
		if err != nil {
			t.Fatalf("step %d: cannot be made again: %v", n, err)
		}
		if err := s.Group(1).StoreLogs(logtest.Entries(1, 1, 3, 1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d steps", len(clones))
}

// TestCrashWhileOpening crashes at every step of opening and closing a store that was closed or crashed.
func TestCrashWhileOpening(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			mem := crashfs.New()
			s, want := filled(t, mem)
			crashed := mem.CrashClone(vfs.CrashCloneCfg{})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if !clean {
				mem = crashed
			}
			rng := rand.New(rand.NewPCG(31, 32))
			var clones []*crashfs.FS
			// All or nothing of what is not synced: Pebble relies on names reaching the disk in the order they
			// were made (a marker after the MANIFEST it names), as journaling file systems have it.
			fs := &stepFS{FS: mem, step: func() {
				clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(2) * 100, RNG: rng}))
			}}
			s, err := raftlog.Open(damageDir, raftlog.Options{FS: fs, MemTableBytes: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for n, c := range clones {
				if n%testkit.Choose(4, 1, 1) != 0 {
					continue
				}
				if got, err := outcome(t, c, want); got != "same" {
					t.Fatalf("step %d of %d: %s: %v", n, len(clones), got, err)
				}
			}
			t.Logf("%d steps", len(clones))
		})
	}
}

// TestCrashBetweenLogs crashes where opening a store has removed the write-ahead log of before, which it has
// flushed, and has not made the next one. Nothing is missing.
func TestCrashBetweenLogs(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			mem := crashfs.New()
			s, want := filled(t, mem)
			crashed := mem.CrashClone(vfs.CrashCloneCfg{})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if !clean {
				mem = crashed
			}
			fs := &betweenFS{FS: mem, t: t, removed: make(chan struct{}, 1)}
			if s, err := raftlog.Open(damageDir, raftlog.Options{FS: fs}); err != nil {
				t.Fatal(err)
			} else if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if fs.between == nil {
				t.Fatal("no log was made")
			}
			if got, err := outcome(t, fs.between, want); got != "same" {
				t.Fatalf("%s: %v", got, err)
			}
		})
	}
}

// betweenFS makes the first log when all others are removed, and keeps what was there in between.
type betweenFS struct {
	vfs.FS
	t       *testing.T
	removed chan struct{} // something was
	between *crashfs.FS
}

func (f *betweenFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".log") && f.between == nil {
		for deadline := time.After(time.Minute); !f.t.Failed() && f.logs(f.PathDir(name)) > 0; {
			select {
			case <-f.removed:
			case <-deadline:
				f.t.Error("the logs of before are not removed")
			}
		}
		if err := fsync.SyncDir(f.FS, f.PathDir(name)); err != nil { // a disk may do so of its own accord
			f.t.Error(err)
		}
		f.between = f.FS.(*crashfs.FS).CrashClone(vfs.CrashCloneCfg{})
	}
	return f.FS.Create(name, c)
}

func (f *betweenFS) logs(dir string) (n int) {
	names, err := f.List(dir)
	if err != nil {
		f.t.Error(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			n++
		}
	}
	return n
}

func (f *betweenFS) Remove(name string) error {
	err := f.FS.Remove(name)
	if strings.HasSuffix(name, ".log") {
		select {
		case f.removed <- struct{}{}:
		default:
		}
	}
	return err
}

// stepFS calls step before each change of the file system.
type stepFS struct {
	vfs.FS
	mu   sync.Mutex
	step func()
}

func (f *stepFS) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step()
}

// rest ends the calls of step.
func (f *stepFS) rest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step = func() {}
}

func (f *stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.tick()
	file, err := f.FS.Create(name, c)
	return &stepFile{file, f}, err
}

func (f *stepFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.tick()
	file, err := f.FS.ReuseForWrite(from, to, c)
	return &stepFile{file, f}, err
}

func (f *stepFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return &stepFile{file, f}, err
}

func (f *stepFS) Rename(from, to string) error {
	f.tick()
	return f.FS.Rename(from, to)
}

func (f *stepFS) Remove(name string) error {
	f.tick()
	return f.FS.Remove(name)
}

func (f *stepFS) MkdirAll(dir string, perm os.FileMode) error {
	f.tick()
	return f.FS.MkdirAll(dir, perm)
}

type stepFile struct {
	vfs.File
	fs *stepFS
}

func (f *stepFile) Sync() error {
	f.fs.tick()
	err := f.File.Sync()
	f.fs.tick()
	return err
}

func (f *stepFile) SyncData() error {
	f.fs.tick()
	err := f.File.SyncData()
	f.fs.tick()
	return err
}
