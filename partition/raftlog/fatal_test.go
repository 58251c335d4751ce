package raftlog_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

var errDisk = errors.New("the disk is gone")

// failFS fails syncs of write-ahead logs once broken is set, counts those that succeed, and has them take
// as long as slow says.
type failFS struct {
	vfs.FS
	broken atomic.Bool
	syncs  atomic.Int64
	slow   atomic.Int64
}

func (f *failFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return &failFile{file, f}, nil
}

func (f *failFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

func (f *failFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to, c)
	return f.wrap(to, file, err)
}

type failFile struct {
	vfs.File
	fs *failFS
}

func (f *failFile) sync(do func() error) error {
	if f.fs.broken.Load() {
		return errDisk
	}
	f.fs.syncs.Add(1)
	if slow := f.fs.slow.Load(); slow > 0 {
		<-time.After(time.Duration(slow))
	}
	return do()
}

func (f *failFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *failFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *failFile) SyncTo(length int64) (bool, error) {
	if f.fs.broken.Load() {
		return false, errDisk
	}
	return f.File.SyncTo(length)
}

// TestFailedSync: the caller gets the error, every later call gets it too, and OnFatal is called once.
func TestFailedSync(t *testing.T) {
	fs := &failFS{FS: vfs.NewMem()}
	var calls atomic.Int64
	var reported error
	s, err := raftlog.Open("log", raftlog.Options{FS: fs, MustCreate: true, OnFatal: func(err error) {
		calls.Add(1)
		reported = err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Group(1).StoreLog(logtest.Entry(1, 1, 1)); err != nil {
		t.Fatal(err)
	}
	fs.broken.Store(true)
	err = s.Group(1).StoreLog(logtest.Entry(1, 2, 1))
	var fatal *raftlog.FatalError
	if !errors.As(err, &fatal) || !strings.Contains(err.Error(), errDisk.Error()) {
		t.Fatalf("StoreLog on a broken disk: %v", err)
	}
	fs.broken.Store(false)
	for name, err := range map[string]error{
		"StoreLog":    s.Group(2).StoreLog(logtest.Entry(2, 1, 1)),
		"DeleteRange": s.Group(1).DeleteRange(1, 1),
		"SetStamp":    s.SetStamp([]byte("x")),
	} {
		if !errors.As(err, &fatal) {
			t.Errorf("%s after the failure: %v, want *FatalError", name, err)
		}
	}
	if _, err := s.Group(1).LastIndex(); !errors.As(err, &fatal) {
		t.Errorf("LastIndex after the failure: %v", err)
	}
	if calls.Load() != 1 || !errors.As(reported, &fatal) {
		t.Errorf("OnFatal was called %d times, with %v", calls.Load(), reported)
	}
	_ = s.Close()
}

// TestFailedSyncEndsTheProcess runs the default OnFatal in a process of its own.
func TestFailedSyncEndsTheProcess(t *testing.T) {
	const env = "RAFTLOG_TEST_FAIL"
	if os.Getenv(env) != "" {
		fs := &failFS{FS: vfs.NewMem()}
		s, err := raftlog.Open("log", raftlog.Options{FS: fs, MustCreate: true})
		if err != nil {
			t.Fatal(err)
		}
		fs.broken.Store(true)
		_ = s.Group(1).StoreLog(logtest.Entry(1, 1, 1))
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFailedSyncEndsTheProcess$")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), errDisk.Error()) {
		t.Fatalf("process ended with %v:\n%s", err, out)
	}
}

// TestGroupsShareSyncs: what makes one store per node worth it.
func TestGroupsShareSyncs(t *testing.T) {
	fs := &failFS{FS: vfs.Default}
	s, err := raftlog.Open(t.TempDir()+"/log", raftlog.Options{FS: fs, MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const groups, rounds = 32, 20
	fs.slow.Store(int64(5 * time.Millisecond)) // the others come while one syncs, however fast the disk is
	before := fs.syncs.Load()
	errs := make(chan error, groups)
	for g := range uint32(groups) {
		go func() {
			var err error
			for i := uint64(1); i <= rounds && err == nil; i++ {
				err = s.Group(g).StoreLog(logtest.Entry(g, i, 1))
			}
			errs <- err
		}()
	}
	for range groups {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	syncs := fs.syncs.Load() - before
	t.Logf("%d commits, %d syncs", groups*rounds, syncs)
	if syncs < rounds || syncs > groups*rounds/2 {
		t.Errorf("%d syncs for %d commits of %d groups", syncs, groups*rounds, groups)
	}
}
