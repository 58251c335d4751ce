package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perdure/backup"
	"perdure/embed"
)

// mustJSON runs a command and reads its object.
func mustJSON(t *testing.T, sh *shell, args ...string) map[string]any {
	t.Helper()
	stdout, stderr, code := sh.run(append(args, "--json")...)
	if code != exitDone {
		t.Fatalf("%s: exit %d: %s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatalf("%s: %q: %v", strings.Join(args, " "), stdout, err)
	}
	return out
}

// TestBackup makes backups of a node that serves, checks and deletes them.
func TestBackup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n, err := embed.Start(ctx, embed.Config{DataDir: filepath.Join(t.TempDir(), "data"), Partitions: realPartitions, CheckInvariants: true,
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if err := populate(ctx, n.GRPCAddr()); err != nil {
		t.Fatal(err)
	}
	sh, store := &shell{addr: n.GRPCAddr()}, filepath.Join(t.TempDir(), "store")
	offline := &shell{addr: "127.0.0.1:1"}
	if _, stderr, code := offline.run("backup", "verify", store); code != exitNotFound {
		t.Fatalf("verify of no backup: exit %d: %s", code, stderr)
	}
	first := mustJSON(t, sh, "backup", "create", store, "--rate", "1GiB")
	if first["partitions"] != float64(realPartitions) || first["copied"] != first["stored"] && first["stored"].(float64) <= 0 {
		t.Fatalf("created %v", first)
	}
	mustJSON(t, sh, "start", "charge", "--id", "after-the-first", "--allow-unknown-function")
	second := mustJSON(t, sh, "backup", "create", "file://"+store)
	if second["copied"].(float64) >= first["copied"].(float64) || second["cut"].(float64) <= first["cut"].(float64) {
		t.Fatalf("created %v after %v", second, first)
	}
	t.Logf("first %v, second %v", first, second)
	for _, r := range []map[string]any{first, second} {
		name := r["name"].(string)
		mustJSON(t, offline, "backup", "verify", store, name)
		checked := mustJSON(t, offline, "verify", "--backup", store, name)
		if checked["ok"] != true || checked["executions"].(float64) < 10 || checked["partitions"] != float64(realPartitions) {
			t.Fatalf("backup %s: %v", name, checked)
		}
	}
	newer := mustJSON(t, offline, "verify", "--backup", store)
	older := mustJSON(t, offline, "verify", "--backup", store, first["name"].(string))
	if newer["executions"].(float64) != older["executions"].(float64)+1 {
		t.Fatalf("%v executions, then %v", older["executions"], newer["executions"])
	}
	for format, r := range []map[string]any{1: first, 2: second} {
		if format > 0 {
			damageBackup(t, offline, store, r["name"].(string), format)
		}
	}
	if stdout, stderr, code := offline.run("backup", "delete", store, first["name"].(string)); code != exitDone || !strings.Contains(stdout, "deleted") || strings.Contains(stdout, "unused") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	mustJSON(t, offline, "verify", "--backup", store) // the second has the files of the first
	if stdout, stderr, code := offline.run("backup", "list", store); code != exitDone || strings.Count(stdout, "complete") != 1 {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	kept := mustJSON(t, sh, "backup", "create", store, "--keep", "1", "--full")
	if len(kept["deleted"].([]any)) != 1 || kept["freed"].(float64) <= 0 {
		t.Fatalf("created %v", kept)
	}
	mustJSON(t, offline, "verify", "--backup", store)
	if _, _, code := offline.run("backup", "delete", store, "--unused"); code != exitDone {
		t.Fatalf("delete of unused files: exit %d", code)
	}
}

// damageBackup flips a bit of one file after the other, of the manifest, every state and every delta: both verifications name it.
func damageBackup(t *testing.T, sh *shell, store, name string, format int) {
	t.Helper()
	opened, err := backup.OpenFolder(store)
	if err != nil {
		t.Fatal(err)
	}
	m, err := backup.Read(t.Context(), opened, name)
	if err != nil || m.Format != format {
		t.Fatalf("%s: %v, want format %d", name, err, format)
	}
	objects := []string{filepath.Join("backups", name+".json")}
	used := map[string]string{objects[0]: objects[0]} // what the verifications say of each
	opens := objects[0]
	for _, s := range m.States {
		files := s.Files
		for _, d := range s.Deltas {
			files = append(slices.Clip(files), d.File)
		}
		if format == 2 && len(s.Deltas) == 0 && s.Partition == 0 {
			t.Fatalf("partition %d has no delta", s.Partition)
		}
		for _, f := range files {
			if object := filepath.Join("files", f.SHA256); f.Size > 0 && used[object] == "" {
				objects = append(objects, object)
				used[object], opens = fmt.Sprintf("partition %d, file %s", s.Partition, f.Name), object
			}
		}
	}
	for i, object := range objects {
		path := filepath.Join(store, object)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[i*len(bad)/len(objects)] ^= 1 << (i % 8)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		verifications := [][]string{{"backup", "verify", store, name}}
		if object == opens || i == 0 { // it would open the states each time
			verifications = append(verifications, []string{"verify", "--backup", store, name})
		}
		for _, args := range verifications {
			stdout, stderr, code := sh.run(args...)
			if code != exitFailed || !strings.Contains(stdout+stderr, object) || !strings.Contains(stdout+stderr, used[object]) {
				t.Fatalf("%v with a bit of %s (%s) flipped: exit %d: %s%s", args, object, used[object], code, stdout, stderr)
			}
		}
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustJSON(t, sh, "backup", "verify", store, name)
	t.Logf("format %d: each of %d files was damaged and named", format, len(objects))
}

// TestBackupUsage refuses command lines before anything is asked or made.
func TestBackupUsage(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sh := &shell{addr: "127.0.0.1:1"}
	for _, args := range [][]string{
		{"backup"}, {"backup", "create"}, {"backup", "create", store, "more"}, {"backup", "create", store, "--rate", "fast"},
		{"backup", "create", store, "--rate", "0"}, {"backup", "create", store, "--keep", "0"}, {"backup", "create", store, "--keep", "-1"},
		{"backup", "create", store, "--parallel", "0"}, {"backup", "create", "http://host/x"}, {"backup", "create", "file://host/x"},
		{"backup", "create", "s3://"}, {"backup", "create", ""}, {"backup", "list"}, {"backup", "verify", store, "a", "b"},
		{"backup", "delete", store}, {"backup", "delete", store, "20260506T070809Z", "--unused"}, {"backup", "restore"},
		{"backup", "restore", store, "a", "b"}, {"backup", "restore", store, "--parallel", "0"},
	} {
		if stdout, stderr, code := sh.run(args...); code != exitUsage {
			t.Errorf("%q: exit %d: %s%s", args, code, stdout, stderr)
		}
	}
	offline := &shell{addr: "127.0.0.1:1"}
	for _, args := range [][]string{{"verify", "--backup", store, "--data", "x"}, {"verify", "name"}, {"verify", "--backup", store, "a", "b"},
		{"verify", "--backup", store, "--namespace", "x"}} {
		if stdout, stderr, code := offline.run(args...); code != exitUsage {
			t.Errorf("%q: exit %d: %s%s", args, code, stdout, stderr)
		}
	}
	if _, err := os.Stat(store); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused command made the store: %v", err)
	}
	if _, stderr, code := offline.run("backup", "list", file); code != exitFailed {
		t.Errorf("a file as a store: exit %d: %s", code, stderr)
	}
	if stdout, stderr, code := offline.run("backup", "list", store, "--json"); code != exitDone || stdout != "" {
		t.Errorf("a store that is not there: exit %d: %s%s", code, stdout, stderr)
	}
}

func TestBackupHelp(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "help_backup", "backup --help", "backup create --help", "backup list --help", "backup verify --help", "backup restore --help", "backup delete --help")
}
