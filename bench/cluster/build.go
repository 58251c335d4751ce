package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The commands that a measurement builds, as folders of the module.
const (
	NodeCommand  = "cmd/node"
	BenchCommand = "bench"
)

// Patch replaces a snippet of a source file for one build, and nothing on disk.
type Patch struct {
	// File is within the module. From occurs in it exactly once. If From is empty, To is the content of a new file.
	File, From, To string
}

// Build builds a command of the module in the folder module, as a release is built, and writes the binary to
// the file out. It takes as long as the compiler does.
func Build(ctx context.Context, module, command, out string, patches ...Patch) error {
	args := []string{"build", "-o", out}
	if len(patches) > 0 {
		overlay, err := overlay(module, filepath.Dir(out), patches)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+command)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./%s in %s: %w\n%s", command, module, err, text)
	}
	return nil
}

// overlay writes patched files into dir, and the list of them that go build takes.
func overlay(module, dir string, patches []Patch) (string, error) {
	replace := map[string]string{}
	for i, p := range patches {
		file, text := filepath.Join(module, p.File), p.To
		if p.From != "" {
			data, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if n := strings.Count(string(data), p.From); n != 1 {
				return "", fmt.Errorf("%s holds the snippet to be patched %d times, not once:\n%s", file, n, p.From)
			}
			text = strings.Replace(string(data), p.From, p.To, 1)
		}
		copied := filepath.Join(dir, fmt.Sprintf("patched-%d-%s", i, filepath.Base(p.File)))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[file] = copied
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o644)
}
