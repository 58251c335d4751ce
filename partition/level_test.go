package partition

import (
	"fmt"
	"testing"

	"perdure/fsm/state"
)

// stateLevel is the feature level of a partition's state at a member; 0 if it cannot be read.
func stateLevel(m *member, p uint32) uint64 {
	if m.Node == nil {
		return 0
	}
	level, err := m.router.slots[p].Load().level()
	if err != nil {
		return 0
	}
	return level
}

// A new cluster begins at the newest level that all of its members know, and rises when the last one has been upgraded.
func TestFeatureLevelRises(t *testing.T) {
	const older = state.FeatureLevel - 1
	node := 0
	all := newCluster(t, 2, func(c *Config) {
		if node++; node == 3 {
			c.featureLevel = older
		}
	})
	at := func(level uint64) {
		t.Helper()
		waitFor(t, fmt.Sprintf("all states are at level %d", level), func() bool {
			for _, m := range all {
				for p := range uint32(2) {
					if have := stateLevel(m, p); have > level {
						t.Fatalf("%s: partition %d is at level %d, beyond %d", m.cfg.NodeID, p, have, level)
					} else if m.Node != nil && have < level {
						return false
					}
				}
			}
			return true
		}, func() string {
			var out []uint64
			for _, m := range all {
				out = append(out, stateLevel(m, 0), stateLevel(m, 1))
			}
			return fmt.Sprint(out)
		})
	}
	at(older)
	for p := range uint32(2) {
		if level, err := leaderOf(t, all, p).commonLevel(bg(t), p); err != nil || level != older {
			t.Errorf("partition %d: all know level %d, %v", p, level, err)
		}
	}
	// While the older one is away nobody knows what it will be when it comes back.
	all[2].stop(t)
	for p := range uint32(2) {
		if level, err := leaderOf(t, all, p).commonLevel(bg(t), p); err == nil {
			t.Errorf("partition %d: without the third member all know level %d", p, level)
		}
	}
	all[2].cfg.featureLevel = 0
	all[2].start(t)
	ready(t, all[2].Node)
	at(state.FeatureLevel)
}

// A node that is alone begins at the newest level: nothing that it serves is done the old way.
func TestFeatureLevelAlone(t *testing.T) {
	n := newMemNode(t, 2)
	ready(t, n)
	for p := range uint32(2) {
		if have, err := n.router.slots[p].Load().level(); err != nil || have != state.FeatureLevel {
			t.Errorf("partition %d is at level %d, %v", p, have, err)
		}
	}
}

// A new leader proposes nothing that a member's program may not know: the others would stop.
func TestOlderMembersGoOn(t *testing.T) {
	const older = state.LevelLeases - 1
	all := newClusterWith(t, 3, neverActs, func(c *Config) { c.featureLevel = older })
	at := all[0]
	w := at.Dispatcher().Attach(spec("w", 1, "f"))
	defer w.Detach()
	const p = 1
	id := startIn(t, at.router, p, "x")
	if got := deliver(t, w); got.Id != id {
		t.Fatalf("told of %v", got)
	}
	move(t, all, p)
	if level := stateLevel(leaderOf(t, all, p), p); level != older {
		t.Errorf("the new leader has raised the level to %d, and the members know %d", level, older)
	}
}
