package backup_test

import (
	"os"
	"path/filepath"
	"testing"

	"perdure/backup"
	"perdure/backup/storetest"
)

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "store")
	s, err := backup.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, s)
	entries, err := os.ReadDir(filepath.Join(dir, "files"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "empty" {
		t.Fatalf("the folder has %v, error %v: failed puts left files", entries, err)
	}
	file := filepath.Join(dir, "files", "empty")
	if _, err := backup.OpenFolder(file); err == nil {
		t.Fatal("a file was opened as a folder")
	}
}
