package membership

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"perdure/internal/clock"
)

func TestClockOnTheWire(t *testing.T) {
	now := time.Unix(1_700_000_000, 5)
	if n, ok := decodeClock(encodeClock(now)); !ok || n != now.UnixNano() {
		t.Errorf("got %d %v", n, ok)
	}
	for _, bad := range [][]byte{nil, {1, 2}, make([]byte, 9), encodeClock(time.Unix(-5, 0)), {2, 0, 0, 0, 0, 0, 0, 0, 1}} {
		if n, ok := decodeClock(bad); ok {
			t.Errorf("%x was taken for the clock %d", bad, n)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		in   []time.Duration
		want time.Duration
	}{
		{[]time.Duration{7}, 7},
		{[]time.Duration{0, 10}, 5},
		{[]time.Duration{100, 0, -3}, 0},
		{[]time.Duration{9, 1, 3, 100}, 6},
		{[]time.Duration{maxClock - 1, -maxClock + 1}, 0},
	} {
		if got := median(tc.in); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.in, got, tc.want)
		}
	}
}

// A clock that is never set is known within half of the best round trip, and drift, whatever the order of samples.
func TestSamplesStayWithinTheirError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := make(clocks)
		const wall0 = int64(1_700_000_000_000_000_000)
		lead := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "lead"))
		var mono, bound time.Duration
		for range rapid.IntRange(1, 20).Draw(t, "samples") {
			mono += time.Duration(rapid.IntRange(1, 3000).Draw(t, "pause")) * time.Millisecond
			rtt := time.Duration(rapid.IntRange(0, 300).Draw(t, "rtt")) * time.Millisecond
			back := time.Duration(rapid.Int64Range(0, int64(rtt)).Draw(t, "way back"))
			c.observe("x", wall0+int64(lead)+int64(mono-back), rtt, mono)
			bound = max(bound, rtt/2)
		}
		got, ok := c.ahead("x", wall0+int64(mono), mono, time.Hour)
		if err := (got - lead).Abs(); !ok || err > bound+driftSlack {
			t.Fatalf("got %v, want %v within %v", got, lead, bound)
		}
	})
}

func TestSampleWithTheShortestRoundTripStays(t *testing.T) {
	c := make(clocks)
	const wall = int64(1_000_000_000_000)
	see := func(lead, rtt, mono time.Duration) {
		c.observe("x", wall+int64(mono+lead-rtt/2), rtt, mono)
	}
	ahead := func(mono time.Duration) time.Duration {
		d, ok := c.ahead("x", wall+int64(mono), mono, time.Minute)
		if !ok {
			t.Fatalf("no sample at %v", mono)
		}
		return d
	}
	see(10*time.Millisecond, 2*time.Millisecond, time.Second)
	see(60*time.Millisecond, 200*time.Millisecond, 2*time.Second) // within its error of the first
	if d := ahead(2 * time.Second); d != 10*time.Millisecond {
		t.Errorf("a worse sample that agrees changed the clock to %v", d)
	}
	see(10*time.Second, 200*time.Millisecond, 3*time.Second) // it was set
	if d := ahead(3 * time.Second); d != 10*time.Second {
		t.Errorf("a clock that was set is still believed to be %v ahead", d)
	}
	see(10*time.Second+time.Millisecond, 300*time.Millisecond, 3*time.Second+sampleAge)
	if d := ahead(3*time.Second + sampleAge); d != 10*time.Second+time.Millisecond {
		t.Errorf("an old sample still says %v", d)
	}
	// Our own clock is set back by a minute: it shows without a new sample.
	d, _ := c.ahead("x", wall+int64(33*time.Second)-int64(time.Minute), 3*time.Second+sampleAge, time.Minute)
	if want := time.Minute + 10*time.Second + time.Millisecond; d != want {
		t.Errorf("after our clock went back it is %v ahead, want %v", d, want)
	}
	if _, ok := c.ahead("x", wall, 5*time.Minute, time.Minute); ok {
		t.Error("a sample counts although it is too old")
	}
}

// aheadBy is the machine's clock set forward.
type aheadBy struct {
	clock.System
	by time.Duration
}

func (c aheadBy) Now() time.Time { return c.System.Now().Add(c.by) }

func TestOffsetsOfACluster(t *testing.T) {
	t.Parallel() // it waits most of the time
	shift := func(d time.Duration) func(*Config) {
		return func(c *Config) { c.Clock = aheadBy{by: d} }
	}
	a := start(t, "a", shift(0))
	if d, known := a.Offset(); known {
		t.Errorf("alone, the offset is known to be %v", d)
	}
	b := start(t, "b", func(c *Config) { shift(100 * time.Millisecond)(c); join(a)(c) })
	c := start(t, "c", func(c *Config) { shift(time.Hour)(c); join(a)(c) })
	near := func(got, want time.Duration) bool { return (got - want).Abs() < 80*time.Millisecond }
	for _, tc := range []struct {
		n     *node
		ahead map[string]time.Duration
		own   time.Duration
	}{
		{a, map[string]time.Duration{"a-1": 0, "b-1": 100 * time.Millisecond, "c-1": time.Hour}, -100 * time.Millisecond},
		{b, map[string]time.Duration{"a-1": -100 * time.Millisecond, "b-1": 0, "c-1": time.Hour - 100*time.Millisecond}, 0},
		{c, map[string]time.Duration{"a-1": -time.Hour, "b-1": 100*time.Millisecond - time.Hour, "c-1": 0}, time.Hour - 100*time.Millisecond},
	} {
		eventually(t, "the clocks as "+tc.n.Self().NodeID+" measures them", func() (string, bool) {
			offsets := tc.n.Offsets()
			ok := len(offsets) == 3
			for server, want := range tc.ahead {
				ok = ok && near(offsets[server], want)
			}
			d, known := tc.n.Offset()
			return d.String(), ok && known && near(d, tc.own)
		})
	}
	// A dead member's clock does not count.
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	a.sees(t, "a-1", "b-1")
	eventually(t, "our clock to be 50 ms behind the middle of two", func() (string, bool) {
		d, known := a.Offset()
		offsets := a.Offsets() // those of a and b
		return fmt.Sprint(d, offsets), known && near(d, -50*time.Millisecond) && len(offsets) == 2
	})
}

// The clock of a node outside our cluster has no say in it.
func TestOffsetIgnoresFreshNodes(t *testing.T) {
	t.Parallel() // it waits most of the time
	a := start(t, "a", nil)
	b := start(t, "b", func(c *Config) {
		join(a)(c)
		c.Self.ClusterID = ""
		c.Clock = aheadBy{by: time.Hour}
	})
	a.sees(t, "a-1", "b-1")
	eventually(t, "the fresh node to measure the other clock", func() (string, bool) {
		d, known := b.Offset()
		return d.String(), known && (d-30*time.Minute).Abs() < time.Second
	})
	if d, known := a.Offset(); known {
		t.Errorf("a fresh node's clock gives the offset %v", d)
	}
	if offsets := a.Offsets(); len(offsets) != 1 {
		t.Errorf("offsets %v, want only our own", offsets)
	}
}
