package jepsen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlay: patches are applied where they fit, and refused where they do not.
func TestOverlay(t *testing.T) {
	dir := t.TempDir()
	ctx := within(t, testTimeout)
	list, err := overlay(ctx, dir, FaultPatches())
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
		if _, err := overlay(ctx, t.TempDir(), []Patch{p}); err == nil {
			t.Errorf("%s: it was patched", name)
		}
	}
}
