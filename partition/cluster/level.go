package cluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	dirfsm "perdure/fsm/directory"
	"perdure/fsm/state"
	"perdure/partition/identity"
	"perdure/partition/refusal"
)

const (
	// foundingTimeout bounds how long the directory's leader waits for the founders' levels before it makes
	// the directory.
	foundingTimeout = 3 * time.Second
	// announceTimeout bounds one announcement; announceMin and announceMax bound the pause between two to one
	// leader of the directory. Each may add an entry to a log that is never cut, and an earlier program keeps
	// no levels.
	announceTimeout          = time.Second
	announceMin, announceMax = time.Second, 30 * time.Second
)

// knownLevel is the newest feature level that this program knows.
func (m *Member) knownLevel() uint64 { return cmp.Or(m.FeatureLevel, state.FeatureLevel) }

// common is the cluster's feature level as this node knows it: the directory's, or that of its states if the
// node is alone.
type common struct {
	mu      sync.Mutex
	level   uint64
	changed chan struct{}
}

// get returns the level, and a channel that is closed when it rises.
func (c *common) get() (level uint64, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.level, c.changed
}

// raise raises the level; it ignores a lower one.
func (c *common) raise(level uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if level <= c.level {
		return
	}
	c.level = level
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Level returns the cluster's feature level as this node knows it, and a channel that is closed when it rises.
// The node's leaders propose nothing above it and raise their states to it.
func (m *Member) Level() (level uint64, changed <-chan struct{}) { return m.common.get() }

// RaiseLevel raises the level of a node alone, which has no directory; it ignores a lower one.
func (m *Member) RaiseLevel(level uint64) { m.common.raise(level) }

// followLevel takes over the level of a directory. A node whose program does not know it halts. It must not block.
func (m *Member) followLevel(dir *commandv1.Directory) {
	if known := m.knownLevel(); dir.FeatureLevel > known {
		m.Env.Halt(&state.LevelError{What: "cluster " + dir.ClusterId, Level: dir.FeatureLevel, Known: known})
		return
	}
	m.common.raise(dir.FeatureLevel)
}

// noteLevel keeps the cluster's level in the data directory, so that a program that does not know it refuses to start
// there.
func (m *Member) noteLevel(dir *commandv1.Directory) {
	if dir.FeatureLevel <= m.Identity.Identity().FeatureLevel {
		return
	}
	if err := m.Identity.Update(func(id *identity.Identity) { id.FeatureLevel = dir.FeatureLevel }); err != nil {
		m.Log.Warn("cannot record the feature level", "event", "identity_not_written", "error", err)
	}
}

// announcing is when this node announces its level next, and founding when it first wanted to make the directory. Only
// control touches it.
type announcing struct {
	leader   string
	next     time.Time
	pause    time.Duration
	founding time.Time
}

// announceLevel announces to the directory's leader which level this program knows, unless the directory has
// it. It blocks for announceTimeout at most, or until this node, as the directory's leader, has decided.
func (m *Member) announceLevel(ctx context.Context, dir *commandv1.Directory) {
	known := m.knownLevel()
	var self *commandv1.DirectoryMember
	for _, o := range dir.Members {
		if o.ServerId == m.self.ServerID {
			self = o
		}
	}
	leader, now, a := m.Leader(), m.Clock.Now(), &m.announced
	if self == nil || self.FeatureLevel == known || leader == "" || a.leader == leader && now.Before(a.next) {
		return
	}
	if a.leader == leader {
		a.pause = min(2*a.pause, announceMax)
	} else {
		a.leader, a.pause = leader, announceMin
	}
	a.next = now.Add(a.pause)
	in := &commandv1.JoinRequest{Member: proto.CloneOf(self)}
	in.Member.FeatureLevel = known
	var err error
	if m.Leads() {
		_, err = m.Admit(ctx, in)
	} else {
		var client commandv1.PeersClient
		if client, err = m.Env.Peer(m.AddressOf(leader)); err == nil {
			ctx, cancel := context.WithTimeout(ctx, announceTimeout)
			defer cancel()
			_, err = client.Join(ctx, in)
		}
	}
	if err != nil && m.Lifetime.Err() == nil {
		m.Log.Warn("cannot announce the feature level", "event", "feature_level_not_announced", "level", known, "leader", leader, "error", err)
	}
}

// firstLevel is the level of a new directory: the newest that every founder knows; it notes each founder's in founders.
// wait says to ask again, because a founder has not answered; after foundingTimeout the level is left open.
func (m *Member) firstLevel(ctx context.Context, founders []*commandv1.DirectoryMember) (level uint64, wait bool) {
	said := m.Env.Levels(ctx, founders)
	for _, f := range founders {
		f.FeatureLevel = said[f.ServerId]
	}
	if level := dirfsm.CommonLevel(founders); level > 0 {
		return level, false
	}
	now := m.Clock.Now()
	if m.announced.founding.IsZero() {
		m.announced.founding = now
	}
	return 0, now.Sub(m.announced.founding) < foundingTimeout
}

// leadLevel sets the level of a directory that has none: that which this node's states have reached, or, while the
// cluster is being made, the newest that all members know. With AutoUpgrade it raises the level whenever it can.
func (m *Member) leadLevel(ctx context.Context, dir *commandv1.Directory) {
	common, to := dirfsm.CommonLevel(dir.Members), dir.FeatureLevel
	if dir.FeatureLevel == 0 {
		to = m.Env.StateLevel()
	}
	if m.AutoUpgrade || dir.FeatureLevel == 0 && dir.State == commandv1.DirectoryState_DIRECTORY_STATE_CREATING {
		to = max(to, common)
	}
	if to > dir.FeatureLevel && to <= common {
		m.warn("cannot raise the cluster's feature level", m.raise(ctx, to))
	}
}

func (m *Member) raise(ctx context.Context, level uint64) error {
	err := m.Propose(ctx, &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Raise{Raise: &commandv1.RaiseClusterLevel{Level: level}}})
	if err == nil {
		m.Log.Info("cluster feature level raised", "event", "cluster_level_raised", "level", level)
	}
	return err
}

// Upgrade raises the cluster's level, as the directory's leader. A member's answer counts; a member that does
// not answer counts with the level that it announced last. A node alone has no directory and must not call
// it.
//
// Errors are *api.Error: FEATURE_LEVEL, with the members that do not know the level or were not heard from;
// NOT_LEADER, TRY_LATER.
func (m *Member) Upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	dir, err := m.Confirmed(ctx)
	if err != nil {
		return nil, err
	}
	if dir.GetState() != commandv1.DirectoryState_DIRECTORY_STATE_READY {
		return nil, refusal.TryLater(Group, "the cluster is still being created")
	}
	members := proto.CloneOf(dir).Members
	said := m.Env.Levels(ctx, members)
	to := in.Level
	for _, o := range members {
		if level, answered := said[o.ServerId]; answered { // 0 from a program that announces none
			o.FeatureLevel = level
		}
		if in.Level == 0 {
			to = max(to, o.FeatureLevel)
		}
	}
	to = max(to, dir.FeatureLevel)
	if why := dirfsm.Lacking(members, to); why != "" {
		return nil, api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "feature level %d is not known to all members of cluster %s: %s", to, dir.ClusterId, why).
			With("level", fmt.Sprint(to)).With("cluster_level", fmt.Sprint(dir.FeatureLevel))
	}
	for i, o := range members {
		if o.FeatureLevel != dir.Members[i].FeatureLevel {
			if err := m.Propose(ctx, &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{Member: o}}}); err != nil {
				return nil, err
			}
		}
	}
	if err := m.raise(ctx, to); err != nil {
		return nil, err
	}
	return &perdurev1.UpgradeResponse{From: dir.FeatureLevel, Level: to}, nil
}
