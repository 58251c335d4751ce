package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure/backup"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// folderSource is a cluster whose checkpoints are the folders state-0000, state-0001 … of one directory.
type folderSource struct {
	dir string
	of  *backup.Manifest
}

func (s *folderSource) path(p uint32, name string) string {
	return filepath.Join(s.dir, fmt.Sprintf("state-%04d", p), name)
}

func (s *folderSource) Cluster(context.Context) (string, error) { return s.of.Cluster, nil }

func (s *folderSource) Cut(context.Context) (backup.Cut, error) {
	cut := backup.Cut{Number: s.of.Cut + 1, Cluster: s.of.Cluster, Partitions: s.of.Partitions, Level: s.of.Level}
	for _, of := range s.of.States {
		cut.Checkpoints = append(cut.Checkpoints, backup.Checkpoint{Partition: of.Partition, Node: "n1", Index: of.Index})
	}
	return cut, nil
}

func (s *folderSource) List(_ context.Context, _ uint64, at backup.Checkpoint) (uint64, []backup.Listed, error) {
	entries, err := os.ReadDir(s.path(at.Partition, ""))
	var out []backup.Listed
	for _, e := range entries {
		info, statErr := e.Info()
		if err = errors.Join(err, statErr); err == nil && e.Name() != "LOCK" {
			out = append(out, backup.Listed{Name: e.Name(), Size: info.Size()})
		}
	}
	return at.Index, out, err
}

func (s *folderSource) Read(_ context.Context, _ uint64, at backup.Checkpoint, name string, offset int64) (io.ReadCloser, error) {
	f, err := os.Open(s.path(at.Partition, name))
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	return f, err
}

func (s *folderSource) Hash(_ context.Context, _ uint64, at backup.Checkpoint, name string) (string, error) {
	b, err := os.ReadFile(s.path(at.Partition, name))
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

func (s *folderSource) Delta(_ context.Context, _ uint64, at backup.Checkpoint, from backup.Base, _ int64) (backup.Listed, error) {
	return backup.Listed{}, &backup.GoneError{Cut: from.Cut, Partition: at.Partition, Node: at.Node, Err: errors.ErrUnsupported}
}

func (s *folderSource) Release(context.Context, uint64) error { return nil }

// TestVerifyBackupNamesCut plants states that are not of one cut into a backup: the rule and both partitions are named.
func TestVerifyBackupNamesCut(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := aNode(ctx, t, 3)
	if err := populate(ctx, n.GRPCAddr()); err != nil {
		t.Fatal(err)
	}
	location := filepath.Join(t.TempDir(), "store")
	made := mustJSON(t, &shell{addr: n.GRPCAddr()}, "backup", "create", location)
	store, err := backup.OpenFolder(location)
	must(t, err)
	m, err := backup.Read(ctx, store, made["name"].(string))
	must(t, err)
	inbox := func(of uint32) []byte { return keys.Number(keys.Inbox, of) }
	for _, test := range []struct {
		what, says string
		partition  uint32
		change     func(s *plot)
	}{
		{"a message that was received before it was sent", "from partition 0 to 1: message 1000 of epoch 9 was received, the sender is at", 1, func(s *plot) {
			s.put(inbox(0), state.Channel{Epoch: 9, Last: 1000}.Encode())
		}},
		{"messages that were trimmed before they were received", "from partition 1 to 0: the outbox begins with message 8 of epoch 9", 1, func(s *plot) {
			s.put(keys.Number(keys.Channel, 0), state.Channel{Epoch: 9, Last: 7}.Encode())
			for _, key := range s.below(keys.Number(keys.Outbox, 0)) {
				s.drop(key)
			}
		}},
	} {
		dir := t.TempDir()
		for _, of := range m.States {
			must(t, backup.Fetch(ctx, store, of, filepath.Join(dir, fmt.Sprintf("state-%04d", of.Partition)), nil))
		}
		plant(t, dir, test.partition, test.change)
		forged, err := backup.OpenFolder(filepath.Join(dir, "store"))
		must(t, err)
		_, err = backup.Create(ctx, &folderSource{dir, m}, forged, backup.Options{})
		must(t, err)
		stdout, stderr, code := (&shell{addr: "127.0.0.1:1"}).run("verify", "--backup", filepath.Join(dir, "store"))
		if code != exitFailed || !strings.Contains(stdout, ruleCut) || !strings.Contains(stdout, test.says) {
			t.Errorf("%s: exit %d: %s%s", test.what, code, stdout, stderr)
		}
	}
}
