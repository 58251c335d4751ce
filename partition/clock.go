package partition

import (
	"perdure/internal/clock"
)

// Clock is a node's clock; SystemClock the machine's.
type (
	Clock       = clock.Clock
	SystemClock = clock.System
)
