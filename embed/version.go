package embed

import "runtime/debug"

// Version is what the Go tool knows about the sources of this program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
