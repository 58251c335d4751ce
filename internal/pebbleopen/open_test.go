package pebbleopen

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// soon bounds every wait; it only matters when something is wrong.
const soon = time.Minute

var errDisk = errors.New("no space left on device")

// backlog is a disk with a database that needs a compaction when it is opened, as a crash may leave one.
func backlog(t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	db, err := pebble.Open("db", &pebble.Options{FS: mem, Logger: newListener(), DisableAutomaticCompactions: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 { // twice what sets a compaction off
		err = errors.Join(err, db.Set([]byte("key"), []byte("value"), pebble.NoSync), db.Flush())
	}
	if files := db.Metrics().Levels[0].TablesCount; err != nil || files < 8 {
		t.Fatalf("%d files wait to be compacted: %v", files, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return mem
}

// A listener receives Pebble's log lines. Pebble calls Fatalf when it cannot continue, and then hangs.
type listener struct{ fatal chan struct{} }

func newListener() *listener { return &listener{make(chan struct{}, 1)} }

func (*listener) Infof(string, ...any)  {}
func (*listener) Errorf(string, ...any) {}

func (l *listener) Fatalf(string, ...any) {
	select {
	case l.fatal <- struct{}{}:
	default:
	}
}

// TestFailedOpen: for each write of an opening that fails, there is an error, or Pebble has reported that it
// cannot continue; nothing is written after the error, and nothing panics. A database that opens is
// compacted.
func TestFailedOpen(t *testing.T) {
	mem := backlog(t)
	refused, hung, opened := 0, 0, 0
	var late atomic.Int64 // changes to the files of a database that was refused
	for n, failed := int64(1), true; failed; n++ {
		var left atomic.Int64
		var broken, over atomic.Bool
		left.Store(n)
		fs := errorfs.Wrap(mem.CrashClone(vfs.CrashCloneCfg{}), errorfs.InjectorFunc(func(op errorfs.Op) error {
			// A directory that cannot be synced is the one failure that Pebble ends the process for.
			syncsDir := op.Kind == errorfs.OpFileSync && op.Path == "db"
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || syncsDir {
				return nil
			}
			if over.Load() {
				late.Add(1)
			}
			if left.Add(-1) == 0 {
				broken.Store(true)
				return errDisk
			}
			return nil
		}))
		said := newListener()
		type answer struct {
			db  *pebble.DB
			err error
		}
		done := make(chan answer, 1)
		go func() {
			db, err := open(fs, said)
			done <- answer{db, err}
		}()
		deadline := time.After(soon)
		select {
		case a := <-done:
			if a.err != nil {
				over.Store(true)
				if !broken.Load() {
					t.Fatalf("change %d: %v", n, a.err)
				}
				refused++
				continue
			}
			opened++
			if err := compacted(a.db, said, deadline); err != nil {
				t.Fatalf("change %d: %v", n, err)
			}
			if broken.Load() {
				continue // what is open on a broken disk may never close
			}
			err := a.db.Close()
			if failed = broken.Load(); err != nil && !failed {
				t.Fatal(err)
			}
		case <-said.fatal:
			hung++
		case <-deadline:
			t.Fatalf("change %d: it does not open, and nothing is said", n)
		}
	}
	t.Logf("refused %d, hung %d, opened %d times", refused, hung, opened)
	if refused < 5 {
		t.Errorf("refused %d times only", refused)
	}
	if late.Load() > 0 {
		t.Errorf("%d changes to databases that had been refused", late.Load())
	}
}

// open is Open; a panic of its own, which some failures make, is an error like others.
func open(fs vfs.FS, said *listener) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("it panicked: %v", r)
		}
	}()
	return Open("db", &pebble.Options{FS: fs, Logger: said})
}

// compacted waits for a database to be compacted, or to have failed.
func compacted(db *pebble.DB, said *listener, deadline <-chan time.Time) error {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for db.Metrics().Compact.Count == 0 {
		select {
		case <-again.C:
		case <-said.fatal:
			return nil
		case <-deadline:
			return fmt.Errorf("it is not compacted:\n%v", db.Metrics())
		}
	}
	return nil
}
