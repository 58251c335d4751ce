// Package overlay builds programs of which some source files are patched: the go command reads the patched files instead of those
// on disk, which stay as they are.
//
// It knows the patches that let a harness disturb a node's wall clock and disk. It holds no state and removes nothing: the files
// lie in the caller's folder.
//
//	list, err := overlay.Write(ctx, module, dir, overlay.Faults())
//	exec.Command("go", "build", "-overlay", list, "perdure/cmd/node")
package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Patch replaces a snippet of a source file for one build.
type Patch struct {
	// Package holds File; Go's own packages and those of modules may be patched too. Without it File is within the module.
	Package, File string
	// From occurs in the file exactly once; To replaces it. If From is empty, To is the content of a new
	// file.
	From, To string
}

// Write writes the patched files into dir, and the list of them, which it returns and go build takes. module is the folder of the
// module. The error says which patch does not fit.
func Write(ctx context.Context, module, dir string, patches []Patch) (list string, err error) {
	texts := map[string]string{}
	for _, p := range patches {
		home, err := folder(ctx, module, p.Package)
		if err != nil {
			return "", err
		}
		file := filepath.Join(home, p.File)
		text, patched := texts[file]
		if !patched && p.From != "" {
			data, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			text = string(data)
		}
		if p.From == "" {
			texts[file] = p.To
			continue
		}
		if n := strings.Count(text, p.From); n != 1 {
			return "", fmt.Errorf("%s holds the snippet to be patched %d times, not once:\n%s", file, n, p.From)
		}
		texts[file] = strings.Replace(text, p.From, p.To, 1)
	}
	replace := map[string]string{}
	for file, text := range texts { //lint:sorted each is a file of its own
		copied := filepath.Join(dir, "patched-"+strconv.Itoa(len(replace))+"-"+filepath.Base(file))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[file] = copied
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o644)
}

// folder is the folder of a package, or of the module.
func folder(ctx context.Context, module, pkg string) (string, error) {
	if pkg == "" {
		return filepath.Abs(module)
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg)
	cmd.Dir = module
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", pkg, err)
	}
	return strings.TrimSpace(string(out)), nil
}
