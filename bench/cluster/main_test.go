package cluster

import (
	"testing"

	"go.uber.org/goleak"

	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, goleak.IgnoreTopFunction("perdure/bench/cluster.spawning"))
}
