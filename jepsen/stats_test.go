package jepsen

import (
	"testing"
	"time"
)

func seconds(all ...float64) []time.Duration {
	var out []time.Duration
	for _, s := range all {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}

func TestLongestGap(t *testing.T) {
	for _, c := range []struct {
		name     string
		times    []time.Duration
		from, to float64
		want     float64
	}{
		{"nothing at all", nil, 1, 5, 4},
		{"steady", seconds(1, 2, 3, 4, 5), 1, 5, 1},
		{"in the middle", seconds(1, 2, 4.5, 5), 1, 5, 2.5},
		{"from before the window", seconds(0.5, 3, 4, 5), 1, 5, 2.5},
		{"ends after the window", seconds(1, 2, 3, 8, 8.1), 1, 5, 5},
		{"never ends", seconds(1, 2), 1, 5, 3},
		{"later gaps do not count", seconds(1, 2, 3, 4, 5, 9, 20), 1, 5, 1},
		{"unsorted", seconds(5, 1, 4.5, 2), 1, 5, 2.5},
		{"all before", seconds(0.25), 1, 5, 4.75},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := LongestGap(c.times, seconds(c.from)[0], seconds(c.to)[0])
			if want := seconds(c.want)[0]; got != want {
				t.Errorf("%v, expected %v", got, want)
			}
		})
	}
}

func TestSlowTime(t *testing.T) {
	var steady []time.Duration
	for at := time.Duration(0); at < 4*time.Second; at += 10 * time.Millisecond {
		if at < 2*time.Second || at >= 2700*time.Millisecond { // 0.7 s without any
			steady = append(steady, at)
		}
	}
	if got := SlowTime(steady, 0, time.Second, 4*time.Second); got != 700*time.Millisecond {
		t.Errorf("%v, expected 700ms", got)
	}
	if got := SlowTime(steady, 0, time.Second, 2*time.Second); got != 0 {
		t.Errorf("%v before the hole, expected nothing", got)
	}
	if got := SlowTime(nil, 0, 0, time.Second); got != 0 {
		t.Errorf("%v without a rate to compare with, expected nothing", got)
	}
}

func TestSpreadOf(t *testing.T) {
	var all []time.Duration
	for i := 100; i >= 1; i-- {
		all = append(all, time.Duration(i))
	}
	if got, want := SpreadOf(all), (Spread{100, 50, 99, 100}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	if got, want := SpreadOf(all[:1]), (Spread{1, 100, 100, 100}); got != want {
		t.Errorf("of one: %+v, expected %+v", got, want)
	}
	if got := SpreadOf(nil); got != (Spread{}) {
		t.Errorf("of none: %+v", got)
	}
}
