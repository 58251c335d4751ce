package fsync

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func read(t *testing.T, fs vfs.FS, path string) ([]byte, error) {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

func TestSurvivesACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	if err := MakeDir(fs, "a/b/c"); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "two"} {
		if err := WriteFile(fs, "a/b/c/f", []byte(content)); err != nil {
			t.Fatal(err)
		}
		b, err := read(t, fs.CrashClone(vfs.CrashCloneCfg{}), "a/b/c/f")
		if err != nil || string(b) != content {
			t.Fatalf("%q, %v; want %q", b, err, content)
		}
	}
	// Made by a process that died before it synced.
	if err := fs.MkdirAll("x/y", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(fs, "x/y/z"); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.CrashClone(vfs.CrashCloneCfg{}).Stat("x/y/z"); err != nil {
		t.Fatal(err)
	}
}

// TestEveryFailure fails each step once: it is reported, and the file is the old or the new one.
func TestEveryFailure(t *testing.T) {
	for n := 0; ; n++ {
		mem := vfs.NewCrashableMem()
		if err := errors.Join(MakeDir(mem, "d"), WriteFile(mem, "d/f", []byte("old"))); err != nil {
			t.Fatal(err)
		}
		step, failed := 0, false
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			step++
			if step == n+1 {
				failed = true
				return errorfs.ErrInjected
			}
			return nil
		}))
		err := WriteFile(fs, "d/f", []byte("new"))
		if !failed {
			if err != nil || n < 5 {
				t.Fatalf("%d steps, %v", n, err)
			}
			return
		}
		b, readErr := read(t, mem.CrashClone(vfs.CrashCloneCfg{}), "d/f")
		if readErr != nil || !(bytes.Equal(b, []byte("old")) || bytes.Equal(b, []byte("new"))) {
			t.Fatalf("step %d: %q, %v", n, b, readErr)
		}
		if err == nil && string(b) != "new" {
			t.Fatalf("step %d: no error, and the file is old", n)
		}
	}
}
