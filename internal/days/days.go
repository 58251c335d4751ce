// Package days reads and writes durations that may be counted in days, such as 30d or 36h.
//
// It promises that what Format writes, Parse reads as the same duration. A day has 24 hours, whatever the calendar says.
// It holds no state.
package days

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Day is 24 hours.
const Day = 24 * time.Hour

// Parse reads a whole number of days ("30d") or what time.ParseDuration reads. Negative ones are refused.
func Parse(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no number of days: 0d to 65535d", s)
		}
		return time.Duration(days) * Day, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration: write 30d, 36h or 90m", s)
	}
	return d, nil
}

// Format writes whole days as such, and nothing that is zero.
func Format(d time.Duration) string {
	if d >= Day && d%Day == 0 {
		return strconv.FormatInt(int64(d/Day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
