package durable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure/internal/testkit"
)

// A lease is counted from a moment before its acquisition, and nothing begins in its last eighth.
func TestLeaseLeft(t *testing.T) {
	const lease = 8 * time.Second
	t0 := time.UnixMilli(1_700_000_000_000)
	for _, c := range []struct {
		what      string
		from, now time.Time
		want      time.Duration
	}{
		{"nothing is known", time.Time{}, t0, 0},
		{"just made", t0, t0, 7 * time.Second},
		{"a while ago", t0, t0.Add(3 * time.Second), 4 * time.Second},
		{"in the margin", t0, t0.Add(7 * time.Second), 0},
		{"over", t0, t0.Add(9 * time.Second), -2 * time.Second},
		{"the clock was set back", t0, t0.Add(-time.Hour), 7 * time.Second},
	} {
		if got := leaseLeft(c.from, c.now, lease); got != c.want {
			t.Errorf("%s: %v left, want %v", c.what, got, c.want)
		}
	}
}

// Of the two clocks that a time.Time reads, the one on which more has passed counts. The monotonic clock
// pauses in a suspended machine; the wall clock may be set back.
func TestElapsed(t *testing.T) {
	from := time.Now() // has both
	for _, c := range []struct {
		what                  string
		wall, monotonic, want time.Duration
	}{
		{"both went on", time.Second, time.Second, time.Second},
		{"the machine was suspended", time.Minute, time.Second, time.Minute},
		{"the wall's clock was set back", -time.Minute, time.Second, time.Second},
		{"the wall's clock was set forward", time.Hour, time.Second, time.Hour},
		{"both readings were taken at once, and the clock was set back between", -time.Minute, 0, 0},
	} {
		if got := elapsed(from, testkit.Reading(t, from, c.wall, c.monotonic)); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if got := elapsed(from.Round(0), from.Round(0).Add(-time.Minute)); got != 0 {
		t.Errorf("without a monotonic clock, set back: %v", got)
	}
}

func TestTimestamps(t *testing.T) {
	t0 := time.UnixMilli(1_700_000_000_000)
	s := &timestamps{step: time.Second, keep: 3}
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	for _, c := range []struct {
		at   time.Duration
		want uint64
	}{{0, 1}, {999 * time.Millisecond, 1}, {time.Second, 2}, {1500 * time.Millisecond, 2}, {5 * time.Second, 3}, {6 * time.Second, 4}, {6 * time.Second, 4}} {
		if got := s.next(at(c.at)); got != c.want {
			t.Errorf("at %v: number %d, want %d", c.at, got, c.want)
		}
	}
	for n, want := range map[uint64]time.Time{0: {}, 1: {}, 2: at(time.Second), 3: at(5 * time.Second), 4: at(6 * time.Second), 5: {}, 1 << 63: {}} {
		if got := s.when(n); !got.Equal(want) {
			t.Errorf("number %d stands for %v, want %v", n, got, want)
		}
	}
	lease := newTimestamps(8 * time.Second)
	first := lease.next(t0)
	for d := time.Duration(0); d <= 8*time.Second; d += 10 * time.Millisecond {
		lease.next(at(d))
	}
	if got := lease.when(first); !got.Equal(t0) {
		t.Errorf("after a lease the first number stands for %v", got)
	}
}

func token(id string, incarnation, version uint64) tokenKey {
	return tokenKey{"default", id, incarnation, version}
}

func TestEnded(t *testing.T) {
	t0 := time.UnixMilli(1_700_000_000_000)
	e := newEnded(5 * time.Second)
	e.add(token("x", 3, 5), t0)
	e.add(token("x", 3, 4), t0) // an earlier one that took longer to end
	for key, want := range map[tokenKey]bool{
		token("x", 3, 5): true, token("x", 3, 4): true, token("x", 2, 9): true,
		token("x", 3, 6): false, token("x", 4, 1): false, token("y", 3, 5): false,
	} {
		if got := e.has(key); got != want {
			t.Errorf("%v: %v, want %v", key, got, want)
		}
	}
	if other := (tokenKey{"other", "x", 3, 5}); e.has(other) {
		t.Error("an id of another namespace counts")
	}
	if !e.covers(t0.Add(-time.Hour)) || e.covers(time.Time{}) {
		t.Error("nothing has gone: every moment is covered, and no moment is none")
	}
	// Two leases later it may go, and nothing that could come again is uncovered.
	e.add(token("y", 1, 1), t0.Add(9*time.Second))
	if !e.has(token("x", 3, 5)) {
		t.Error("it went too early")
	}
	e.add(token("z", 1, 1), t0.Add(11*time.Second))
	if e.has(token("x", 3, 5)) || !e.has(token("y", 1, 1)) || !e.covers(t0) {
		t.Errorf("left %v, gone up to %v", e.byExec, e.gone)
	}
}

// TestEndedTwin: random tokens are remembered, replaced and forgotten as by one that looks at all of them.
func TestEndedTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	now := time.UnixMilli(1_700_000_000_000)
	e := newEnded(5 * time.Second)
	type noted struct {
		key  tokenKey
		at   time.Time
		last bool
	}
	var all []*noted
	for range testkit.Choose(3_000, 20_000, 500_000) {
		now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond)
		key := token(fmt.Sprint(random.IntN(60)), uint64(random.IntN(3)), uint64(random.IntN(4)))
		later := slices.ContainsFunc(all, func(o *noted) bool { return o.last && o.key.exec() == key.exec() && key.upTo(o.key) && key != o.key })
		e.add(key, now)
		if !later {
			for _, o := range all {
				o.last = o.last && o.key.exec() != key.exec()
			}
			all = append(all, &noted{key, now, true})
			for len(all) > 0 && elapsed(all[0].at, now) > e.lasts { // only an added token makes others go
				all = all[1:]
			}
		}
		for range 4 {
			asked := token(fmt.Sprint(random.IntN(60)), uint64(random.IntN(3)), uint64(random.IntN(4)))
			want := slices.ContainsFunc(all, func(o *noted) bool { return o.last && o.key.exec() == asked.exec() && asked.upTo(o.key) })
			if got := e.has(asked); got != want {
				t.Fatalf("%v: %v, want %v", asked, got, want)
			}
		}
	}
}

// The memory is bounded in entries and in bytes; what does not fit is not trusted any more.
func TestEndedIsBounded(t *testing.T) {
	t0 := time.UnixMilli(1_700_000_000_000)
	for _, c := range []struct {
		what string
		id   func(i int) string
		n    int
	}{
		{"entries", func(i int) string { return fmt.Sprint(i) }, maxEnded + 10},
		{"bytes", func(i int) string { return strings.Repeat("x", 4096) + fmt.Sprint(i) }, maxEndedBytes/4096 + 10},
		{"one execution", func(int) string { return "x" }, 4 * maxEnded},
	} {
		e := newEnded(time.Hour)
		for i := range c.n {
			e.add(token(c.id(i), 1, uint64(i)), t0.Add(time.Duration(i)*time.Millisecond))
		}
		if len(e.byExec) > maxEnded || e.bytes > maxEndedBytes || e.next-e.first > 2*maxEnded || len(e.tokens) > 4*maxEnded {
			t.Errorf("%s: %d entries, %d bytes, %d in order", c.what, len(e.byExec), e.bytes, e.next-e.first)
		}
		if !e.has(token(c.id(c.n-1), 1, uint64(c.n-1))) {
			t.Errorf("%s: the last one is not there", c.what)
		}
		if c.what == "one execution" {
			continue
		}
		if e.has(token(c.id(0), 1, 0)) || e.covers(t0) || !e.covers(t0.Add(time.Duration(c.n)*time.Millisecond)) {
			t.Errorf("%s: the first one went, and what was acquired before %v is trusted", c.what, e.gone)
		}
	}
}
