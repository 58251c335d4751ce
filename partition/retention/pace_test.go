package retention

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"perdure/fsm/machine"
)

// paced is a clock on which only pauses take time, and which notes them.
type paced struct {
	now    time.Time
	pauses []time.Duration
}

func (c *paced) Now() time.Time { return c.now }

func (c *paced) After(d time.Duration) (<-chan time.Time, func()) {
	c.now = c.now.Add(d)
	c.pauses = append(c.pauses, d)
	fired := make(chan time.Time, 1)
	fired <- c.now
	return fired, func() {}
}

// TestPace: a round spreads what it purges over a time, if that is as much as the round before has found. What is more follows at
// once. Not all partitions begin at the same moment.
func TestPace(t *testing.T) {
	const within, piece = time.Minute, 6 * time.Second // ten pieces
	const n = machine.MaxPurges
	pauses := func(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	for _, c := range []struct {
		name          string
		before, found int
		part          float64
		want          []time.Duration
	}{
		{"as many", 10 * n, 10 * n, 0, pauses(9, piece)},
		{"fewer", 10 * n, 2 * n, 0, pauses(1, piece)},
		{"more", 10 * n, 15 * n, 0, append(pauses(10, piece), pauses(4, 0)...)},
		{"few before", 1, 10 * n, 0, append(pauses(4, 15*time.Second), pauses(5, 0)...)},
		{"the second of three", 10 * n, 10 * n, 1.0 / 3, append(pauses(1, piece/3), pauses(9, piece)...)},
		{"nothing before", 0, 2 * n, 1.0 / 3, pauses(1, 15*time.Second)},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &paced{now: time.UnixMilli(0).Add(1000 * time.Hour)}
			x := New(Options{Policy: mustParse(t, "1h"), Interval: within, Partitions: func() int { return 1 }, Clock: clock, Lifetime: t.Context(),
				Log: slog.New(slog.DiscardHandler)})
			p := newPartition()
			for round, n := range []int{c.before, c.found} {
				for i := range n {
					p.ended("a", "f", fmt.Sprint(round, "-", i), 0)
				}
				clock.pauses = nil
				x.both(p, round*wholeEvery, true, within, c.part)
			}
			if st := x.Status(); st.Purged != uint64(c.before+c.found) {
				t.Errorf("%d were purged, want %d", st.Purged, c.before+c.found)
			}
			if !slices.Equal(clock.pauses, c.want) {
				t.Errorf("paused for %v, want %v", clock.pauses, c.want)
			}
		})
	}
}

// TestPaceOfMany: partitions that do not fit into the places share the time, which is bounded. A round takes no more of it than its
// share.
func TestPaceOfMany(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		led      int
		want     time.Duration
	}{
		{10 * time.Second, 0, 8 * time.Second},
		{10 * time.Second, atOnce, 8 * time.Second},
		{10 * time.Second, atOnce + 1, 4 * time.Second},
		{24 * time.Hour, 1, 48 * time.Second},
	} {
		if within := New(Options{Interval: c.interval}).within(c.led); within != c.want {
			t.Errorf("a round over one of %d partitions goes over %v of %v, want %v", c.led, within, c.interval, c.want)
		}
	}
	now := time.UnixMilli(0)
	p := newPace(now, time.Minute, 10*machine.MaxPurges)
	if d := p.pause(now.Add(20*time.Second), 20*time.Second, machine.MaxPurges); d != time.Minute {
		t.Errorf("a pause of %v after a piece of 20 s", d)
	}
}
