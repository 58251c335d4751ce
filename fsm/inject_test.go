package fsm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/testkit"
)

// A disk that fails: from the n-th change on, every one, or that one only.
type brokenDisk struct {
	left    atomic.Int64
	forever bool
	failed  atomic.Bool
}

// repair lets every further change succeed, so that Pebble ends its retries.
func (d *brokenDisk) repair() { d.left.Store(math.MaxInt64) }

func (d *brokenDisk) inject(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || syncsDir(op) {
		return nil
	}
	left := d.left.Add(-1)
	if left == 0 || left < 0 && d.forever {
		d.failed.Store(true)
		return errorfs.ErrInjected
	}
	return nil
}

// syncsDir tells the one failure that Pebble ends the process for.
func syncsDir(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync && (strings.HasSuffix(op.Path, "state") || strings.HasSuffix(op.Path, ".incoming"))
}

// While a store is opened, that too is an error, and no panic.
func TestFailedDirectorySync(t *testing.T) {
	s := newScript(t, 20, 20)
	for n := range 8 {
		mem := vfs.NewMem()
		var left atomic.Int64
		left.Store(int64(n))
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if syncsDir(op) && left.Add(-1) == -1 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		w := newWatcher()
		store, err := Open("state", w.options(fs, true))
		if err != nil {
			var damaged *DamagedError
			if !errors.As(err, &damaged) || left.Load() >= 0 {
				t.Fatalf("sync %d: %v", n, err)
			}
			continue
		}
		s.apply(t, store, 0, 10, 5)
		if err := store.Close(); err != nil && left.Load() >= 0 {
			t.Fatal(err)
		}
	}
}

// backlog makes a store that needs a compaction when it is opened, as a crash may leave one.
func backlog(t *testing.T, s *script) *vfs.MemFS {
	mem := vfs.NewCrashableMem()
	store := open(t, mem, "state", true)
	s.apply(t, store, 0, len(s.logs), 10)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open("state", &pebble.Options{
		FS: mem, FormatMajorVersion: format, Logger: quiet{}, DisableWAL: true, DisableAutomaticCompactions: true,
		L0StopWritesThreshold: 2 * compactAt,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range compactAt { // twice what sets a compaction off
		err = errors.Join(err, db.Set(keys.MetaKey(metaStamp), stampOfTests, pebble.NoSync), db.Flush())
	}
	files := db.Metrics().Levels[0].TablesCount
	if err := errors.Join(err, db.Close()); err != nil || files < compactAt {
		t.Fatalf("%d files wait to be compacted: %v", files, err)
	}
	return mem
}

// A store that cannot be opened is refused by an error, and left alone from then on, also when it was about
// to be compacted. Once one is open it is compacted.
func TestFailedOpen(t *testing.T) {
	t.Cleanup(abandon)
	s := newScript(t, 23, 40)
	mem := backlog(t, s)
	refused, hung := 0, 0
	var late atomic.Int64 // changes to the files of a store that was refused
	for n, failed := int64(1), true; failed; n++ {
		disk := &brokenDisk{}
		disk.left.Store(n)
		var over atomic.Bool
		clone := mem.CrashClone(vfs.CrashCloneCfg{}) // all of it is synced
		fs := errorfs.Wrap(clone, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if over.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
				late.Add(1)
			}
			return disk.inject(op)
		}))
		w := newWatcher()
		store, err := Open("state", w.options(fs, false))
		var damaged *DamagedError
		switch {
		case errors.As(err, &damaged) && len(w.said()) > 0:
			hung++ // or is about to
		case errors.As(err, &damaged) && disk.failed.Load():
			over.Store(true)
			refused++
		case err != nil:
			t.Fatalf("change %d: %v", n, err)
		default:
			err := w.bounded(func() error { return errors.Join(compacted(store), store.Close()) })
			if failed = disk.failed.Load(); err != nil && !failed {
				t.Fatalf("change %d: %v", n, err)
			}
		}
	}
	t.Logf("refused %d times, %d times Pebble hung", refused, hung)
	if refused < 5 {
		t.Errorf("refused %d times only", refused)
	}
	if late.Load() > 0 {
		t.Errorf("%d changes to stores that had been refused", late.Load())
	}
}

// compacted waits for a store to be compacted, or to fail.
func compacted(store *Store) error {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for deadline := time.After(soon); store.failed() == nil; {
		m, err := store.Metrics()
		if err != nil {
			return err
		}
		if m.Compact.Count > 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-deadline:
			return fmt.Errorf("it is not compacted:\n%v", m)
		}
	}
	return nil
}

// errHung says that Pebble has stopped in the middle of an operation, as it does after a fatal error.
var errHung = errors.New("it did not return after the store had failed")

// bounded runs what may hang once the store has failed, and only then.
func (w *watcher) bounded(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-w.fatal:
	}
	select {
	case err := <-done:
		return err
	case <-time.After(200 * time.Millisecond):
		return errHung
	}
}

// Any failed write halts the store: it acknowledges nothing afterwards and promises no missing durability.
// The disk holds the state of a log prefix, from which a restart continues.
func TestFailedWrites(t *testing.T) {
	t.Cleanup(abandon)
	rng := seeded(t)
	s := newScript(t, 21, 160)
	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 140, 20)
	content := contentOfStore(t, source)
	rounds := cmp.Or(*failedFlag, testkit.Choose(25, 25, 140))
	halted, hung, survived := 0, 0, 0
	for round := range rounds {
		f := &failing{s: s, content: content, disk: &brokenDisk{forever: round%2 == 0}, w: newWatcher(), mem: vfs.NewCrashableMem()}
		f.disk.left.Store(1 + rng.Int64N(260))
		name := fmt.Sprintf("round %d, change %d, for good: %v", round, f.disk.left.Load(), f.disk.forever)
		if err := f.run(rng); err != nil {
			t.Fatalf("%s: %v (halted by %v)", name, err, f.w.said())
		}
		halted += count(len(f.w.said()) > 0)
		hung += count(f.hung)
		survived += count(f.disk.failed.Load() && len(f.w.said()) == 0)
	}
	t.Logf("%d rounds: %d stores halted, %d of them with Pebble hanging; %d failures were refused without halting", rounds, halted, hung, survived)
	if halted == 0 {
		t.Error("no store halted")
	}
}

// failing is one run of a store on a failing disk.
type failing struct {
	s       *script
	content []byte
	disk    *brokenDisk
	w       *watcher
	mem     *vfs.MemFS
	hung    bool
	// promised is the applied index that a Flush, Cover, Restore or Close has promised to last.
	promised uint64
	made     bool
}

func (f *failing) run(rng *rand.Rand) error {
	defer f.disk.repair()
	if err := f.live(rng); err != nil {
		return err
	}
	if !f.made {
		return nil
	}
	// The power goes too: what was promised is there, and the log brings the rest.
	for _, percent := range []int{0, 100} {
		disk := f.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		if err := f.reopen(disk); err != nil {
			return fmt.Errorf("%d %% of unsynced bytes survive: %w", percent, err)
		}
	}
	return nil
}

func (f *failing) reopen(disk vfs.FS) error {
	if err := Recover(disk, "state"); err != nil {
		return err
	}
	w := newWatcher()
	store, err := Open("state", w.options(disk, false))
	if err != nil {
		return err
	}
	st, err := f.s.agrees(store)
	if err == nil && st.Applied < f.promised {
		err = fmt.Errorf("it is at %d, %d was promised", st.Applied, f.promised)
	}
	if err == nil {
		for _, a := range store.ApplyBatch(f.s.logs) {
			if failed, is := a.(error); is {
				err = failed
			}
		}
		if _, again := f.s.agrees(store); err == nil {
			err = again
		}
	}
	return errors.Join(append(w.said(), err, store.Close())...)
}

func (f *failing) live(rng *rand.Rand) error {
	fs := errorfs.Wrap(f.mem, errorfs.InjectorFunc(f.disk.inject))
	var store *Store
	err := f.w.bounded(func() (err error) {
		store, err = Open("state", f.w.options(fs, true))
		return err
	})
	if err != nil {
		if !f.disk.failed.Load() {
			return fmt.Errorf("open: %w", err)
		}
		return nil // never made
	}
	f.made = true
	done, stopped := 0, false
	// refused notes an operation's outcome; after the store has said that it failed, none may succeed.
	outcome := func(what string, err error, halted bool) error {
		switch {
		case errors.Is(err, errHung):
			f.hung, stopped = true, true
		case err == nil && halted:
			return fmt.Errorf("%s succeeds although the store has halted", what)
		case err != nil && !f.disk.failed.Load():
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	for step := 0; !stopped && step < 60; step++ {
		halted := len(f.w.said()) > 0
		var err error
		switch n := rng.IntN(12); {
		case n < 8 && done < 140:
			upTo := min(140, done+1+rng.IntN(6))
			var answers []any
			err = f.w.bounded(func() error { answers = store.ApplyBatch(f.s.logs[done:upTo]); return nil })
			if err == nil { // otherwise the write may succeed
				failed := 0
				for _, a := range answers {
					if _, is := a.(error); is {
						failed++
					}
				}
				switch failed {
				case 0:
					done = upTo
				case len(answers):
					err = answers[0].(error)
				default:
					return fmt.Errorf("%d of %d entries of one batch failed", failed, len(answers))
				}
			}
			err = outcome("apply", err, halted)
		case n < 9:
			err = f.w.bounded(store.Flush)
			if err == nil {
				f.promised = max(f.promised, f.s.last(done))
			}
			err = outcome("flush", err, halted)
		case n < 11:
			index := f.s.last(done)
			err = f.w.bounded(func() error { return store.Cover(index) })
			if err == nil {
				f.promised = max(f.promised, index)
			}
			err = outcome("cover", err, halted)
		default:
			err = f.w.bounded(func() error { return store.Restore(io.NopCloser(bytes.NewReader(f.content))) })
			if err == nil {
				done = 140
				f.promised = f.s.last(140)
			}
			err = outcome("restore", err, halted)
		}
		if err != nil {
			return err
		}
		if halted {
			if _, err := store.Snapshot(); err == nil {
				return errors.New("a snapshot of a store that has halted")
			}
		}
		if !halted && !stopped && len(f.w.said()) == 0 {
			// Reads succeed until the store fails, which may happen in the background now.
			err := f.w.bounded(func() error { _, err := store.Status(); return err })
			if errors.Is(err, errHung) {
				f.hung, stopped = true, true
			} else if err != nil && len(f.w.said()) == 0 {
				return fmt.Errorf("status: %w", err)
			}
		}
	}
	if f.hung {
		return nil // it is left to the end of the process
	}
	halted := len(f.w.said()) > 0
	if err := f.w.bounded(store.Close); err == nil && !halted && len(f.w.said()) == 0 {
		f.promised = max(f.promised, f.s.last(done))
	} else if err != nil && !f.disk.failed.Load() {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// A disk that cannot be read any more: the read that meets it halts the store, by name.
func TestFailedReads(t *testing.T) {
	s := newScript(t, 22, 200)
	mem := vfs.NewMem()
	made := open(t, mem, "state", true)
	s.apply(t, made, 0, 200, 20)
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return errorfs.ErrInjected
		}
		return nil
	}))
	w := newWatcher()
	store, err := Open("state", w.options(fs, false))
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	err = store.View(func(r state.Reader) error {
		return r.Scan(nil, nil, func(_, _ []byte) bool { return true })
	})
	var damaged *DamagedError
	if !errors.As(err, &damaged) || damaged.Dir != "state" || !errors.Is(err, errorfs.ErrInjected) {
		t.Fatalf("the read says %v", err)
	}
	if errs := w.said(); len(errs) != 1 || !errors.As(errs[0], &damaged) {
		t.Errorf("OnFatal got: %v", errs)
	}
	for _, a := range store.ApplyBatch([]*raft.Log{{Index: 1 << 40, Type: raft.LogCommand, Data: s.logs[0].Data}}) {
		if _, failed := a.(error); !failed {
			t.Errorf("an entry is answered with %v", a)
		}
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
