package jepsen

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// nodePackage is the server's binary. The harness knows it by its command line alone.
const nodePackage = "perdure/cmd/node"

// Build builds the server into dir, as users build it but with the race detector on request, and returns
// the path of the binary. It takes as long as the compiler does; ctx bounds it.
func Build(ctx context.Context, dir string, race bool) (string, error) {
	path := filepath.Join(dir, "perdure-node")
	args := []string{"build", "-o", path}
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, nodePackage)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", nodePackage, err, out)
	}
	return path, nil
}
