package fsm

import (
	"testing"

	"go.uber.org/goleak"

	"perdure/internal/testkit"
)

// abandoned are the goroutines of databases that Pebble has halted on a broken disk: they never end.
var abandoned []goleak.Option

// abandon notes what a test of broken disks leaves behind. Such a test does not run in parallel with others.
func abandon() { abandoned = append(abandoned, goleak.IgnoreCurrent()) }

func TestMain(m *testing.M) {
	code := m.Run()
	testkit.Exit(code, abandoned...)
}
