package identity

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	want := Identity{ClusterID: "c", ServerID: "n1-x", NodeID: "n1", Partitions: 3, LogStore: "pebble", Ready: true}
	if err := write(vfs.Default, dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	stores := got.StateStores(dir)
	if len(stores) != 3 || stores[2].Partition != 2 || stores[2].Dir != filepath.Join(dir, "state-0002") || string(stores[2].Stamp) != "c/n1-x/state-0002" {
		t.Errorf("stores %+v", stores)
	}

	if _, err := Read(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	refuses := func(what, detail string) {
		t.Helper()
		var bad *Error
		if _, err := Read(dir); !errors.As(err, &bad) || !strings.Contains(bad.Detail, detail) || bad.Path != filepath.Join(dir, FileName) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(*Identity){
		"never finished": func(id *Identity) { id.Ready = false },
		"0 partitions":   func(id *Identity) { id.Partitions = 0 },
	} {
		id := want
		change(&id)
		if err := write(vfs.Default, dir, id); err != nil {
			t.Fatal(err)
		}
		refuses(what, what)
	}
	path := filepath.Join(dir, FileName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "n1", "n2", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses("changed", "checksum")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refuses("no identity", "is missing")
}

// TestReadOfALaterProgram: what this program does not know is no damage.
func TestReadOfALaterProgram(t *testing.T) {
	dir := t.TempDir()
	raw := json.RawMessage(`{"cluster_id":"c","server_id":"n1-x","node_id":"n1","partitions":3,"log_store":"pebble","ready":true,"mood":"good"}`)
	sum, err := checksum(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(record{raw, sum}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if id, err := Read(dir); err != nil || id.NodeID != "n1" || id.Partitions != 3 {
		t.Errorf("%+v, %v", id, err)
	}
}
