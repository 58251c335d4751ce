package embed

import "runtime/debug"

// Version is the version of this program's sources, as the Go tool records it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
