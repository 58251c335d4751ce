package raftlog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/internal/crashfs"
	"perdure/internal/testkit"
	"perdure/partition/grouptest"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

// seconds bounds every wait of these tests.
const seconds = 10 * time.Second

// heldLog is a store with entries 1 to 3, and 4 to 6 of group 7 written while its disk syncs nothing.
func heldLog(t *testing.T) (*crashfs.FS, *grouptest.GatedDisk, *raftlog.Store, raftlog.Log) {
	t.Helper()
	fs := crashfs.New()
	disk := grouptest.NewGatedDisk(fs)
	s, err := raftlog.Open(identity.RaftLogDir, raftlog.Options{FS: disk, MustCreate: true, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	log := s.Group(7)
	if err := log.StoreLogs(logtest.Entries(7, 1, 3, 1)); err != nil {
		t.Fatal(err)
	}
	disk.Hold()
	t.Cleanup(disk.Release)
	for _, n := range []uint64{4, 5} {
		if err := log.StoreUnsynced(logtest.Entries(7, n, n, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.StoreUnsynced(logtest.Entries(7, 6, 6, 1)); err != nil {
		t.Fatal(err)
	}
	return fs, disk, s, log
}

// waits reports a call that must not return while the disk is held, and returns a function that waits for its end.
func waits(t *testing.T, disk *grouptest.GatedDisk, what string, call func() error) (end func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	testkit.Eventually(t, seconds, "a sync is held", func() bool { return disk.Held() > 0 }, nil)
	select {
	case err := <-done:
		t.Fatalf("%s returned %v before the sync", what, err)
	case <-time.After(20 * time.Millisecond):
	}
	return func() {
		t.Helper()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(seconds):
			t.Fatalf("%s does not return after the sync", what)
		}
	}
}

// TestStoreUnsynced: the entries are there for readers before they are synced, and nothing counts them as durable:
// neither Synced nor a power loss, which leaves a log without them that opens.
func TestStoreUnsynced(t *testing.T) {
	fs, disk, s, log := heldLog(t)
	for i := uint64(1); i <= 6; i++ {
		var got raft.Log
		if err := log.GetLog(i, &got); err != nil || !logtest.Equal(&got, logtest.Entry(7, i, 1)) {
			t.Errorf("entry %d reads as %+v, %v", i, got, err)
		}
	}
	for index, want := range map[uint64]uint64{2: 2, 3: 3, 4: 3, 6: 3, 99: 3} {
		if got := log.Synced(index); got != want {
			t.Errorf("synced up to %d of %d, want %d", got, index, want)
		}
	}
	if err := log.AwaitSync(3); err != nil {
		t.Error(err)
	}
	end := waits(t, disk, "AwaitSync", func() error { return log.AwaitSync(5) })
	again, err := raftlog.Open(identity.RaftLogDir, raftlog.Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	if last, err := again.Group(7).LastIndex(); err != nil || last != 3 {
		t.Errorf("after a power loss the log ends at %d, %v, want 3", last, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	disk.Release()
	end()
	if err := log.AwaitSync(^uint64(0)); err != nil || log.Synced(99) != 99 {
		t.Errorf("all is synced, but it says %d, %v", log.Synced(99), err)
	}
	again, err = raftlog.Open(identity.RaftLogDir, raftlog.Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	if last, err := again.Group(7).LastIndex(); err != nil || last != 6 {
		t.Errorf("after the sync and a power loss the log ends at %d, %v, want 6", last, err)
	}
	if err := errors.Join(again.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestUnsyncedBeforeOthers: what relies on the end of the log waits until all of it is synced.
func TestUnsyncedBeforeOthers(t *testing.T) {
	for name, call := range map[string]func(*raftlog.Store, raftlog.Log) error{
		"StoreLogs":   func(_ *raftlog.Store, l raftlog.Log) error { return l.StoreLogs(logtest.Entries(7, 7, 8, 1)) },
		"a gap":       func(_ *raftlog.Store, l raftlog.Log) error { return l.StoreUnsynced(logtest.Entries(7, 20, 21, 1)) },
		"DeleteRange": func(_ *raftlog.Store, l raftlog.Log) error { return l.DeleteRange(5, 6) },
		"DropGroup":   func(s *raftlog.Store, _ raftlog.Log) error { return s.DropGroup(7) },
		"Close":       func(s *raftlog.Store, _ raftlog.Log) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			_, disk, s, log := heldLog(t)
			end := waits(t, disk, name, func() error { return call(s, log) })
			disk.Release()
			end()
			if got := log.Synced(99); got != 99 {
				t.Errorf("synced up to %d afterwards", got)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnsyncedFails: a sync that fails is fatal once, and never reported as success by a later call.
func TestUnsyncedFails(t *testing.T) {
	fs := &failFS{FS: vfs.NewMem()}
	fatal := 0
	s, err := raftlog.Open("log", raftlog.Options{FS: fs, MustCreate: true, OnFatal: func(error) { fatal++ }})
	if err != nil {
		t.Fatal(err)
	}
	cache := raftlog.NewCache(s.Group(7), raftlog.CacheOptions{Overlap: func() bool { return true }})
	if err := cache.StoreLogs(logtest.Entries(7, 1, 3, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cache.AwaitSync(3); err != nil {
		t.Fatal(err)
	}
	fs.broken.Store(true)
	if err := cache.StoreLogs(logtest.Entries(7, 4, 4, 1)); err == nil { // Pebble may notice at once
		for range 2 {
			var failed *raftlog.FatalError
			if err := cache.AwaitSync(4); !errors.As(err, &failed) {
				t.Errorf("a failed sync is reported as %v", err)
			}
		}
		if got := cache.Synced(4); got != 3 {
			t.Errorf("synced up to %d, want 3", got)
		}
		if err := cache.GetLog(2, new(raft.Log)); err == nil {
			t.Error("the log is read after a failed sync")
		}
	}
	if err := cache.StoreLogs(logtest.Entries(7, 5, 5, 1)); err == nil {
		t.Error("the log takes entries after a failed sync")
	}
	if fatal != 1 {
		t.Errorf("%d fatal errors, want 1", fatal)
	}
	_ = s.Close()
}

// TestOverlapOnlyCommands: only commands, and only while the caller leads, are stored without waiting for the sync.
func TestOverlapOnlyCommands(t *testing.T) {
	disk := grouptest.NewGatedDisk(vfs.NewMem())
	s, err := raftlog.Open(identity.RaftLogDir, raftlog.Options{FS: disk, MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	leads := true
	cache := raftlog.NewCache(s.Group(7), raftlog.CacheOptions{Overlap: func() bool { return leads }})
	next := uint64(0)
	entry := func(kind raft.LogType) *raft.Log {
		next++
		return &raft.Log{Index: next, Term: 1, Type: kind}
	}
	store := func(what string, waiting bool, logs ...*raft.Log) {
		t.Helper()
		disk.Hold()
		if waiting {
			end := waits(t, disk, what, func() error { return cache.StoreLogs(logs) })
			disk.Release()
			end()
			return
		}
		if err := cache.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		if synced := cache.Synced(next); synced >= logs[0].Index {
			t.Errorf("%s: synced up to %d while the disk is held", what, synced)
		}
		disk.Release()
		if err := cache.AwaitSync(next); err != nil {
			t.Fatal(err)
		}
	}
	store("no-op", true, entry(raft.LogNoop))
	store("commands", false, entry(raft.LogCommand), entry(raft.LogCommand))
	store("barrier", true, entry(raft.LogBarrier))
	store("command and configuration", true, entry(raft.LogCommand), entry(raft.LogConfiguration))
	leads = false
	store("a follower's commands", true, entry(raft.LogCommand))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
