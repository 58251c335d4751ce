// Command protogen turns every .proto file under api/ into Go, next to its source.
//
// It owns the step from schema to wire types: parsing and linking (protocompile, in this process), then the
// two code generators that go.mod pins as tools. The output depends only on the .proto files and on go.mod:
// no protoc binary, no PATH, no clock, and the same bytes on every machine. It keeps no state; a crash can
// lose only files that the next run writes again.
//
//	go run ./internal/protogen           write what differs, remove what has no source any more
//	go run ./internal/protogen -check    write nothing; exit 1 and name each stale file
//
// Imports are resolved relative to api/ (`import "perdure/v1/types.proto"`), then among the files that
// every protoc ships (google/protobuf/…), then among google/rpc/… as the genproto module has them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing; exit 1 if a generated file is missing, stale or without a source")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: protogen [-check]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

// run generates the module's api/ folder, found from the working directory upwards.
func run(ctx context.Context, check bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	api := filepath.Join(root, "api")
	want, err := generate(ctx, root, api)
	if err != nil {
		return err
	}
	changes, err := compare(api, want)
	if err != nil {
		return err
	}
	if check {
		for _, c := range changes {
			fmt.Fprintf(os.Stderr, "protogen: api/%s is %s\n", c.path, c.why)
		}
		if len(changes) > 0 {
			return fmt.Errorf("%d generated files differ from their sources (to write them: go generate ./api/...)", len(changes))
		}
		return nil
	}
	return apply(api, want, changes)
}

// moduleRoot walks up from the working directory to the folder of go.mod: `go generate` starts the
// program inside api/, people start it at the root.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod in %s or above it", dir)
		}
	}
}
