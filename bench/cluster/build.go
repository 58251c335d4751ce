package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"perdure/internal/overlay"
)

// The commands that a measurement builds, as folders of the module.
const (
	NodeCommand  = "cmd/node"
	BenchCommand = "bench"
)

// Build builds a command of the module in the folder module and writes the binary to the file out: as a release is built,
// without C, unless CGO_ENABLED says otherwise. It takes as long as the compiler does.
func Build(ctx context.Context, module, command, out string, patches ...overlay.Patch) error {
	args := []string{"build", "-o", out}
	if len(patches) > 0 {
		list, err := overlay.Write(ctx, module, filepath.Dir(out), patches)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", list)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+command)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cmp.Or(os.Getenv("CGO_ENABLED"), "0"))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./%s in %s: %w\n%s", command, module, err, text)
	}
	return nil
}
