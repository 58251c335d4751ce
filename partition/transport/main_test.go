package transport

import (
	"testing"

	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.WaitingTests(5)
	testkit.Main(m)
}
