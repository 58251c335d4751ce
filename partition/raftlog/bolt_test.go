package raftlog_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

// TestBoltDamage flips bytes of, cuts and removes the files of a boltdb store: it is refused, or the entry is
// named, or nothing was lost. No damage ends the process.
func TestBoltDamage(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	base := t.TempDir()
	fatal := func(err error) { t.Errorf("fatal: %v", err) }
	s, err := raftlog.Open(base, raftlog.Options{Backend: raftlog.BoltDB, MustCreate: true, OnFatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	for g := range uint32(2) {
		for i := uint64(1); i <= 300; i += 30 {
			if err := s.Group(g).StoreLogs(logtest.Entries(g, i, i+29, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Group(g).DeleteRange(1, 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	try := func(damage func(dir string)) (string, error) {
		dir := filepath.Join(t.TempDir(), "log")
		if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
			t.Fatal(err)
		}
		damage(dir)
		s, err := raftlog.Open(dir, raftlog.Options{Backend: raftlog.BoltDB, OnFatal: fatal})
		if err != nil {
			return "refused", err
		}
		defer s.Close()
		if _, err := s.Verify(context.Background()); err != nil {
			return "named", err
		}
		for g := range uint32(2) {
			first, err1 := s.Group(g).FirstIndex()
			last, err2 := s.Group(g).LastIndex()
			if err := errors.Join(err1, err2); err != nil {
				return "named", err
			}
			if first != 101 || last != 300 {
				t.Errorf("group %d is %d..%d", g, first, last)
			}
			for i := first; i <= last; i++ {
				var got raft.Log
				if err := s.Group(g).GetLog(i, &got); err != nil {
					return "named", err
				}
				if !logtest.Equal(&got, logtest.Entry(g, i, 1)) {
					t.Errorf("group %d, index %d: %+v", g, i, got)
				}
			}
		}
		return "same", nil
	}
	if got, err := try(func(string) {}); got != "same" {
		t.Fatalf("undamaged: %s, %v", got, err)
	}
	rng := rand.New(rand.NewPCG(1, 9))
	name := filepath.Join("db", "group-00000001.bolt")
	b, err := os.ReadFile(filepath.Join(base, name))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for n := range 75 {
		at := rng.IntN(len(b))
		switch n % 3 {
		case 0: // where pages say what they are and where things lie
			at = at&^4095 + rng.IntN(64)
		case 1:
			at = rng.IntN(16384)
		}
		got, err := try(func(dir string) {
			bad := append([]byte(nil), b...)
			bad[at] ^= 1 << rng.IntN(8)
			if err := os.WriteFile(filepath.Join(dir, name), bad, 0o600); err != nil {
				t.Fatal(err)
			}
		})
		counts[got]++
		var corrupt *raftlog.CorruptError
		if got != "same" && !errors.As(err, &corrupt) {
			t.Errorf("byte %d: %s by %T: %v", at, got, err, err)
		}
	}
	t.Log(counts)
	if counts["refused"] < 8 || counts["refused"]+counts["named"] < 12 { // most of the file is free pages
		t.Errorf("too little damage was found: %v", counts)
	}
	for _, n := range []int64{0, 1, 5000, 8192, 20_000} {
		got, err := try(func(dir string) {
			if err := os.Truncate(filepath.Join(dir, name), n); err != nil {
				t.Fatal(err)
			}
		})
		if got == "same" {
			t.Errorf("cut to %d bytes: %s", n, got)
		}
		t.Logf("cut to %d: %v", n, err)
	}
	if got, err := try(func(dir string) { _ = os.Remove(filepath.Join(dir, name)) }); got != "refused" {
		t.Errorf("without the file: %s, %v", got, err)
	}
}

// TestOtherBackend: a store keeps the backend it was made with.
func TestOtherBackend(t *testing.T) {
	dir := t.TempDir()
	s, err := raftlog.Open(dir, raftlog.Options{Backend: raftlog.BoltDB, MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var other *raftlog.BackendError
	if _, err := raftlog.Open(dir, raftlog.Options{Backend: raftlog.Pebble}); !errors.As(err, &other) || other.Made != raftlog.BoltDB {
		t.Fatalf("boltdb store opened with pebble: %v", err)
	}
	for _, opts := range []raftlog.Options{{Backend: "wal"}, {MustCreate: true, MustExist: true}} {
		if _, err := raftlog.Open(dir, opts); err == nil {
			t.Errorf("%+v accepted", opts)
		}
	}
}
