package reload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const testTimeout = time.Minute

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// join refuses contents that begin with "bad".
func join(contents [][]byte) (string, error) {
	var parts []string
	for _, c := range contents {
		if strings.HasPrefix(string(c), "bad") {
			return "", errors.New("bad content: " + string(c))
		}
		parts = append(parts, string(c))
	}
	return strings.Join(parts, "+"), nil
}

type calls struct {
	changed []string
	failed  []string
}

// open watches so rarely that only Reload reads.
func open(t *testing.T, paths ...string) (*Value[string], *calls) {
	t.Helper()
	var log calls
	v, err := Open(Options[string]{Paths: paths, Parse: join, Every: time.Hour,
		Changed: func(s string) { log.changed = append(log.changed, s) },
		Failed:  func(err error) { log.failed = append(log.failed, err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v, &log
}

func TestGoodStaysUntilBetter(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "one")
	write(t, b, "two")
	v, log := open(t, a, "", b)
	want := func(value string, changed, failed int) {
		t.Helper()
		v.Reload()
		v.Reload() // a second reload of the same files reports nothing
		if v.Get() != value || len(log.changed) != changed || len(log.failed) != failed {
			t.Fatalf("value %q, changes %q and %q; want %q, %d changes, %d failures", v.Get(), log.changed, log.failed, value, changed, failed)
		}
	}
	want("one++two", 0, 0)
	write(t, b, "three")
	want("one++three", 1, 0)
	write(t, b, "bad")
	want("one++three", 1, 1)
	write(t, b, "bad again")
	want("one++three", 1, 2)
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	want("one++three", 1, 3)
	write(t, b, "four")
	want("one++four", 2, 3)
	write(t, b, strings.Repeat("x", MaxBytes+1))
	want("one++four", 2, 4)
	// Back to what it was before: that is a change too, after a failure in between or not.
	write(t, b, "three")
	want("one++three", 3, 4)
}

// A file whose times and size stay as they were is still seen to have changed, and so is a link.
func TestContentDecides(t *testing.T) {
	dir := t.TempDir()
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
	write(t, a, "one")
	write(t, b, "two")
	when := time.Now().Add(-time.Hour)
	for _, path := range []string{a, b} {
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	v, _ := open(t, link)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b, link); err != nil {
		t.Fatal(err)
	}
	v.Reload()
	if v.Get() != "two" {
		t.Errorf("value %q after the link was turned", v.Get())
	}
}

func TestWatches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write(t, path, "one")
	changed := make(chan string, 1)
	v, err := Open(Options[string]{Paths: []string{path}, Parse: join, Every: time.Millisecond, Changed: func(s string) { changed <- s }})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path+"2", "two")
	if err := os.Rename(path+"2", path); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-changed:
		if s != "two" || v.Get() != "two" {
			t.Errorf("changed to %q, Get %q", s, v.Get())
		}
	case <-time.After(testTimeout):
		t.Error("the change was not noticed")
	}
	v.Close()
	v.Close()
	if v.Get() != "two" {
		t.Error("Get after Close")
	}
}

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if _, err := Open(Options[string]{Paths: []string{path}, Parse: join}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	write(t, path, "bad")
	if _, err := Open(Options[string]{Paths: []string{path}, Parse: join}); err == nil || err.Error() != "bad content: bad" {
		t.Errorf("bad file: %v", err)
	}
}
