package backup

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// put stores an object of this text.
func put(t *testing.T, s Store, name, text string) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

// get returns an object's text.
func get(t *testing.T, s Store, name string) string {
	t.Helper()
	r, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// testStore checks what every Store promises.
func testStore(t *testing.T, s Store) {
	ctx := t.Context()
	if list, err := s.List(ctx, filesPrefix); err != nil || len(list) > 0 {
		t.Fatalf("an empty store lists %v, error %v", list, err)
	}
	var missing *NotFoundError
	if _, err := s.Get(ctx, "files/none"); !errors.As(err, &missing) {
		t.Fatalf("reading no object: %v", err)
	}
	if _, ok, err := s.Exists(ctx, "files/none"); ok || err != nil {
		t.Fatalf("no object exists: %v, error %v", ok, err)
	}
	if err := s.Delete(ctx, "files/none"); err != nil {
		t.Fatalf("deleting no object: %v", err)
	}
	put(t, s, "files/a", "first")
	put(t, s, "files/a", "second, longer")
	put(t, s, "files/empty", "")
	put(t, s, "backups/a", "other")
	if got := get(t, s, "files/a"); got != "second, longer" {
		t.Fatalf("read %q", got)
	}
	if got := get(t, s, "files/empty"); got != "" {
		t.Fatalf("read %q", got)
	}
	if err := s.Put(ctx, "files/a", strings.NewReader("short"), 6); err == nil {
		t.Fatal("an object with fewer bytes than announced was stored")
	}
	if err := s.Put(ctx, "files/broken", io.MultiReader(strings.NewReader("some"), failing{}), 8); !errors.Is(err, errRead) {
		t.Fatalf("an object that cannot be read: %v", err)
	}
	if got := get(t, s, "files/a"); got != "second, longer" {
		t.Fatalf("read %q after a put that failed", got)
	}
	list, err := s.List(ctx, filesPrefix)
	if want := []Object{{"files/a", 14}, {"files/empty", 0}}; err != nil || !slices.Equal(list, want) {
		t.Fatalf("list %v, error %v, want %v", list, err, want)
	}
	if size, ok, err := s.Exists(ctx, "files/a"); size != 14 || !ok || err != nil {
		t.Fatalf("exists: %d bytes, %v, error %v", size, ok, err)
	}
	if err := s.Delete(ctx, "files/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "files/a"); !errors.As(err, &missing) {
		t.Fatalf("reading a deleted object: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(ended, "files/late", strings.NewReader("x"), 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("a put without time: %v", err)
	}
}

var errRead = errors.New("planted: cannot read")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errRead }

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "store")
	s, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	testStore(t, s)
	entries, err := os.ReadDir(filepath.Join(dir, "files"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "empty" {
		t.Fatalf("the folder has %v, error %v: failed puts left files", entries, err)
	}
	file := filepath.Join(dir, "files", "empty")
	if _, err := OpenFolder(file); err == nil {
		t.Fatal("a file was opened as a folder")
	}
}

// TestFolderFull puts into a full file system at each of its steps: the object before stays, nothing else appears.
func TestFolderFull(t *testing.T) {
	for step := int32(0); ; step++ {
		mem := vfs.NewMem()
		plain, err := openFolder(mem, "store")
		if err != nil {
			t.Fatal(err)
		}
		put(t, plain, "files/a", "before")
		inject := errorfs.OnIndex(step)
		full, err := openFolder(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && inject.MaybeError(op) != nil {
				return syscall.ENOSPC
			}
			return nil
		})), "store")
		if err != nil {
			t.Fatal(err)
		}
		err = full.Put(t.Context(), "files/b", strings.NewReader("after"), 5)
		if got := get(t, plain, "files/a"); got != "before" {
			t.Fatalf("step %d: read %q", step, got)
		}
		size, ok, existsErr := plain.Exists(t.Context(), "files/b")
		switch {
		case existsErr != nil:
			t.Fatal(existsErr)
		case ok && size != 5:
			t.Fatalf("step %d: the object has %d bytes", step, size)
		case err == nil && !ok:
			t.Fatalf("step %d: the object was stored and is not there", step)
		case err == nil:
			if step == 0 {
				t.Fatal("no step failed")
			}
			return
		case !errors.Is(err, syscall.ENOSPC):
			t.Fatalf("step %d: %v", step, err)
		}
	}
}
