package fsm

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/state"
)

// cutStore is a store whose last two checkpoints are those of two cuts of a script.
func cutStore(t *testing.T) (s *script, files *vfs.MemFS, from, to Checkpoint) {
	t.Helper()
	s = newCutScript(t, 80, 40)
	files = vfs.NewMem()
	store := open(t, files, "state", true)
	s.apply(t, store, 0, len(s.logs), 5)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return s, files, Checkpoint{1, s.entered(t, 1)}, Checkpoint{2, s.entered(t, 2)}
}

// copyCheckpoint copies a checkpoint's files into a folder.
func copyCheckpoint(t *testing.T, files vfs.FS, c Checkpoint, dir string) {
	t.Helper()
	if err := linkCheckpoint(files, "state", c, dir); err != nil {
		t.Fatal(err)
	}
}

// rowsAt are the rows of a stored state, and its index.
func rowsAt(t *testing.T, files vfs.FS, dir string) (rows map[string]string, index uint64) {
	t.Helper()
	r, err := OpenCheckpoint(dir, Options{FS: files, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.View(func(r state.Reader) error { rows = contentOf(r); return nil }), r.Close()); err != nil {
		t.Fatal(err)
	}
	return rows, r.Status().Applied
}

func noDeltaDir(t *testing.T, files vfs.FS) {
	t.Helper()
	if _, err := files.Stat(DeltaDir("state")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder in which deltas are made is left: %v", err)
	}
}

func quietOn(files vfs.FS) Options { return Options{FS: files, Logger: quiet{}} }

// TestDeltaMakesTheLaterCheckpoint: a copy of the earlier checkpoint with the delta has the rows of the later one, and its
// index. The delta is none of the checkpoint's files, and a repeated call returns the same one.
func TestDeltaMakesTheLaterCheckpoint(t *testing.T) {
	_, files, from, to := cutStore(t)
	before, err := CheckpointFiles(files, "state", to)
	if err != nil {
		t.Fatal(err)
	}
	made, err := MakeDelta("state", from, to, quietOn(files), DeltaOptions{})
	if err != nil || made.Size == 0 || made.Name != DeltaName(from, to) || !IsDelta(made.Name) {
		t.Fatalf("made %v, %v", made, err)
	}
	again, err := MakeDelta("state", from, to, quietOn(files), DeltaOptions{Stop: func() error { return errors.New("it works again") }})
	if err != nil || again != made {
		t.Fatalf("made again %v, %v; before %v", again, err, made)
	}
	after, err := CheckpointFiles(files, "state", to)
	if err != nil || !slices.Equal(before, after) {
		t.Fatalf("the checkpoint's files are %v, %v; before the delta %v", after, err, before)
	}
	noDeltaDir(t, files)
	copyCheckpoint(t, files, from, "copy")
	if err := files.Link(files.PathJoin(to.Dir(files, "state"), made.Name), "delta"); err != nil {
		t.Fatal(err)
	}
	ingest := func(db *pebble.DB, path string) error { return db.Ingest(t.Context(), []string{path}) }
	for _, at := range [][2]uint64{{from.Index - 1, to.Index}, {from.Index + 1, to.Index}} {
		damaged := (*DamagedError)(nil)
		if err := ApplyDelta("copy", "delta", at[0], at[1], ingest, quietOn(files)); !errors.As(err, &damaged) {
			t.Fatalf("a delta from index %d was added to a state at %d: %v", at[0], from.Index, err)
		}
	}
	old, _ := rowsAt(t, files, from.Dir(files, "state"))
	if have, index := rowsAt(t, files, "copy"); index != from.Index || !maps.Equal(have, old) {
		t.Fatalf("a refused delta has changed the state: it is at %d", index)
	}
	if err := ApplyDelta("copy", "delta", from.Index, to.Index, ingest, quietOn(files)); err != nil {
		t.Fatal(err)
	}
	want, _ := rowsAt(t, files, to.Dir(files, "state"))
	have, index := rowsAt(t, files, "copy")
	if index != to.Index || !maps.Equal(have, want) {
		t.Fatalf("the copy is at %d with %d rows, the checkpoint at %d with %d", index, len(have), to.Index, len(want))
	}
	deleted := 0
	for key := range old { //lint:sorted counted
		if _, still := want[key]; !still {
			deleted++
		}
	}
	if deleted == 0 || maps.Equal(old, want) {
		t.Fatal("nothing was deleted between the checkpoints: the test shows little")
	}
}

// TestDeltaRefusals: a delta that is too large, a checkpoint that is not there, a caller that leaves and a disk without
// space leave no file.
func TestDeltaRefusals(t *testing.T) {
	_, files, from, to := cutStore(t)
	left, full := errors.New("the caller has left"), errors.New("no space")
	for _, test := range []struct {
		name     string
		from, to Checkpoint
		bounds   DeltaOptions
		want     func(error) bool
	}{
		{"too large", from, to, DeltaOptions{Limit: 100}, func(err error) bool { large := (*DeltaLimitError)(nil); return errors.As(err, &large) }},
		{"no first", Checkpoint{from.Cut, from.Index + 1}, to, DeltaOptions{}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		{"no second", from, Checkpoint{to.Cut + 1, to.Index}, DeltaOptions{}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		{"left", from, to, DeltaOptions{Stop: func() error { return left }}, func(err error) bool { return errors.Is(err, left) }},
		{"no space", from, to, DeltaOptions{Spare: func(int64) error { return full }}, func(err error) bool { return errors.Is(err, full) }},
	} {
		if made, err := MakeDelta("state", test.from, test.to, quietOn(files), test.bounds); !test.want(err) {
			t.Errorf("%s: made %v, %v", test.name, made, err)
		}
		names, err := files.List(to.Dir(files, "state"))
		if err != nil || slices.ContainsFunc(names, IsDelta) {
			t.Errorf("%s: left are %v, %v", test.name, names, err)
		}
		noDeltaDir(t, files)
	}
}

// TestDeltaAsksForSpace: the work keeps tables from being deleted, so it asks while it finds no change, too.
func TestDeltaAsksForSpace(t *testing.T) {
	_, files, from, to := cutStore(t)
	rows, _ := rowsAt(t, files, from.Dir(files, "state"))
	asked := 0
	if _, err := MakeDelta("state", from, to, quietOn(files), DeltaOptions{Spare: func(int64) error { asked++; return nil }}); err != nil {
		t.Fatal(err)
	}
	if least := 1 + len(rows)/deltaCheck; least < 2 || asked < least {
		t.Errorf("it asked %d times for %d rows, want %d, and 2 at least", asked, len(rows), least)
	}
}

// TestDeltaOfDamage: whatever byte of a table of either checkpoint is damaged, there is an error, or the delta is the same.
func TestDeltaOfDamage(t *testing.T) {
	const places = 8
	_, files, from, to := cutStore(t)
	whole, err := MakeDelta("state", from, to, quietOn(files), DeltaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := files.PathJoin(to.Dir(files, "state"), whole.Name)
	want := contentOfFile(t, files, path)
	late := 0
	for _, c := range []Checkpoint{from, to} {
		list, err := CheckpointFiles(files, "state", c)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if !strings.HasSuffix(f.Name, ".sst") {
				continue
			}
			for place := range int64(places) {
				table := files.PathJoin(c.Dir(files, "state"), f.Name)
				at := place * f.Size / places
				good := contentOfFile(t, files, table)
				overwrite(t, files, table, "damage", at)
				if err := files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				opened := opens(files, from) && opens(files, to)
				switch _, err := MakeDelta("state", from, to, quietOn(files), DeltaOptions{}); {
				case err == nil && contentOfFile(t, files, path) != want:
					t.Errorf("%s damaged at %d: another delta", table, at)
				case err != nil && opened:
					late++
				}
				overwrite(t, files, table, good[at:min(at+6, f.Size)], at)
			}
		}
	}
	if late == 0 {
		t.Error("no damage was found behind the opening of the checkpoints: the test shows little")
	}
}

func contentOfFile(t *testing.T, files vfs.FS, path string) string {
	t.Helper()
	f, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func overwrite(t *testing.T, files vfs.FS, path, text string, at int64) {
	t.Helper()
	w, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.WriteAt([]byte(text), at)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

func opens(files vfs.FS, c Checkpoint) bool {
	r, err := OpenCheckpoint(c.Dir(files, "state"), quietOn(files))
	return err == nil && r.Close() == nil
}

// TestOpenRemovesDeltaDir: what a crash has left of a delta keeps no tables on the disk.
func TestOpenRemovesDeltaDir(t *testing.T) {
	_, files, from, _ := cutStore(t)
	copyCheckpoint(t, files, from, files.PathJoin(DeltaDir("state"), from.name()))
	if err := open(t, files, "state", false).Close(); err != nil {
		t.Fatal(err)
	}
	noDeltaDir(t, files)
}

// TestDeltaNames: a name that leads elsewhere is none of a delta.
func TestDeltaNames(t *testing.T) {
	for name, want := range map[string]bool{ //lint:sorted each is checked
		DeltaName(Checkpoint{1, 2}, Checkpoint{3, 40}): true, "000001.sst": false, "delta-/../../x": false, "delta-..": false, "delta-1/2": false, "": false,
	} {
		if got := IsDelta(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
