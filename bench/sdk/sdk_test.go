package sdk

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"perdure/internal/resonatesdk"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	testkit.Exit(m.Run(), goleak.IgnoreTopFunction("perdure/bench/cluster.spawning"))
}

// TestStartFails: a program that cannot start says why, and leaves nothing running.
func TestStartFails(t *testing.T) {
	testkit.LacksTool(t, "node")
	p, err := Start(t.Context(), t.TempDir(), Client, []string{"http://127.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), programName) {
		t.Errorf("%v, %v", p, err)
	}
}

// TestInstallNeedsNpm: without npm the error says that the machine lacks it.
func TestInstallNeedsNpm(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Install(t.Context(), t.TempDir()); !errors.Is(err, resonatesdk.ErrUnavailable) || !strings.Contains(err.Error(), "node") {
		t.Error(err)
	}
}
