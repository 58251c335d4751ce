package stable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestFailedSync: a value whose bytes were written and not synced is not set. Every write to /dev/null succeeds and
// every sync of it fails, so the store's file descriptor is made one of /dev/null. The pages that bolt reads are
// mapped and stay.
func TestFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stable.bolt")
	calls := 0
	f, err := Open(path, Options{MustCreate: true, OnFatal: func(error) { calls++ }})
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	g := f.Group(1)
	// The file has grown to what it needs: a truncation of /dev/null would fail too.
	for term := range uint64(20) {
		must(t, g.SetUint64([]byte("CurrentTerm"), term))
	}
	unsynced(t, path)
	var fatal *FatalError
	if err := g.SetUint64([]byte("CurrentTerm"), 20); !errors.As(err, &fatal) || !errors.Is(err, syscall.EINVAL) || calls != 1 {
		t.Fatalf("a value that was not synced: %v, OnFatal was called %d times", err, calls)
	}
	if _, err := g.GetUint64([]byte("CurrentTerm")); !errors.As(err, &fatal) {
		t.Fatalf("a read after that: %v", err)
	}
}

// unsynced turns this process's descriptor of a file into one that accepts writes and refuses to sync.
func unsynced(t *testing.T, path string) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(t, err)
	defer func() { must(t, null.Close()) }()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	found := 0
	for _, e := range fds {
		if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%s", e.Name())); err != nil || target != path {
			continue // the directory's own descriptor is closed by now
		}
		fd, err := strconv.Atoi(e.Name())
		must(t, err)
		must(t, syscall.Dup3(int(null.Fd()), fd, syscall.O_CLOEXEC))
		found++
	}
	if found != 1 {
		t.Fatalf("%d descriptors of %s", found, path)
	}
}
