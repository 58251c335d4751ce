package group

import (
	"testing"
	"time"
)

// TestPacer: events and the demand after each.
func TestPacer(t *testing.T) {
	const ms = time.Millisecond
	begin := time.Unix(1000, 0)
	land := func(l lane, commands int, took time.Duration, queued int) func(*pacer, time.Time) {
		return func(p *pacer, now time.Time) { p.land(now, landing{l, commands, queued, took}) }
	}
	launch := func(l lane, commands int) func(*pacer, time.Time) {
		return func(p *pacer, _ time.Time) { p.launch(l, commands) }
	}
	type step struct {
		at    time.Duration // since begin
		event func(*pacer, time.Time)
		small int
		until time.Duration // since begin; 0 for none
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"a lone caller never waits", []step{
			{0, nil, 1, 0},
			{0, launch(small, 1), 1, 0},
			{3 * ms, land(small, 1, 3*ms, 0), 1, 0},
			{4 * ms, launch(small, 1), 1, 0},
			{7 * ms, land(small, 1, 3*ms, 0), 1, 0},
		}},
		{"nor do two", []step{
			{0, launch(small, 1), 1, 0},
			{1 * ms, launch(small, 1), noEntry, 0},
			{3 * ms, land(small, 1, 3*ms, 0), 1, 0},
			{3 * ms, launch(small, 1), noEntry, 0},
			{4 * ms, land(small, 1, 3*ms, 0), 1, 0},
		}},
		{"what comes while several commands are in flight shares an entry", []step{
			{0, launch(small, 2), amplyShared, 0},
		}},
		{"an entry waits for the callers that were answered, for as long as they waited", []step{
			{0, launch(small, 8), amplyShared, 0},
			{3 * ms, land(small, 8, 3*ms, 5), 13, 6 * ms},
			{6*ms - 1, nil, 13, 6 * ms},
			{6 * ms, nil, 1, 0},
		}},
		{"it waits for the one caller and for those that came meanwhile", []step{
			{0, launch(small, 1), 1, 0},
			{3 * ms, land(small, 1, 3*ms, 1), 2, 6 * ms},
		}},
		{"it waits no longer than maxGather", []step{
			{0, launch(small, 2), amplyShared, 0},
			{time.Second, land(small, 2, time.Second, 0), 2, time.Second + maxGather},
			{time.Second + maxGather, nil, 1, 0},
		}},
		{"it waits for no more than share it amply", []step{
			{0, launch(small, maxEntryCommands), amplyShared, 0},
			{3 * ms, land(small, maxEntryCommands, 3*ms, 1000), amplyShared, 6 * ms},
		}},
		{"two entries at most", []step{
			{0, launch(small, 2), amplyShared, 0},
			{0, launch(small, maxEntryCommands), noEntry, 0},
			{3 * ms, land(small, 2, 3*ms, 0), amplyShared, 0},
			{4 * ms, land(small, maxEntryCommands, 4*ms, 0), amplyShared, 8 * ms},
		}},
		{"small commands do not wait for a large one", []step{
			{0, launch(admitted, 1), 1, 0},
			{0, launch(small, 1), noEntry, 0},
			{3 * ms, land(small, 1, 3*ms, 0), 1, 0},
			{9 * ms, land(admitted, 1, 9*ms, 7), 1, 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pacer
			for i, s := range c.steps {
				now := begin.Add(s.at)
				if s.event != nil {
					s.event(&p, now)
				}
				want := demand{small: s.small}
				if s.until != 0 {
					want.until = begin.Add(s.until)
				}
				if got := p.next(now); got != want {
					t.Fatalf("step %d: the demand is %v, want %v", i, got, want)
				}
			}
		})
	}
}
