package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"perdure/backup"
	"perdure/internal/testkit"
)

// TestBackupInterrupted: a signal ends a create and says how it continues. The same command continues at once, from the
// same cut.
func TestBackupInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := aNode(ctx, t, 3)
	if err := populate(ctx, n.GRPCAddr()); err != nil {
		t.Fatal(err)
	}
	location := filepath.Join(t.TempDir(), "store")
	store, err := backup.OpenFolder(location)
	if err != nil {
		t.Fatal(err)
	}
	signalled, signal := context.WithCancel(ctx)
	defer signal()
	type outcome struct {
		stderr string
		code   int
	}
	ended := make(chan outcome, 1)
	go func() {
		_, stderr, code := (&shell{addr: n.GRPCAddr(), ctx: signalled}).run("backup", "create", location, "--rate", "1")
		ended <- outcome{stderr, code}
	}()
	testkit.EventuallyNil(t, testTimeout, "a copied file", func() error {
		objects, err := store.List(ctx, "files/")
		if err == nil && len(objects) == 0 {
			err = context.DeadlineExceeded
		}
		return err
	})
	signal()
	got := <-ended
	if got.code != exitFailed || !strings.Contains(got.stderr, "interrupted") || !strings.Contains(got.stderr, "repeat the command") {
		t.Fatalf("exit %d: %s", got.code, got.stderr)
	}
	list, err := backup.Partials(ctx, store)
	if err != nil || len(list) != 1 || !list[0].Ended {
		t.Fatalf("partials %+v, error %v", list, err)
	}
	sh := &shell{addr: n.GRPCAddr()}
	r := mustJSON(t, sh, "backup", "create", location)
	if r["resumed"] != list[0].Name || r["cut"] != 1.0 {
		t.Fatalf("created %v, the partial was %s", r, list[0].Name)
	}
	mustJSON(t, sh, "verify", "--backup", location)
}

// TestRestoreInterrupted: a signal ends a restore at any moment and says what continues it. The same command does.
func TestRestoreInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	old := aNode(ctx, t, 3)
	if err := populate(ctx, old.GRPCAddr()); err != nil {
		t.Fatal(err)
	}
	location := filepath.Join(t.TempDir(), "store")
	was := &shell{addr: old.GRPCAddr()}
	made := mustJSON(t, was, "backup", "create", location)
	sh := &shell{addr: aNode(ctx, t, 6).GRPCAddr()}
	interrupted := 0
	for calls := int64(1); ; calls += 5 {
		signalled, signal := context.WithCancel(ctx)
		var asked atomic.Int64
		during := &shell{addr: sh.addr, ctx: signalled, now: func() time.Time {
			if asked.Add(1) >= calls { // the command asks before it copies, and with each file and message
				signal()
			}
			return fakeNow
		}}
		_, stderr, code := during.run("backup", "restore", location, "--parallel", "1")
		signal()
		if code == exitDone {
			break
		}
		interrupted++
		if code != exitFailed || !strings.Contains(stderr, "interrupted") || !strings.Contains(stderr, "perdure backup restore "+location+" "+made["name"].(string)) {
			t.Fatalf("signalled at call %d: exit %d: %s", calls, code, stderr)
		}
	}
	if interrupted < 3 {
		t.Fatalf("only %d restores were interrupted", interrupted)
	}
	if is := listing(t, sh); len(is) != len(listing(t, was)) || len(is) < 10 {
		t.Fatalf("%d executions are there", len(is))
	}
	if checked := mustJSON(t, sh, "verify"); checked["ok"] != true {
		t.Fatalf("verify: %v", checked)
	}
}
