package overlay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlay: patches are applied where they fit, and refused where they do not.
func TestOverlay(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	list, err := Write(ctx, ".", dir, Faults())
	if err != nil {
		t.Fatalf("the patches do not fit this version of Go or of a module: %v", err)
	}
	if data, err := os.ReadFile(list); err != nil || strings.Count(string(data), `":"`) != 4 {
		t.Errorf("the list of patched files: %s, %v", data, err)
	}
	patched, err := filepath.Glob(filepath.Join(dir, "patched-*-time.go"))
	if err != nil || len(patched) != 1 {
		t.Fatalf("%q, %v", patched, err)
	}
	if data, err := os.ReadFile(patched[0]); err != nil || !strings.Contains(string(data), "JepsenStep.Load()") || !strings.Contains(string(data), `"sync/atomic"`) {
		t.Errorf("time.go has not both of its patches: %v", err)
	}
	for name, p := range map[string]Patch{
		"no such snippet": {Package: "time", File: "time.go", From: "func Yesterday("},
		"more than one":   {Package: "time", File: "time.go", From: "func ("},
		"no such file":    {Package: "time", File: "space.go", From: "x"},
		"no such package": {Package: "perdure/none", File: "x.go", From: "x"},
	} {
		if _, err := Write(ctx, ".", t.TempDir(), []Patch{p}); err == nil {
			t.Errorf("%s: it was patched", name)
		}
	}
}

// TestModule: a file within a module is patched in a copy, or added.
func TestModule(t *testing.T) {
	module, dir := t.TempDir(), t.TempDir()
	source := filepath.Join(module, "a.go")
	if err := os.WriteFile(source, []byte("package a // one two"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := Write(t.Context(), module, dir, []Patch{{File: "a.go", From: "one", To: "1"}, {File: "b.go", To: "package a"}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var replaced struct{ Replace map[string]string }
	if err := json.Unmarshal(data, &replaced); err != nil || len(replaced.Replace) != 2 {
		t.Fatalf("%s: %v", data, err)
	}
	for file, want := range map[string]string{source: "package a // 1 two", filepath.Join(module, "b.go"): "package a"} {
		if got, err := os.ReadFile(replaced.Replace[file]); err != nil || string(got) != want {
			t.Errorf("%s is replaced by %q, %v", file, got, err)
		}
	}
}
