package testkit

import (
	"os"
	"runtime/debug"
)

// ShareBuilds lets the go commands that tests start build with C or without, as this test binary was built: then they
// find most packages compiled. The race detector needs C; under it they build without, as releases are built. Call it
// in TestMain.
func ShareBuilds() {
	if err := os.Setenv("CGO_ENABLED", cgoOf(debug.ReadBuildInfo())); err != nil {
		panic(err) // TestMain has no test to fail
	}
}

// cgoOf returns the CGO_ENABLED for programs that are built beside one with this information.
func cgoOf(info *debug.BuildInfo, known bool) string {
	cgo := "0"
	if !known {
		return cgo
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "-race" && s.Value == "true":
			return "0"
		case s.Key == "CGO_ENABLED":
			cgo = s.Value
		}
	}
	return cgo
}
