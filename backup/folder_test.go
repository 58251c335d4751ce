package backup

import (
	"errors"
	"io"
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
