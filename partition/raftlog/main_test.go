package raftlog

import (
	"testing"

	"go.uber.org/goleak"

	"perdure/internal/testkit"
)

// A Pebble store whose disk has failed cannot be closed: its goroutines stay, in the tests of failing disks.
func TestMain(m *testing.M) {
	testkit.WaitingTests(4)
	testkit.Main(m, goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/record.(*LogWriter).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*cleanupManager).mainLoop"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/internal/genericcache.(*shard[...]).releaseLoop"))
}
