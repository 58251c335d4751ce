package testkit

import (
	"runtime/debug"
	"testing"
)

// What tests build has C if their own binary has, but for the race detector's.
func TestCgoOf(t *testing.T) {
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, "0"},
		{[]debug.BuildSetting{{Key: "CGO_ENABLED", Value: "0"}}, "0"},
		{[]debug.BuildSetting{{Key: "CGO_ENABLED", Value: "1"}}, "1"},
		{[]debug.BuildSetting{{Key: "-race", Value: "true"}, {Key: "CGO_ENABLED", Value: "1"}}, "0"},
		{[]debug.BuildSetting{{Key: "CGO_ENABLED", Value: "1"}, {Key: "-race", Value: "true"}}, "0"},
	} {
		if got := cgoOf(&debug.BuildInfo{Settings: c.settings}, true); got != c.want {
			t.Errorf("%v: %s, not %s", c.settings, got, c.want)
		}
	}
	if got := cgoOf(nil, false); got != "0" {
		t.Errorf("a binary that does not know: %s", got)
	}
	info, known := debug.ReadBuildInfo()
	if !known || cgoOf(info, known) == "" {
		t.Errorf("this binary: %v", info)
	}
}
