package fsm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"perdure/internal/crashfs"
	"perdure/internal/fsync"
	"perdure/internal/testkit"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var (
	seedFlag   = flag.Uint64("fsm.seed", 0, "seed of the crash tests; 0 for a new one")
	failedFlag = flag.Int("fsm.failures", 0, "disks that fail in TestFailedWrites; 0 for 25 or, with -long, 140")
)

func seeded(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: go test ./fsm -run '^%s$' -fsm.seed=%d", seed, t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A crasher stands before every change of a file system and, at some of them, looks at what a power loss
// at that moment would leave.
type crasher struct {
	t   *testing.T
	mem *crashfs.FS
	// every is the mean number of changes between two looks.
	every int
	s     *script

	mu  sync.Mutex
	rng *rand.Rand
	// promised is what has been promised to last when it was last heard of: an applied index, a covered
	// one. made: the store has been opened once. restoring: a content is being put in its place.
	promised, covered uint64
	made              bool
	looks, restores   int
	behind            int // looks that found less than was applied
	reordered         int
	applied           uint64
}

func newCrasher(t *testing.T, s *script, rng *rand.Rand, every int) *crasher {
	return &crasher{t: t, mem: crashfs.New(), every: every, s: s, rng: rng}
}

func (c *crasher) fs() vfs.FS { return errorfs.Wrap(c.mem, errorfs.InjectorFunc(c.before)) }

// before implements errorfs.Injector; it injects nothing.
func (c *crasher) before(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rng.IntN(c.every) != 0 || c.t.Failed() {
		return nil
	}
	percent := []int{0, 50, 100}[c.rng.IntN(3)]
	disk := c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.rng})
	if percent == 50 && reordered(disk) {
		c.reordered++
		return nil
	}
	if err := c.look(disk); err != nil {
		c.t.Errorf("power loss before operation %d on %s, %d %% of unsynced bytes survive: %v", op.Kind, op.Path, percent, err)
	}
	return nil
}

// reordered reports whether a directory kept the file that points to a MANIFEST and not the MANIFEST, which
// was made before it. Pebble makes both durable with one sync. Every file system that journals its
// directories keeps their order; this one keeps each at random.
func reordered(disk vfs.FS) bool {
	for _, dir := range []string{"data/state", "data/state.incoming"} {
		if desc, err := pebble.Peek(dir, disk); err == nil && desc.Exists {
			if _, err := disk.Stat(desc.ManifestFilename); err != nil {
				return true
			}
		}
	}
	return false
}

// set notes what is promised from now on.
func (c *crasher) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// look opens what a power loss has left, replays the log on it, and compares.
func (c *crasher) look(disk vfs.FS) error {
	c.looks++
	if err := Recover(disk, "data/state"); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	for _, left := range []string{"data/state.incoming", "data/state.retired"} {
		if _, err := disk.Stat(left); err == nil {
			return fmt.Errorf("%s is left", left)
		}
	}
	w := newWatcher()
	store, err := Open("data/state", w.options(disk, false))
	if !c.made {
		// Its making may have been interrupted: then it is made again.
		var missing *MissingError
		var damaged *DamagedError
		if err == nil {
			return store.Close()
		}
		if !errors.As(err, &missing) && !errors.As(err, &damaged) {
			return err
		}
		if err := errors.Join(disk.RemoveAll("data/state"), disk.MkdirAll("data", 0o755)); err != nil {
			return err
		}
		if store, err = Open("data/state", w.options(disk, true)); err != nil {
			return fmt.Errorf("making it again: %w", err)
		}
		return store.Close()
	}
	if err != nil {
		return err
	}
	st, err := c.s.agrees(store)
	switch {
	case err != nil:
	case st.Applied < c.promised || st.Covered < c.covered:
		err = fmt.Errorf("it is at %d and covers %d; promised were %d and %d", st.Applied, st.Covered, c.promised, c.covered)
	default:
		c.behind += count(st.Applied < c.applied)
		for _, a := range store.ApplyBatch(c.s.logs) { // Raft repeats all that it has
			if failed, is := a.(error); is {
				err = failed
			}
		}
	}
	if err == nil {
		if st, err = c.s.agrees(store); err == nil && st.Applied != c.s.last(len(c.s.logs)) {
			err = fmt.Errorf("after replaying the log it is at %d", st.Applied)
		}
	}
	return errors.Join(append(w.said(), err, store.Close())...)
}

// After a power failure at any moment, index and state agree, no promised entry is lost, and the log restores
// the rest. The store is created, applies, flushes, covers, is replaced by a content, and is closed.
func TestCrashAnywhere(t *testing.T) {
	rng := seeded(t)
	began := time.Now()
	rounds, every := testkit.Choose(2, 3, 6), testkit.Choose(10, 5, 5)
	looks, behind, restores, skipped := 0, 0, 0, 0
	for round := range rounds {
		s := newScript(t, rng.Uint64(), 240)
		c := newCrasher(t, s, rand.New(rand.NewPCG(rng.Uint64(), 2)), every)
		c.lifetime(rand.New(rand.NewPCG(rng.Uint64(), 3)))
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		looks, behind, restores, skipped = looks+c.looks, behind+c.behind, restores+c.restores, skipped+c.reordered
	}
	t.Logf("%d power losses in %v, %d of them lost something that was applied; %d contents were put in place; %d looks skipped, for a directory out of order", looks, time.Since(began).Round(time.Millisecond), behind, restores, skipped)
	if looks < 5 || !testing.Short() && (behind == 0 || restores == 0) {
		t.Error("the test looked at too little")
	}
}

// lifetime is the history of one store, over several openings.
func (c *crasher) lifetime(rng *rand.Rand) {
	t, s, fs := c.t, c.s, c.fs()
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fsync.SyncDir(fs, "data"); err != nil {
		t.Fatal(err)
	}
	if err := fsync.SyncDir(fs, fs.PathDir("data")); err != nil {
		t.Fatal(err)
	}
	other := vfs.NewMem()
	done := 0
	for opening := 0; done < len(s.logs); opening++ {
		w := newWatcher()
		store, err := Open("data/state", w.options(fs, opening == 0))
		if err != nil {
			t.Fatal(err)
		}
		c.set(func() { c.made = true })
		for range 25 {
			switch n := rng.IntN(20); {
			case n < 12:
				upTo := min(len(s.logs), done+1+rng.IntN(8))
				s.apply(t, store, max(0, done-rng.IntN(3)), upTo, 1+rng.IntN(8))
				done = upTo
				c.set(func() { c.applied = s.last(done) })
			case n < 14:
				if err := store.Flush(); err != nil {
					t.Fatal(err)
				}
				c.set(func() { c.promised = s.last(done) })
			case n < 17:
				// The covered index counts entries that the machine does not see.
				index := s.last(done) + uint64(rng.IntN(2))
				if err := store.Cover(index); err != nil {
					t.Fatal(err)
				}
				c.set(func() { c.promised, c.covered = s.last(done), max(index, c.covered) })
			case n < 18 && done < len(s.logs)-1:
				done = c.restore(t, store, other, rng, done)
			case n < 19:
				if _, err := store.WriteContent(io.Discard); err != nil {
					t.Fatal(err)
				}
			default:
				if _, err := store.Status(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		c.set(func() { c.promised = s.last(done) })
		if errs := w.said(); len(errs) > 0 {
			t.Fatalf("it halted: %v", errs)
		}
	}
}

// restore puts the content of another store, which is further, in the place of this one's.
func (c *crasher) restore(t *testing.T, store *Store, other vfs.FS, rng *rand.Rand, done int) int {
	further := done + 1 + rng.IntN(min(20, len(c.s.logs)-done-1)+1)
	further = min(further, len(c.s.logs))
	source := open(t, other, fmt.Sprintf("source-%d", c.restores), true)
	c.s.apply(t, source, 0, further, 50)
	if err := source.Cover(c.s.last(further)); err != nil {
		t.Fatal(err)
	}
	var content bytes.Buffer
	if _, err := source.WriteContent(&content); err != nil {
		t.Fatal(err)
	}
	// From now on either may be found, and what was covered is covered by both.
	c.set(func() { c.covered = 0 })
	if err := store.Restore(io.NopCloser(&content)); err != nil {
		t.Fatal(err)
	}
	c.restores++
	c.set(func() { c.promised, c.covered, c.applied = c.s.last(further), c.s.last(further), c.s.last(further) })
	if st, err := store.Status(); err != nil || st.Received != c.s.last(further) {
		t.Fatalf("restored: %+v, %v", st, err)
	}
	return further
}
