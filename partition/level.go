package partition

import (
	"context"
	"fmt"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/partition/raftgroup"
)

const (
	// levelEvery is how often a leader asks the members whether they know a newer feature level than the state's.
	levelEvery = time.Second
	// levelTimeout bounds one question to all members. A leader of a new partition waits that long before it serves.
	levelTimeout = 300 * time.Millisecond
)

// knownLevel is the newest feature level that this program knows.
func (c *Config) knownLevel() uint64 {
	if c.featureLevel != 0 {
		return c.featureLevel
	}
	return state.FeatureLevel
}

// commonLevel returns the newest feature level that every member of the cluster knows. It blocks for levelTimeout at
// most. A member that does not answer, or runs a program that does not say, is an error.
func (n *Node) commonLevel(ctx context.Context, partition uint32) (uint64, error) {
	level := n.cfg.knownLevel()
	if n.identity.Alone() {
		return level, nil
	}
	members := n.cluster.Members()
	if len(members) == 0 {
		return 0, fmt.Errorf("the members are not known yet")
	}
	ctx, cancel := context.WithTimeout(ctx, levelTimeout)
	defer cancel()
	type answer struct {
		level uint64
		err   error
	}
	answers := make(chan answer, len(members))
	asked := 0
	for _, m := range members {
		if m.ServerId == n.identity.ServerID {
			continue
		}
		asked++
		go func() {
			client, err := n.peers.Client(n.cluster.AddressOf(m.ServerId))
			var st *commandv1.NodeStatus
			if err == nil {
				st, err = client.Status(ctx, &commandv1.StatusRequest{Partition: &partition})
			}
			switch {
			case err != nil:
				err = fmt.Errorf("node %s does not answer: %w", m.NodeId, err)
			case st.ServerId != m.ServerId:
				err = fmt.Errorf("server %s answers at the address of node %s", st.ServerId, m.NodeId)
			case st.FeatureLevel == 0:
				err = fmt.Errorf("node %s runs a program that names no feature level", m.NodeId)
			}
			answers <- answer{st.GetFeatureLevel(), err}
		}()
	}
	var failed error
	for range asked {
		a := <-answers
		if a.err != nil {
			failed = a.err
		} else {
			level = min(level, a.level)
		}
	}
	return level, failed
}

// raiseNew raises the level of a state that holds nothing yet, before this leadership serves: a new cluster begins at
// the newest level. It gives up after levelTimeout; keepRaising goes on.
func (l *leadership) raiseNew() {
	r := l.r
	if have, err := r.level(); err != nil || have != 0 || r.commonLevel == nil {
		return
	}
	level, err := r.commonLevel(l.ctx, r.id)
	if err != nil {
		return
	}
	b, err := fsm.EncodeEntry(&commandv1.Entry{Commands: []*commandv1.Command{raiseLevel(level)}})
	if err == nil {
		err = raftgroup.Await(r.raft.Apply(b, raftgroup.EnqueueTimeout), r.killed, l.ctx.Done())
	}
	if err != nil && l.ctx.Err() == nil {
		r.log.Warn("the feature level of a new partition could not be raised yet", "event", "feature_level_waits", "partition", r.id, "error", err)
	}
}

// keepRaising raises the state's feature level until it is the newest that this program knows, or the leadership ends.
// It asks again every levelEvery: a member that runs an older program, or is not there, keeps the level down.
func (l *leadership) keepRaising() {
	r := l.r
	for said := ""; ; {
		have, err := r.level()
		if err == nil && have >= state.FeatureLevel || r.commonLevel == nil {
			return
		}
		level := uint64(0)
		if err == nil {
			level, err = r.commonLevel(l.ctx, r.id)
		}
		if err == nil && level > have {
			if _, err = r.proposeUnder(l.ctx, l, raiseLevel(level)); err == nil {
				r.log.Info("feature level raised", "event", "feature_level_raised", "partition", r.id, "from", have, "to", level)
				continue
			}
		}
		why := fmt.Sprintf("the members know level %d", level)
		if err != nil {
			why = err.Error()
		}
		if l.ctx.Err() == nil && why != said {
			said = why
			r.log.Info("feature level waits for the members", "event", "feature_level_waits", "partition", r.id, "level", have, "why", why)
		}
		c, stop := r.clock.After(levelEvery)
		select {
		case <-c:
		case <-l.ctx.Done():
			stop()
			return
		}
		stop()
	}
}

func raiseLevel(level uint64) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: level}}}
}

// level is the feature level of this replica's state; 0 if nothing was applied yet.
func (r *Replica) level() (level uint64, err error) {
	err = r.store.View(func(st state.Reader) (err error) {
		level, err = state.Level(st)
		return err
	})
	return level, err
}
