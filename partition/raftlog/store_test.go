package raftlog_test

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

// opener opens a store of a backend in dir; a failed write fails the test.
func opener(t testing.TB, dir string, opts raftlog.Options) logtest.Opener {
	opts.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	opts.MemTableBytes = 1 << 20
	return func(create bool) (*raftlog.Store, error) {
		opts.MustCreate = create
		return raftlog.Open(dir, opts)
	}
}

func TestPebbleInMemory(t *testing.T) {
	logtest.Run(t, func(t testing.TB) logtest.Opener {
		return opener(t, "data/raftlog", raftlog.Options{FS: vfs.NewMem()})
	})
}

func TestPebble(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	logtest.Run(t, func(t testing.TB) logtest.Opener {
		return opener(t, filepath.Join(t.TempDir(), "raftlog"), raftlog.Options{MustExist: false})
	})
}

func TestBoltDB(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	logtest.Run(t, func(t testing.TB) logtest.Opener {
		return opener(t, filepath.Join(t.TempDir(), "raftlog"), raftlog.Options{Backend: raftlog.BoltDB})
	})
}
