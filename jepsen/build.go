package jepsen

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"perdure/internal/overlay"
)

// nodePackage is the server's binary, cliPackage the command line. The harness knows them by their flags alone.
const nodePackage, cliPackage = "perdure/cmd/node", "perdure/cmd/perdure"

// BuildOptions say how to build. The zero value builds as users do.
type BuildOptions struct {
	// Race has the race detector in it.
	Race bool
	// Previous makes a build of the previous version: it knows a lower feature level and not the newest kinds
	// of commands.
	Previous bool
	Patches  []overlay.Patch
}

// Build builds the server into dir and returns the path of the binary. It has no C in it unless CGO_ENABLED says so. It
// takes as long as the compiler does; ctx bounds it.
func Build(ctx context.Context, dir string, o BuildOptions) (string, error) {
	return build(ctx, dir, "perdure-node", nodePackage, o)
}

// BuildCLI builds the command line into dir, by which the harness verifies data.
func BuildCLI(ctx context.Context, dir string) (string, error) {
	return build(ctx, dir, "perdure", cliPackage, BuildOptions{})
}

func build(ctx context.Context, dir, name, pkg string, o BuildOptions) (string, error) {
	path := filepath.Join(dir, name)
	args := []string{"build", "-ldflags=-w", "-o", path} // without what a debugger needs: linked in half the time
	if o.Race {
		args = append(args, "-race")
	}
	if o.Previous {
		args = append(args, "-tags", "perdure_previous")
	}
	if len(o.Patches) > 0 {
		list, err := overlay.Write(ctx, ".", dir, o.Patches)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", list)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	if !o.Race { // the race detector needs C; a release is built without
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cmp.Or(os.Getenv("CGO_ENABLED"), "0"))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}
