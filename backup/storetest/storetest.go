// Package storetest checks implementations of backup.Store, in tests. It owns what every store promises: an object is
// there whole or not at all, a failed put leaves the object before it, and what is not there is a NotFoundError. It
// keeps nothing and needs an empty store.
package storetest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"perdure/backup"
)

// put stores an object of this text.
func put(t *testing.T, s backup.Store, name, text string) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

// get returns an object's text.
func get(t *testing.T, s backup.Store, name string) string {
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

// Run checks what every Store promises, on an empty one.
func Run(t *testing.T, s backup.Store) {
	t.Helper()
	ctx := t.Context()
	if list, err := s.List(ctx, "files/"); err != nil || len(list) > 0 {
		t.Fatalf("an empty store lists %v, error %v", list, err)
	}
	var missing *backup.NotFoundError
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
	list, err := s.List(ctx, "files/")
	if want := []backup.Object{{Name: "files/a", Size: 14}, {Name: "files/empty"}}; err != nil || !slices.Equal(list, want) {
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
