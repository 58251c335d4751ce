package jepsen

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

// nodePackage is the server's binary, cliPackage the command line. The harness knows them by their flags alone.
const nodePackage, cliPackage = "perdure/cmd/node", "perdure/cmd/perdure"

// Patch replaces a snippet of a source file for one build, and nothing on disk.
type Patch struct {
	// Package holds File; Go's own packages and those of modules may be patched too.
	Package, File string
	// From occurs in the file exactly once; To replaces it. If From is empty, To is the content of a new
	// file.
	From, To string
}

// BuildOptions say how to build. The zero value builds as users do.
type BuildOptions struct {
	// Race has the race detector in it.
	Race bool
	// Previous makes a build of the previous version: it knows a lower feature level and not the newest kinds
	// of commands.
	Previous bool
	Patches  []Patch
}

// Build builds the server into dir and returns the path of the binary. It takes as long as the compiler does; ctx
// bounds it.
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
		overlay, err := overlay(ctx, dir, o.Patches)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	if !o.Race { // the race detector needs C; a release is built without, and so holds its caches elsewhere
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// overlay writes the patched files into dir, and the list of them that go build takes.
func overlay(ctx context.Context, dir string, patches []Patch) (string, error) {
	texts := map[string]string{}
	for _, p := range patches {
		home, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", p.Package).Output()
		if err != nil {
			return "", fmt.Errorf("go list %s: %w", p.Package, err)
		}
		file := filepath.Join(strings.TrimSpace(string(home)), p.File)
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
	for file, text := range texts {
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
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o644)
}

// faultsEnv, in the environment of a server built with FaultPatches, names the file that holds its
// Disturbance. The server reloads the file.
const faultsEnv = "PERDURE_JEPSEN_FAULTS"

// FaultPatches build a server whose wall clock and whose disk the harness can disturb while it runs: they
// change Go's own time.Now, and what every write to disk waits for. The server's sources stay as they are.
func FaultPatches() []Patch {
	return []Patch{
		{Package: "time", File: "time.go", From: "import (\n\t\"errors\"\n", To: "import (\n\t\"errors\"\n\t\"sync/atomic\"\n"},
		{Package: "time", File: "time.go", From: "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", To: `var JepsenStep atomic.Int64

func Now() Time {
	sec, nsec, mono := runtimeNow()
	if step := JepsenStep.Load(); step != 0 {
		n := int64(nsec) + step
		sec, n = sec+n/1e9, n%1e9
		if n < 0 {
			sec, n = sec-1, n+1e9
		}
		nsec = int32(n)
	}
`},
		{Package: "syscall", File: "jepsen_sync.go", To: `package syscall

import "sync/atomic"

var JepsenSync atomic.Int64

// JepsenWait waits as long as a sync takes on a slow disk.
func JepsenWait() {
	if n := JepsenSync.Load(); n > 0 {
		t := NsecToTimespec(n)
		_ = Nanosleep(&t, nil)
	}
}
`},
		{Package: "syscall", File: "syscall_linux.go", From: "func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {\n",
			To: `func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {
	if (trap == SYS_FSYNC || trap == SYS_FDATASYNC) && JepsenSync.Load() > 0 {
		JepsenWait()
	}
`},
		{Package: nodePackage, File: "jepsen_faults.go", To: `package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

func init() {
	file := os.Getenv("` + faultsEnv + `")
	if file == "" {
		return
	}
	follow := func() {
		var clock, sync int64
		if data, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(data), &clock, &sync)
		}
		time.JepsenStep.Store(clock)
		syscall.JepsenSync.Store(sync)
	}
	follow()
	go func() {
		for {
			time.Sleep(10 * time.Millisecond)
			follow()
		}
	}()
}
`},
	}
}
