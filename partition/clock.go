package partition

import (
	"perdure/internal/clock"
)

// Clock is the time of a node; SystemClock the machine's.
type (
	Clock       = clock.Clock
	SystemClock = clock.System
)
