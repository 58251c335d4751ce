package stores

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCheck: a URL is a path, file:///path or s3://bucket/prefix. Every other one is refused as such, by Open and by Check.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	none := func(string) string { return "" }
	for location, good := range map[string]bool{
		dir: true, "file://" + dir: true, "file://localhost" + dir: true,
		"": false, "file://": false, "file://host" + dir: false, "https://a/b": false, "s3://": false,
	} {
		checked := Check(location, none)
		_, opened := Open(location, none)
		for name, err := range map[string]error{"Check": checked, "Open": opened} {
			var syntax *SyntaxError
			if good && err != nil || !good && !errors.As(err, &syntax) {
				t.Errorf("%s(%q): %v", name, location, err)
			}
		}
	}
}

// TestCheckReadsNothing: Check makes no folder.
func TestCheckReadsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	if err := Check(dir, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
