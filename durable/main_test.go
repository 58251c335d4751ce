package durable

import (
	"testing"

	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.WaitingTests(6)
	testkit.Main(m)
}
