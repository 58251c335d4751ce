package disk

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"perdure/internal/testkit"
)

// soon bounds every wait; it is used up by a failure only.
const soon = time.Minute

// smallDisk is a file system in memory of which a test says how much is free. While it is full, writes of files that
// match fail with ENOSPC.
type smallDisk struct {
	vfs.FS
	free   atomic.Int64
	full   atomic.Bool
	match  func(errorfs.Op) bool
	failed atomic.Int64
}

func newSmallDisk(free int64) *smallDisk {
	d := &smallDisk{match: func(errorfs.Op) bool { return true }}
	d.free.Store(free)
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !d.full.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || !d.match(op) {
			return nil
		}
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpMkdirAll:
			d.failed.Add(1)
			return syscall.ENOSPC
		}
		return nil
	}))
	return d
}

func (d *smallDisk) usage() (free, total int64, err error) { return d.free.Load(), 1 << 40, nil }

func (d *smallDisk) guard(reserve int64) *Guard {
	return New(Options{FS: d.FS, Dir: "", Reserve: reserve, Usage: d.usage})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	testkit.Eventually(t, soon, what, is, nil)
}

func TestLevels(t *testing.T) {
	d := newSmallDisk(0)
	g := d.guard(100)
	for _, c := range []struct {
		free int64
		want Level
	}{
		{1000, OK}, {200, OK}, {199, Low}, {200, Low}, {224, Low}, {225, OK}, // an eighth more to leave it
		{150, Low}, {99, Critical}, {100, Critical}, {112, Low}, {49, Full}, {55, Full}, {56, Critical}, {300, OK}, {0, Full},
	} {
		d.free.Store(c.free)
		if got := g.Measure(); got != c.want || g.Level() != c.want {
			t.Errorf("%d free: %v, want %v", c.free, got, c.want)
		}
	}
	for _, c := range []struct{ total, want int64 }{{1 << 30, MinReserve}, {20 << 30, (20 << 30) / 100}, {1 << 40, MaxReserve}} {
		g := New(Options{FS: d.FS, Usage: func() (int64, int64, error) { return c.total, c.total, nil }})
		if g.Measure(); g.Status().Reserve != c.want {
			t.Errorf("a disk of %d bytes has a reserve of %d, want %d", c.total, g.Status().Reserve, c.want)
		}
	}
	unmeasurable := New(Options{FS: vfs.NewMem(), Dir: "", Reserve: 100}) // it has no free space to report
	if err := unmeasurable.Check(1<<50, Low); err != nil || unmeasurable.Measure() != OK {
		t.Errorf("a file system without a report of free space: %v, %v", unmeasurable.Measure(), err)
	}
}

// TestScarce: below three times the reserve nothing is made that can be made again, and what was made is removed. Growth passes
// still.
func TestScarce(t *testing.T) {
	const reserve = 1 << 20
	d := newSmallDisk(3 * reserve)
	g := d.guard(reserve)
	if level := g.Measure(); level != OK || g.Scarce() || g.CheckSpare(0) != nil {
		t.Errorf("with three times the reserve: %v, scarce: %t, %v", level, g.Scarce(), g.CheckSpare(0))
	}
	if err := g.CheckSpare(1); !IsFull(err) {
		t.Errorf("a byte too many: %v", err)
	}
	d.free.Store(3*reserve - 1)
	if level := g.Measure(); level != OK || !g.Scarce() || !IsFull(g.CheckSpare(0)) || g.Check(1<<10, Low) != nil {
		t.Errorf("with less than that: %v, scarce: %t, %v, growth: %v", level, g.Scarce(), g.CheckSpare(0), g.Check(1<<10, Low))
	}
	if g := New(Options{FS: vfs.NewMem(), Dir: "", Reserve: reserve}); g.Measure() != OK || g.Scarce() || g.CheckSpare(1) != nil {
		t.Error("space that cannot be measured is scarce")
	}
}

// TestAdmit: what was admitted and is not written yet counts as used, so a burst does not pass a mark.
func TestAdmit(t *testing.T) {
	d := newSmallDisk(1050)
	g := d.guard(100)
	var admitted atomic.Int64
	var releases []func()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			release, err := g.Admit(100, Full)
			if err != nil {
				var full *FullError
				if !errors.As(err, &full) || !IsFull(err) || !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%v", err)
				}
				return
			}
			admitted.Add(1)
			mu.Lock()
			defer mu.Unlock()
			releases = append(releases, release)
		})
	}
	all.Wait()
	if admitted.Load() != 10 {
		t.Errorf("%d writes of 100 bytes were admitted: 1050 are free, and 50 must stay so", admitted.Load())
	}
	for _, release := range releases {
		release()
	}
	if err := g.Check(1000, Full); err != nil {
		t.Errorf("after they were written elsewhere: %v", err)
	}
}

// TestElectionsInVirtualTime: elections get an eighth of the reserve at once, and an eighth more in an hour.
func TestElectionsInVirtualTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		d := newSmallDisk(1000)
		g := d.guard(800)
		taken := func() (n int) {
			for {
				release, err := g.AdmitElection(10)
				var full *FullError
				if errors.As(err, &full) && full.Spent {
					return n
				}
				if err != nil || n > 100 {
					t.Fatalf("%d entries, %v", n, err)
				}
				release()
				n++
			}
		}
		if n := taken(); n != 10 {
			t.Errorf("%d entries at once, want 10", n)
		}
		for range 60 {
			testkit.Advance(time.Minute) // a look each minute must not lose what a minute earns
			_, _ = g.AdmitElection(101)
		}
		if n := taken(); n < 8 || n > 10 {
			t.Errorf("%d entries in the hour after, want 10", n)
		}
		testkit.Advance(1000 * time.Hour)
		if n := taken(); n != 10 {
			t.Errorf("%d entries after many hours, want 10", n)
		}
		testkit.Advance(time.Hour)
		d.free.Store(209)
		if _, err := g.AdmitElection(10); !IsFull(err) {
			t.Errorf("an entry beyond a quarter of the reserve: %v", err)
		}
		if _, err := g.AdmitCatchUp(10); !IsFull(err) {
			t.Errorf("an entry beyond half of the reserve: %v", err)
		}
	})
}

// TestReserve: the reserve is made when there is ample space, given up for a write that must be done, and made again.
func TestReserve(t *testing.T) {
	t.Parallel() // it waits most of the time
	d := newSmallDisk(10 << 20)
	g := d.guard(1 << 20)
	g.Run()
	defer g.Close()
	held := func() bool { _, err := d.Stat(ReserveFile); return err == nil && g.Status().Held }
	if !held() {
		t.Fatal("no reserve was made")
	}
	d.free.Store(0)
	d.full.Store(true)
	d.match = func(errorfs.Op) bool { _, err := d.Stat(ReserveFile); return err == nil } // it fits when the reserve is gone
	f, err := g.FS().Create("seal", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("something")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Stat(ReserveFile); err == nil || g.Status().Held {
		t.Error("the reserve is still there")
	}
	d.full.Store(false)
	d.free.Store(10 << 20)
	eventually(t, "the reserve to be made again", held)
}

// openPebble opens a store on a guarded disk. fatal gets the errors after which Pebble cannot continue.
func openPebble(t *testing.T, g *Guard, wal bool) (db *pebble.DB, fatal, background chan string) {
	t.Helper()
	fatal, background = make(chan string, 1), make(chan string, 1)
	db, err := pebble.Open("db", &pebble.Options{FS: g.FS(), DisableWAL: !wal, MemTableSize: 64 << 10, Logger: logger{fatal},
		EventListener: &pebble.EventListener{BackgroundError: func(err error) {
			if !IsFull(err) {
				err = fmt.Errorf("not for want of space: %w", err)
			}
			select {
			case background <- err.Error():
			default:
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	return db, fatal, background
}

type logger struct{ fatal chan string }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}
func (l logger) Fatalf(format string, args ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, args...):
	default:
	}
	select {}
}

// TestLogWriteWaits: a record of a write-ahead log that meets a full disk waits, and is there when there is space.
// TestSyncs: each synced write counts, and a write without a sync does not.
func TestSyncs(t *testing.T) {
	g := newSmallDisk(1 << 30).guard(1 << 20)
	f, err := g.FS().Create("f", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write([]byte("a"))
	if err := errors.Join(err, f.Sync(), f.SyncData()); err != nil || g.Syncs() != 2 {
		t.Errorf("%d syncs, %v", g.Syncs(), err)
	}
	_, err = f.Write([]byte("b"))
	if err := errors.Join(err, f.Close()); err != nil || g.Syncs() != 2 {
		t.Errorf("%d syncs, %v", g.Syncs(), err)
	}
}

func TestLogWriteWaits(t *testing.T) {
	t.Parallel() // it waits most of the time
	d := newSmallDisk(1 << 30)
	g := d.guard(1 << 20)
	g.Run()
	defer g.Close()
	db, fatal, _ := openPebble(t, g, true)
	if err := db.Set([]byte("a"), []byte("1"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	d.free.Store(0)
	d.full.Store(true)
	done := make(chan error, 1)
	go func() { done <- db.Set([]byte("b"), []byte(strings.Repeat("2", 5000)), pebble.Sync) }()
	eventually(t, "the write to meet the full disk, and wait", func() bool { return len(fatal) > 0 || d.failed.Load() > 2 && g.Status().Waiting > 0 })
	select {
	case err := <-done:
		t.Fatalf("it was answered on a full disk: %v", err)
	case text := <-fatal:
		t.Fatalf("it ends the process: %s", text)
	default:
	}
	d.full.Store(false)
	d.free.Store(1 << 30)
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case text := <-fatal:
		t.Fatalf("it ends the process: %s", text)
	case <-time.After(soon):
		t.Fatal("it is not answered although there is space")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, _, _ = openPebble(t, g, true)
	for key, want := range map[string]int{"a": 1, "b": 5000} {
		value, closer, err := db.Get([]byte(key))
		if err != nil || len(value) != want {
			t.Errorf("%s: %d bytes, %v", key, len(value), err)
		}
		if err == nil {
			_ = closer.Close()
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTryWriteAt: a write that need not be fails on a full disk at once, and the reserve stays.
func TestTryWriteAt(t *testing.T) {
	d := newSmallDisk(1 << 30)
	g := d.guard(1 << 20)
	g.Run()
	defer g.Close()
	f, err := g.FS().Create("000001.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	try := f.(interface {
		TryWriteAt(b []byte, at int64) (int, error)
	})
	if n, err := try.TryWriteAt([]byte("abc"), 2); n != 3 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	eventually(t, "the reserve", func() bool { return g.Status().Held })
	d.full.Store(true)
	if n, err := try.TryWriteAt([]byte("def"), 5); n != 0 || !IsFull(err) {
		t.Errorf("on a full disk: %d bytes, %v", n, err)
	}
	if st := g.Status(); st.Waiting != 0 || !st.Held {
		t.Errorf("%+v: it waits, or the reserve is gone", st)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestFlushWaits: a memtable that finds no space stays in memory, and is flushed when there is some. A
// compaction leaves more free than a flush does.
func TestFlushWaits(t *testing.T) {
	t.Parallel() // it waits most of the time
	d := newSmallDisk(1 << 30)
	g := d.guard(10 << 20)
	g.Run()
	defer g.Close()
	db, fatal, background := openPebble(t, g, false)
	if err := db.Set([]byte("a"), []byte("1"), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	d.free.Store(g.Status().Reserve / 4)
	flushed, err := db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-background:
		if strings.HasPrefix(text, "not for want") {
			t.Fatal(text)
		}
	case <-flushed:
		t.Fatal("it was flushed into the last of the space")
	case text := <-fatal:
		t.Fatalf("it ends the process: %s", text)
	case <-time.After(soon):
		t.Fatal("no flush was tried")
	}
	d.free.Store(1 << 30)
	select {
	case <-flushed:
	case text := <-fatal:
		t.Fatalf("it ends the process: %s", text)
	case <-time.After(soon):
		t.Fatal("it is not flushed although there is space")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d.free.Store(8 << 20) // below R, above R/2
	for category, want := range map[vfs.DiskWriteCategory]bool{"pebble-memtable-flush": true, "pebble-compaction": false} {
		f, err := g.FS().Create("000001.sst", category)
		if (err == nil) != want {
			t.Errorf("%s with less than the reserve free: %v", category, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}
