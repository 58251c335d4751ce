package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set when a release is built (-ldflags "-X main.release=v1.2.3").
var release string

// version is the release, or else what the Go tool knows about the sources.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  perdure version",
		Args:    exactly(),
		RunE: do(func(context.Context, []string) error {
			if a.json {
				return a.printJSON(object{{"version", version()}, {"go", runtime.Version()}, {"os", runtime.GOOS}, {"arch", runtime.GOARCH}})
			}
			_, err := fmt.Fprintf(a.out, "perdure %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}
}
