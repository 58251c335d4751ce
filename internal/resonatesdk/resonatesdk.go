// Package resonatesdk installs Resonate's SDK for tests and measurements: npm's @resonatehq/sdk, unmodified, in the
// version that sdk/package-lock.json pins.
//
// The package owns that version and what Node 20 lacks of it (node20.mjs, which a program imports first). What npm
// downloads stays in npm's cache, so a second installation needs no network.
package resonatesdk

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// ErrUnavailable is the error of Install on a machine without Node, npm or a way to npm's registry.
var ErrUnavailable = errors.New("no SDK of Resonate")

// installTimeout bounds an installation.
const installTimeout = 90 * time.Second

//go:embed sdk
var files embed.FS

// unreachable is what npm says when it finds no registry.
var unreachable = regexp.MustCompile("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH")

// Install installs the SDK into a folder, for programs of that folder. It runs npm, and blocks for 90 s at most. The folder
// must not have an installation.
func Install(ctx context.Context, dir string) error {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	own, err := fs.Sub(files, "sdk")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, own); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--fetch-retries=1")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil || unreachable.Match(out):
		return fmt.Errorf("%w: no way to npm's registry: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("npm ci: %w\n%s", err, out)
}
