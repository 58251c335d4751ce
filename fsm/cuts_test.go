package fsm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/crashfs"
)

// newCutScript is a script of n entries, every so many of which enter the next cut.
func newCutScript(t *testing.T, n, every int) *script {
	t.Helper()
	random := newScript(t, 7, n)
	s := &script{}
	st := state.NewMemReader()
	m, err := machine.New(config, st)
	if err != nil {
		t.Fatal(err)
	}
	index := uint64(10)
	add := func(data []byte) {
		t.Helper()
		index++
		e, err := DecodeEntry(data)
		if err != nil {
			t.Fatal(err)
		}
		res, err := m.Apply(index, e)
		if err != nil {
			t.Fatal(err)
		}
		st.Apply(m.Writes())
		m.Committed()
		s.add(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}, st.Clone(), m.Checksum(), res)
	}
	for i, l := range random.logs {
		if l.Type == raft.LogCommand {
			add(l.Data)
		}
		if i%every == every-1 {
			data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{
				{Kind: &commandv1.Command_EnterCut{EnterCut: &commandv1.EnterCut{Cut: uint64(i/every + 1)}}}}})
			if err != nil {
				t.Fatal(err)
			}
			add(data)
		}
	}
	return s
}

// entered is the index at which the script enters a cut.
func (s *script) entered(t *testing.T, cut uint64) uint64 {
	t.Helper()
	for i, res := range s.results {
		if res.Cut == cut {
			return s.logs[i].Index
		}
	}
	t.Fatalf("the script does not enter cut %d", cut)
	return 0
}

// checkpointAgrees compares a checkpoint with the state that the script has at its index.
func (s *script) checkpointAgrees(files vfs.FS, dir string, c Checkpoint) (err error) {
	r, err := OpenCheckpoint(c.Dir(files, dir), Options{FS: files, Logger: quiet{}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	n, ok := s.position(c.Index)
	if !ok || s.results[n-1].Cut != c.Cut {
		return fmt.Errorf("the log does not enter cut %d at index %d", c.Cut, c.Index)
	}
	st := r.Status()
	if st.Applied != c.Index || st.Checksum != s.checksums[n-1] {
		return fmt.Errorf("the checkpoint of index %d is at %d with checksum %016x, a replay has %016x", c.Index, st.Applied, st.Checksum, s.checksums[n-1])
	}
	return r.View(func(r state.Reader) error {
		if !maps.Equal(contentOf(r), contentOf(s.states[n-1])) {
			return fmt.Errorf("the checkpoint of index %d has other rows than a replay", c.Index)
		}
		return nil
	})
}

// TestCheckpointIsTheStateOfItsIndex: whatever is applied in one call, a checkpoint has exactly the entries up to the one
// that enters the cut. The last two stay, over a restart, too.
func TestCheckpointIsTheStateOfItsIndex(t *testing.T) {
	s := newCutScript(t, 40, 10)
	for _, atOnce := range []int{1, 7, 100} {
		files := vfs.NewMem()
		var made []string
		w := newWatcher()
		opts := w.options(files, true)
		opts.OnCheckpoint = func(c Checkpoint, err error) { made = append(made, fmt.Sprint(c, err)) }
		store, err := Open("state", opts)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(t, store, 0, len(s.logs), atOnce)
		if _, err := s.agrees(store); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if len(made) != 4 || strings.Count(fmt.Sprint(made), "<nil>") != 4 {
			t.Errorf("%d at once: made were %v", atOnce, made)
		}
		opts.Create = false
		again, err := Open("state", opts)
		if err != nil {
			t.Fatal(err)
		}
		if out := again.ApplyBatch(s.logs); out[len(out)-1] != (*machine.Result)(nil) && out[len(out)-1] != nil {
			t.Errorf("a repeated log is answered with %v", out[len(out)-1])
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		want := []Checkpoint{{3, s.entered(t, 3)}, {4, s.entered(t, 4)}}
		got, err := Checkpoints(files, "state")
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d at once: the checkpoints are %v, %v; want %v", atOnce, got, err, want)
		}
		for _, c := range got {
			if err := s.checkpointAgrees(files, "state", c); err != nil {
				t.Errorf("%d at once: %v", atOnce, err)
			}
		}
		if len(made) != 4 {
			t.Errorf("the repeated log has made checkpoints: %v", made)
		}
	}
}

// TestPowerLossLeavesWholeCheckpoints: each checkpoint that a power loss leaves, at any change of the disk, is whole.
func TestPowerLossLeavesWholeCheckpoints(t *testing.T) {
	s := newCutScript(t, 24, 6)
	disk := crashfs.New()
	rng := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	looks, found, parts := 0, 0, 0
	files := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || !strings.Contains(op.Path, ".cuts") {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, percent := range []int{0, 100} {
			left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			all, err := Checkpoints(left, "state")
			if err != nil {
				t.Errorf("before operation %d on %s: %v", op.Kind, op.Path, err)
			}
			looks++
			found += len(all)
			for _, c := range all {
				if err := s.checkpointAgrees(left, "state", c); err != nil {
					t.Errorf("power loss before operation %d on %s: %v", op.Kind, op.Path, err)
				}
			}
			names, _ := left.List("state.cuts")
			w := newWatcher()
			store, err := Open("state", w.options(left, false))
			if err != nil {
				t.Errorf("power loss before operation %d on %s: %v", op.Kind, op.Path, err)
				continue
			}
			after, _ := left.List("state.cuts")
			parts += len(names) - len(after)
			if _, err := s.agrees(store); err != nil || len(after) > keptCuts {
				t.Errorf("power loss before operation %d on %s: %v; left are %v", op.Kind, op.Path, err, after)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
		return nil
	}))
	s.apply(t, open(t, files, "state", true), 0, len(s.logs), 4)
	if found == 0 || parts == 0 {
		t.Errorf("%d looks found %d checkpoints and %d parts of some: they show nothing", looks, found, parts)
	}
	t.Logf("%d looks found %d checkpoints, %d parts of some", looks, found, parts)
}

// TestFailedCheckpoint: what fails when a checkpoint is made fails the cut and nothing else.
func TestFailedCheckpoint(t *testing.T) {
	s := newCutScript(t, 40, 10)
	full := errors.New("no space")
	for _, c := range []struct {
		name  string
		spare bool
		kind  errorfs.OpKind
	}{{"no space to spare", true, 0}, {"no file", false, errorfs.OpCreate}, {"no rename", false, errorfs.OpRename}} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			var failing atomic.Bool
			failing.Store(true)
			files := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if failing.Load() && !c.spare && op.Kind == c.kind && strings.Contains(op.Path, ".cuts") {
					return full
				}
				return nil
			}))
			var errs []error
			w := newWatcher()
			opts := w.options(files, true)
			opts.OnCheckpoint = func(_ Checkpoint, err error) { errs = append(errs, err) }
			opts.Spare = func(bytes int64) error {
				if failing.Load() && c.spare && bytes >= int64(opts.MemTableBytes) {
					return full
				}
				return nil
			}
			store, err := Open("state", opts)
			if err != nil {
				t.Fatal(err)
			}
			half, _ := s.position(s.entered(t, 3))
			s.apply(t, store, 0, half, 5)
			all, err := Checkpoints(mem, "state")
			left, _ := mem.List("state.cuts")
			if err != nil || len(all) > 0 || len(errs) != 3 || !errors.Is(errs[0], full) {
				t.Errorf("the checkpoints are %v, %v, of %v; said was %v", all, err, left, errs)
			}
			failing.Store(false)
			s.apply(t, store, half, len(s.logs), 5)
			if _, err := s.agrees(store); err != nil {
				t.Error(err)
			}
			if err := errors.Join(append(w.said(), store.Close())...); err != nil {
				t.Errorf("the store has halted: %v", err)
			}
			left, _ = mem.List("state.cuts")
			if want := (Checkpoint{4, s.entered(t, 4)}); fmt.Sprint(left) != "["+want.name()+"]" {
				t.Errorf("left are %v, want %v alone", left, want)
			} else if err := s.checkpointAgrees(mem, "state", want); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRemovedCheckpoint: an open file of it stays readable, its list is an error, and removing it again is none.
func TestRemovedCheckpoint(t *testing.T) {
	s := newCutScript(t, 20, 10)
	files := vfs.NewMem()
	s.apply(t, open(t, files, "state", true), 0, len(s.logs), 5)
	c := Checkpoint{2, s.entered(t, 2)}
	list, err := CheckpointFiles(files, "state", c)
	if err != nil || len(list) < 3 {
		t.Fatalf("its files are %v, %v", list, err)
	}
	f, err := files.Open(files.PathJoin(c.Dir(files, "state"), list[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveCheckpoint(files, "state", c); err != nil {
			t.Fatal(err)
		}
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || int64(len(b)) != list[0].Size {
		t.Errorf("%d bytes of %d, %v", len(b), list[0].Size, err)
	}
	if _, err := CheckpointFiles(files, "state", c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the list of a removed checkpoint: %v", err)
	}
	if all, err := Checkpoints(files, "state"); err != nil || len(all) != 1 || all[0].Cut != 1 {
		t.Errorf("left are %v, %v", all, err)
	}
}
