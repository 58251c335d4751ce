package raftlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/internal/testkit"
	"perdure/partition/disk"
)

// TestBoltWaitsForSpace: an append to a file of bbolt, whose writes pass the guarded file system by, waits on
// a full disk until there is space. Nothing fails, and nothing is lost.
func TestBoltWaitsForSpace(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=8m"); err != nil {
		testkit.Lacks(t, "a file system to mount", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mount, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	guard := disk.New(disk.Options{FS: vfs.Default, Dir: mount, Reserve: 1 << 20})
	defer guard.Close()
	guard.Measure()
	filler := filepath.Join(mount, "filler")
	dir := filepath.Join(mount, "logs")
	opts := Options{Backend: BoltDB, FS: vfs.Default, Insist: guard.Insist, OnFatal: func(err error) { t.Errorf("the store has failed: %v", err) }}
	opts.MustCreate = true
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	log := s.Group(1)
	entries := func(from, n uint64) (out []*raft.Log) {
		for i := from; i < from+n; i++ {
			data := make([]byte, 32<<10)
			copy(data, fmt.Sprint("entry ", i))
			out = append(out, &raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: data})
		}
		return out
	}
	if err := log.StoreLogs(entries(1, 20)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filler)
	for block := make([]byte, 1<<20); err == nil && len(block) > 0; {
		if _, werr := f.Write(block); errors.Is(werr, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else {
			err = werr
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- log.StoreLogs(entries(21, 40)) }()
	over := time.NewTimer(time.Minute)
	defer over.Stop()
	for guard.Status().Waiting == 0 {
		select {
		case err := <-done:
			t.Fatalf("an append on a full disk: %v", err)
		case <-over.C:
			t.Fatal("an append on a full disk does not wait for space")
		case <-time.After(time.Millisecond):
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("an append, when there is space: %v", err)
		}
	case <-over.C:
		t.Fatal("an append still waits although there is space")
	}
	if last, err := log.LastIndex(); err != nil || last != 60 {
		t.Errorf("the log ends at %d: %v", last, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opts.MustCreate, opts.MustExist = false, true
	if s, err = Open(dir, opts); err != nil {
		t.Fatal(err)
	}
	log = s.Group(1)
	for i := uint64(1); i <= 60; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil || string(l.Data[:len(fmt.Sprint("entry ", i))]) != fmt.Sprint("entry ", i) {
			t.Fatalf("entry %d after a restart: %v", i, err)
		}
	}
}
