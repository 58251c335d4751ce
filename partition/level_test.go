package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/partition/identity"
	"perdure/partition/stable"
)

// stateLevel is the feature level of a partition's state at a member; 0 if it cannot be read.
func stateLevel(m *member, p uint32) uint64 {
	if m.Node == nil {
		return 0
	}
	level, err := m.router.slots[p].Load().FeatureLevel()
	if err != nil {
		return 0
	}
	return level
}

// levels waits until every state of the members that run is at a level, and fails if one is beyond it.
func levels(t *testing.T, all []*member, partitions uint32, level uint64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("all states are at level %d", level), func() bool {
		for _, m := range all {
			for p := range partitions {
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

// announced waits until a member's directory says which levels the members know.
func announced(t *testing.T, at *member, want ...uint64) {
	t.Helper()
	var have []uint64
	waitFor(t, fmt.Sprintf("the directory says that the members know %d", want), func() bool {
		have = nil
		for _, m := range at.Directory().GetMembers() {
			have = append(have, m.FeatureLevel)
		}
		return slices.Equal(have, want)
	}, func() string { return fmt.Sprint(have) })
}

// A new cluster begins at the newest level that all of its members know. It stays there when they are upgraded, so that
// they can go back, until an operator raises it. Raising it too early is refused and names the members.
func TestClusterUpgrade(t *testing.T) {
	t.Parallel() // it waits most of the time
	const older, newest, partitions = state.FeatureLevel - 1, state.FeatureLevel, 2
	node := 0
	all := newCluster(t, partitions, func(c *Config) {
		if node++; node == 3 {
			c.featureLevel = older
		}
	})
	restart := func(m *member, level uint64) {
		t.Helper()
		m.stop(t)
		m.cfg.featureLevel = level
		m.start(t)
		ready(t, m.Node)
	}
	refused := func(at *member, level uint64, says string) {
		t.Helper()
		if _, err := at.Operator().Upgrade(bg(t), &perdurev1.UpgradeRequest{Level: level}); reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL || !strings.Contains(err.Error(), says) {
			t.Errorf("an upgrade to %d at %s: %v, must say %q", level, at.cfg.NodeID, err, says)
		}
	}
	levels(t, all, partitions, older)
	announced(t, all[1], newest, newest, older)
	for _, m := range all {
		refused(m, 0, fmt.Sprint("node n3 knows up to ", older))
	}
	refused(all[0], newest+1, fmt.Sprintf("node n1 knows up to %d, node n2 knows up to %d, node n3 knows up to %d", newest, newest, older))
	// The directory knows what a member that is away announced.
	all[2].stop(t)
	refused(all[0], 0, fmt.Sprint("node n3 knows up to ", older))
	all[2].cfg.featureLevel = 0
	all[2].start(t)
	ready(t, all[2].Node)
	announced(t, all[0], newest, newest, newest)
	// And back.
	restart(all[0], older)
	announced(t, all[1], older, newest, newest)
	refused(all[1], 0, fmt.Sprint("node n1 knows up to ", older))
	restart(all[0], 0)
	announced(t, all[1], newest, newest, newest)
	levels(t, all, partitions, older)
	st, err := all[1].Operator().ClusterStatus(bg(t))
	if err != nil || st.FeatureLevel != older || st.Nodes[0].FeatureLevel != newest || st.Partitions[0].FeatureLevel != older {
		t.Errorf("before the upgrade: %v, %v", st, err)
	}
	up, err := all[1].Operator().Upgrade(bg(t), &perdurev1.UpgradeRequest{})
	if err != nil || up.From != older || up.Level != newest || len(up.Waiting) > 0 {
		t.Fatalf("the upgrade: %v, %v", up, err)
	}
	levels(t, all, partitions, newest)
	if up, err := all[2].Operator().Upgrade(bg(t), &perdurev1.UpgradeRequest{Level: older}); err != nil || up.From != newest || up.Level != newest {
		t.Errorf("again: %v, %v", up, err)
	}
	// An earlier program is refused by name: by what its data notes, by its states, and by the directory.
	waitFor(t, "n3 notes the level", func() bool { return all[2].file.Identity().FeatureLevel == newest }, func() string { return "" })
	file := all[2].file
	all[2].stop(t)
	all[2].cfg.featureLevel = older
	wantLevelError(t, all[2])
	if err := file.Update(func(id *identity.Identity) { id.FeatureLevel = 0 }); err != nil {
		t.Fatal(err)
	}
	n, err := Start(all[2].cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeNode(t, n)
	select {
	case <-n.Done():
	case <-time.After(waitLimit):
		t.Fatal("a program that does not know the cluster's level keeps running")
	}
	var newer *state.LevelError
	if !errors.As(n.Err(), &newer) || newer.Level != newest || newer.Known != older {
		t.Errorf("halted by %v", n.Err())
	}
}

func wantLevelError(t *testing.T, m *member) {
	t.Helper()
	n, err := Start(m.cfg)
	if err == nil {
		closeNode(t, n)
	}
	var newer *state.LevelError
	if !errors.As(err, &newer) || newer.Level != state.FeatureLevel || newer.Known != m.cfg.knownLevel() {
		t.Errorf("started: %v", err)
	}
}

// A member whose states are at a level that the program does not know refuses to start: it does not halt one replica
// after the other.
func TestStateOfANewerLevel(t *testing.T) {
	n := &Node{identity: identity.Identity{Expect: 3}}
	want := &fsm.DamagedError{Dir: "state-0000", Err: &state.LevelError{What: "the state", Level: 9, Known: 5}}
	if err := n.tolerate(nil, want); err != want {
		t.Errorf("tolerated: %v", err)
	}
}

// A node that is alone begins at the newest level. Its data stay at their level under a newer program until an upgrade.
func TestFeatureLevelAlone(t *testing.T) {
	t.Parallel() // it waits most of the time
	const older, newest = state.FeatureLevel - 1, state.FeatureLevel
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 2)
	cfg.featureLevel = older
	m := &member{cfg: cfg}
	start := func(level uint64) {
		t.Helper()
		m.start(t)
		ready(t, m.Node)
		levels(t, []*member{m}, 2, level)
		if st, err := m.Operator().ClusterStatus(bg(t)); err != nil || st.FeatureLevel != level {
			t.Errorf("at level %d, %v", st.GetFeatureLevel(), err)
		}
	}
	start(older)
	if _, err := m.Operator().Upgrade(bg(t), &perdurev1.UpgradeRequest{Level: newest}); reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL {
		t.Errorf("an upgrade beyond what the program knows: %v", err)
	}
	m.stop(t)
	m.cfg.featureLevel = 0
	start(older)
	if up, err := m.Operator().Upgrade(bg(t), &perdurev1.UpgradeRequest{}); err != nil || up.From != older || up.Level != newest || len(up.Waiting) > 0 {
		t.Errorf("the upgrade: %v, %v", up, err)
	}
	levels(t, []*member{m}, 2, newest) // by the leaderships that were there before
	m.stop(t)
	start(newest)
	fresh := &member{cfg: memConfig(t, vfs.NewMem(), stable.NewMemory(), 2)}
	m.stop(t)
	m = fresh
	start(newest)
}

// With AutoUpgrade the level rises when the last member knows the next one.
func TestAutoUpgrade(t *testing.T) {
	t.Parallel() // it waits most of the time
	const older = state.FeatureLevel - 1
	node := 0
	all := newCluster(t, 2, func(c *Config) {
		c.AutoUpgrade = true
		if node++; node == 3 {
			c.featureLevel = older
		}
	})
	levels(t, all, 2, older)
	announced(t, all[0], state.FeatureLevel, state.FeatureLevel, older)
	levels(t, all, 2, older)
	all[2].stop(t)
	all[2].cfg.featureLevel = 0
	all[2].start(t)
	ready(t, all[2].Node)
	levels(t, all, 2, state.FeatureLevel)
}

// A new leader proposes nothing that a member's program may not know: the others would stop.
func TestOlderMembersGoOn(t *testing.T) {
	t.Parallel() // it waits most of the time
	const older = state.LevelLeases - 1
	all := newClusterWith(t, 3, neverActs, func(c *Config) { c.featureLevel = older })
	at := all[0]
	w := at.Dispatcher().Attach(spec("w", 1, "f"))
	defer w.Detach()
	const p = 1
	id := startIn(t, at.router, p, "x")
	if got := deliver(t, w); got.Id != id {
		t.Fatalf("received %v", got)
	}
	move(t, all, p)
	if level := stateLevel(leaderOf(t, all, p), p); level != older {
		t.Errorf("the new leader has raised the level to %d, and the members know %d", level, older)
	}
}
