package suite

import "slices"

// Spread returns the least, the median and the greatest of values; all 0 without values.
func Spread(values []float64) (low, median, high float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return v[0], (v[(n-1)/2] + v[n/2]) / 2, v[n-1]
}
