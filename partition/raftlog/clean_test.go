package raftlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestClean(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var missing *MissingError
	if _, err := Clean(dir); !errors.As(err, &missing) || missing.Store != dir {
		t.Errorf("no store: %v", err)
	}
	s, err := Open(dir, Options{MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	if clean, err := Clean(dir); clean || err != nil {
		t.Errorf("while it is open: %t, %v", clean, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if clean, err := Clean(dir); !clean || err != nil {
		t.Errorf("closed in order: %t, %v", clean, err)
	}
	if err := os.WriteFile(filepath.Join(dir, sealName), []byte("no seal"), 0o644); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if _, err := Clean(dir); !errors.As(err, &corrupt) || corrupt.Store != dir {
		t.Errorf("a damaged seal: %v", err)
	}
}
