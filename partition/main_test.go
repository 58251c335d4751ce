package partition

import (
	"testing"

	"go.uber.org/goleak"

	"perdure/internal/testkit"
)

// abandoned are the goroutines of databases that Pebble has halted on a broken disk: they never end.
var abandoned []goleak.Option

// A future of Raft that is queued while its group shuts down may stay without an answer for ever.
func TestMain(m *testing.M) {
	testkit.WaitingTests(4)
	code := m.Run()
	testkit.Exit(code, append(abandoned, goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*deferError).Error"))...)
}
