package raftlog_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

// OnSync reports each call that has stored entries, with the time of the sync, and of no other.
func TestOnSync(t *testing.T) {
	fs := &failFS{FS: vfs.NewMem()}
	for _, c := range []struct {
		dir  string
		opts raftlog.Options
		slow time.Duration
	}{
		{"log", raftlog.Options{FS: fs}, 20 * time.Millisecond},
		{filepath.Join(t.TempDir(), "log"), raftlog.Options{Backend: raftlog.BoltDB}, 0},
	} {
		var reported []time.Duration
		c.opts.MustCreate = true
		c.opts.OnFatal = func(error) {}
		c.opts.OnSync = func(d time.Duration) { reported = append(reported, d) }
		s, err := raftlog.Open(c.dir, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(what string, calls int, least time.Duration, err error, wanted bool) {
			t.Helper()
			if (err == nil) != wanted {
				t.Fatalf("%s: %s: %v", s.Backend(), what, err)
			}
			if len(reported) != calls {
				t.Fatalf("%s: %s: reported %v, want %d", s.Backend(), what, reported, calls)
			}
			for _, d := range reported {
				if d < least || d > time.Minute {
					t.Errorf("%s: %s: it took %v, want at least %v", s.Backend(), what, d, least)
				}
			}
			reported = nil
		}
		log := s.Group(3)
		expect("nothing yet", 0, 0, nil, true)
		fs.slow.Store(int64(c.slow))
		expect("one entry", 1, c.slow, log.StoreLog(logtest.Entry(3, 1, 1)), true)
		expect("several", 1, c.slow, log.StoreLogs(logtest.Entries(3, 2, 9, 1)), true)
		expect("none", 0, 0, log.StoreLogs(nil), true)
		fs.slow.Store(0)
		var order *raftlog.OrderError
		err = log.StoreLog(logtest.Entry(3, 4, 1))
		expect("an entry that is there", 0, 0, err, false)
		if !errors.As(err, &order) {
			t.Error(err)
		}
		expect("entries removed", 0, 0, log.DeleteRange(1, 2), true)
		if c.slow > 0 {
			fs.broken.Store(true)
			expect("an entry that is lost", 0, 0, log.StoreLog(logtest.Entry(3, 10, 1)), false)
		}
		_ = s.Close()
	}
}
