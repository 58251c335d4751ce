package schedule

import (
	"testing"

	"perdure/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
