package source

import (
	"math/bits"
	"strconv"
	"strings"
)

const nsPerMs = 1_000_000

// units are the units of a duration in nanoseconds; a longer name comes before its own prefixes.
var units = []struct {
	name string
	ns   uint64
}{
	{"ns", 1}, {"us", 1000}, {"µs", 1000}, {"μs", 1000}, {"ms", nsPerMs},
	{"s", 1000 * nsPerMs}, {"m", 60_000 * nsPerMs}, {"h", 3600_000 * nsPerMs},
}

// parseDuration reads a duration as Go writes it, in whole milliseconds. Why is not empty if it cannot.
func parseDuration(s string) (ms int64, why string) {
	const notOne = "is not a duration such as 1m30s or 250ms"
	if strings.HasPrefix(s, "-") {
		return 0, "is negative"
	}
	s = strings.TrimPrefix(s, "+")
	if s == "" {
		return 0, notOne
	}
	if s == "0" {
		return 0, ""
	}
	var total uint64
	for s != "" {
		digits := leading(s)
		whole, s2 := s[:digits], s[digits:]
		fraction := ""
		if strings.HasPrefix(s2, ".") {
			digits = leading(s2[1:])
			fraction, s2 = strings.TrimRight(s2[1:1+digits], "0"), s2[1+digits:]
			if whole == "" && digits == 0 {
				return 0, notOne
			}
		} else if whole == "" {
			return 0, notOne
		}
		var unit uint64
		for _, u := range units {
			rest, ok := strings.CutPrefix(s2, u.name)
			if ok && (rest == "" || rest[0] == '.' || leading(rest) > 0) {
				unit, s2 = u.ns, rest
				break
			}
		}
		if unit == 0 {
			return 0, notOne
		}
		part, why := multiply(whole, unit)
		if why != "" {
			return 0, why
		}
		if fraction != "" {
			scale := uint64(1)
			for range min(len(fraction), 13) {
				scale *= 10
			}
			rest, why := multiply(fraction, unit)
			if why != "" || len(fraction) > 13 || rest%scale != 0 {
				return 0, "is not in whole milliseconds"
			}
			part += rest / scale
		}
		var carry uint64
		if total, carry = bits.Add64(total, part, 0); carry > 0 {
			return 0, "is too long"
		}
		s = s2
	}
	if total%nsPerMs != 0 {
		return 0, "is not in whole milliseconds"
	}
	return int64(total / nsPerMs), ""
}

// leading counts the digits that text begins with.
func leading(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// multiply is digits times unit; no digits are zero.
func multiply(digits string, unit uint64) (product uint64, why string) {
	if digits == "" {
		return 0, ""
	}
	v, err := strconv.ParseUint(digits, 10, 64)
	high, low := bits.Mul64(v, unit)
	if err != nil || high > 0 || low >= 1<<62 {
		return 0, "is too long"
	}
	return low, ""
}

// formatDuration writes milliseconds so that parseDuration reads the same: 1h30m, 1s500ms.
func formatDuration(ms int64) string {
	var b strings.Builder
	for _, u := range []struct {
		name string
		ms   int64
	}{{"h", 3600_000}, {"m", 60_000}, {"s", 1000}, {"ms", 1}} {
		if n := ms / u.ms; n > 0 {
			b.WriteString(strconv.FormatInt(n, 10) + u.name)
			ms %= u.ms
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}
