package recovery

import "math"

// after returns now + d, for d at least 1, and the end of time where the sum does not fit.
func after(now, d int64) int64 {
	if d < 1 {
		d = 1
	}
	if now > math.MaxInt64-d {
		return math.MaxInt64
	}
	return now + d
}
