package jepsen

import (
	"fmt"
	"slices"
	"time"
)

// LongestGap is the longest time without an event between from and to. The time from the last event
// before from counts whole, and so does the one up to the first event after to, or to to itself when none
// comes. times need not be sorted; without events the answer is to - from.
func LongestGap(times []time.Duration, from, to time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	last := from
	if i, _ := slices.BinarySearch(sorted, from); i > 0 {
		last, sorted = sorted[i-1], sorted[i:]
	}
	var longest time.Duration
	for _, t := range sorted {
		longest = max(longest, t-last)
		if last = t; t >= to {
			return longest
		}
	}
	return max(longest, to-last)
}

// between are the times in [from, to).
func between(times []time.Duration, from, to time.Duration) []time.Duration {
	var out []time.Duration
	for _, t := range times {
		if t >= from && t < to {
			out = append(out, t)
		}
	}
	return out
}

// slowBucket is the grain of SlowTime.
const slowBucket = 100 * time.Millisecond

// SlowTime is how long, in steps of 100 ms, fewer than half as many events came as before: the mean
// rate of [start, from) against each step of [from, to).
func SlowTime(times []time.Duration, start, from, to time.Duration) time.Duration {
	if from-start < slowBucket || to <= from {
		return 0
	}
	before := 0
	buckets := make([]int, (to-from)/slowBucket)
	for _, t := range times {
		switch {
		case t >= start && t < from:
			before++
		case t >= from && int((t-from)/slowBucket) < len(buckets):
			buckets[(t-from)/slowBucket]++
		}
	}
	half := float64(before) / float64(from-start) * float64(slowBucket) / 2
	var slow time.Duration
	for _, n := range buckets {
		if float64(n) < half {
			slow += slowBucket
		}
	}
	return slow
}

// Spread sums up many durations.
type Spread struct {
	N             int
	P50, P99, Max time.Duration
}

// SpreadOf sums up durations. A percentile is one of the values: the smallest that so many percent of them
// do not exceed.
func SpreadOf(all []time.Duration) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(percent int) time.Duration {
		return sorted[max(0, (len(sorted)*percent+99)/100-1)]
	}
	return Spread{N: len(all), P50: at(50), P99: at(99), Max: sorted[len(sorted)-1]}
}

// String is one line.
func (s Spread) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", short3(s.P50), short3(s.P99), short3(s.Max))
}

// short3 is a duration in about three digits.
func short3(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
