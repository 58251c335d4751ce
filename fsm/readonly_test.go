package fsm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// storeWithState makes a store that holds an execution, and leaves it open.
func storeWithState(t *testing.T, dir string, stamp string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Create: true, Stamp: []byte(stamp), Machine: machine.Config{Partitions: 1},
		Logger: fatalOnly{pebble.DefaultLogger}, OnFatal: func(err error) { t.Errorf("the store has halted: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1000, Commands: []*commandv1.Command{{Namespace: "default", Id: "e",
		Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Id: "e", Function: "f", AllowUnknownFunction: true}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if out := s.ApplyBatch([]*raft.Log{{Index: 7, Type: raft.LogCommand, Data: data}}); wire.ReplyError(out[0].(*machine.Result).Replies[0]) != nil {
		t.Fatalf("answered %v", out)
	}
	return s
}

// files shows all files below a directory with their content; the LOCK file's time is not among it.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			fmt.Fprintln(&b, path, err)
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %x", path, content)
		if d.Name() != "LOCK" {
			fmt.Fprint(&b, " ", info.ModTime().UnixNano())
		}
		fmt.Fprintln(&b)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOpenReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := storeWithState(t, dir, "mine")
	opts := Options{Stamp: []byte("mine")}

	var held *HeldError
	if _, err := OpenReadOnly(dir, opts); !errors.As(err, &held) || held.Dir != dir {
		t.Errorf("a store in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	look := func(dir string) {
		t.Helper()
		r, err := OpenReadOnly(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(filepath.Join(r.Dir(), "LOCK"))
		second, refused := OpenReadOnly(dir, opts)
		if refused == nil {
			defer second.Close() // without a LOCK file a store is not held
		}
		if err == nil && !errors.As(refused, &held) {
			t.Errorf("while it is read: %v", refused)
		}
		if st := r.Status(); st.Applied != 7 || st.ClockMS != 1000 || st.Checksum == 0 {
			t.Errorf("its status is %+v", st)
		}
		if err := r.View(func(v state.Reader) error {
			report, err := audit.Run(v, 0, state.Partition{Count: 1})
			if report.Executions != 1 || report.Events != 1 || len(report.Violations) > 0 {
				t.Errorf("it holds %+v", report)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		again, err := EncodeEntry(&commandv1.Entry{TimeMs: 2000, Commands: []*commandv1.Command{{Namespace: "default", Id: "e2",
			Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Id: "e2", Function: "f", AllowUnknownFunction: true}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Replay(machine.Config{Partitions: 1}, func(apply func(uint64, []byte) error) error {
			return errors.Join(apply(8, again), apply(8, again)) // an entry that is there already is skipped
		}, func(v state.Reader) error {
			report, err := audit.Run(v, 0, state.Partition{Count: 1})
			if report.Applied != 8 || report.ClockMS != 2000 || report.Executions != 2 || len(report.Violations) > 0 {
				t.Errorf("with another entry it holds %+v", report)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		gone := errors.New("the disk is gone")
		if err := r.Replay(machine.Config{Partitions: 1}, func(func(uint64, []byte) error) error { return gone }, nil); !errors.Is(err, gone) {
			t.Errorf("a log that cannot be read: %v", err)
		}
		var unread *DamagedError
		if err := r.Replay(machine.Config{Partitions: 1}, func(apply func(uint64, []byte) error) error { return apply(8, []byte("nonsense")) }, nil); !errors.As(err, &unread) || unread.Dir != r.Dir() {
			t.Errorf("a log entry that is none: %v", err)
		}
		var damaged *DamagedError
		if err := r.View(func(state.Reader) error { return gone }); !errors.As(err, &damaged) || damaged.Dir != r.Dir() || !errors.Is(err, gone) {
			t.Errorf("a failed read comes back as %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	look(dir)
	if after := files(t, dir); after != before {
		t.Errorf("it has changed:\n%s\nbefore:\n%s", after, before)
	}

	// A copy may have no LOCK file, and gets none.
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	before = files(t, dir)
	look(dir)
	if after := files(t, dir); after != before {
		t.Errorf("without a LOCK file it has changed:\n%s\nbefore:\n%s", after, before)
	}

	// A crash has interrupted an exchange of stores: the new one is complete, and not in place.
	if err := errors.Join(os.Rename(dir, dir+".incoming"), os.Mkdir(dir+".retired", 0o755)); err != nil {
		t.Fatal(err)
	}
	look(dir)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was moved into place: %v", err)
	}
}

func TestOpenReadOnlyRefuses(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "state")
	s := storeWithState(t, dir, "mine")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var missing *MissingError
	for _, name := range []string{"nowhere", "empty"} {
		if name == "empty" {
			if err := os.Mkdir(filepath.Join(base, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := OpenReadOnly(filepath.Join(base, name), Options{Stamp: []byte("mine")}); !errors.As(err, &missing) || missing.Dir != filepath.Join(base, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, err := os.ReadDir(filepath.Join(base, "empty")); err != nil || len(names) > 0 {
		t.Errorf("in the empty directory there are %v, %v", names, err)
	}
	var foreign *ForeignError
	if _, err := OpenReadOnly(dir, Options{Stamp: []byte("another's")}); !errors.As(err, &foreign) || string(foreign.Have) != "mine" {
		t.Errorf("another's: %v", err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	var damaged *DamagedError
	manifests, _ := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	for _, path := range append(manifests, tables...) {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, whole[:len(whole)/2], 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := OpenReadOnly(dir, Options{Stamp: []byte("mine")})
		if err == nil {
			err = errors.Join(r.View(func(v state.Reader) error {
				return v.Scan(nil, nil, func(_, _ []byte) bool { return true })
			}), r.Close())
		}
		if !errors.As(err, &damaged) || damaged.Dir != dir {
			t.Errorf("%s cut in half: %v", filepath.Base(path), err)
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing can be written through the file system of a store that is open for reading.
func TestReadOnlyFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x")
	f := readOnlyFS{newStore(dir, Options{}).opts.FS}
	_, created := f.Create(name, "")
	_, opened := f.OpenReadWrite(name, "")
	_, reused := f.ReuseForWrite(name, name, "")
	for i, err := range []error{created, opened, reused, f.MkdirAll(name, 0o755), f.Link(dir, name), f.Rename(dir, name), f.Remove(dir), f.RemoveAll(dir)} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("way %d of writing: %v", i, err)
		}
	}
}
