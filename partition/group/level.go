package group

import (
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/partition/raftgroup"
)

// levelRetry is how long a leader waits after a failed attempt to raise its state's level.
const levelRetry = time.Second

// FeatureLevel returns the feature level of this replica's state, at least state.BaseLevel.
func (c *core) FeatureLevel() (level uint64, err error) {
	err = c.store.Peek(func(st state.Reader) (err error) {
		level, err = state.Level(st)
		return err
	})
	return max(level, state.BaseLevel), err
}

// Gate refuses a command of a kind that a member may not know: neither the cluster nor this replica's state
// has reached its level. A state at a level proves that every member knew it. encode calls Gate for each
// command that goes into a log.
func (c *core) Gate(cmd *commandv1.Command) *api.Error {
	need, known := machine.LevelOf(cmd)
	if !known {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "partition %d: a command of a kind that this program does not know: it comes from a newer version", c.id)
	}
	if need <= state.BaseLevel || c.env.ClusterLevel == nil {
		return nil
	}
	have, _ := c.env.ClusterLevel()
	if need > have {
		if level, err := c.FeatureLevel(); err == nil {
			have = max(have, level)
		}
	}
	if need <= have {
		return nil
	}
	kind := cmd.ProtoReflect()
	return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "partition %d: command %s needs feature level %d, the cluster is at %d",
		c.id, kind.WhichOneof(kind.Descriptor().Oneofs().ByName("kind")).Name(), need, have)
}

// encode makes every entry of the log: each command passes the gate.
func (c *core) encode(entry *commandv1.Entry) ([]byte, error) {
	for _, cmd := range entry.Commands {
		if err := c.Gate(cmd); err != nil {
			return nil, err
		}
	}
	return fsm.EncodeEntry(entry)
}

// levelCommand returns the command that raises this replica's state to the cluster's level; nil when the state has
// that level.
func (c *core) levelCommand() (*commandv1.Command, error) {
	to, _ := c.env.ClusterLevel()
	have, err := c.FeatureLevel()
	cmd := &commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: to}}}
	if need, known := machine.LevelOf(cmd); err != nil || have >= to || !known || need > to {
		return nil, err
	}
	return cmd, nil
}

// raiseLevelFirst raises the state's level before this leadership serves: a new partition begins at the cluster's
// level. On failure raiseLevels tries again.
func (l *leadership) raiseLevelFirst() {
	r := l.r
	if r.env.ClusterLevel == nil {
		return
	}
	cmd, err := r.levelCommand()
	if cmd != nil {
		var b []byte
		if b, err = r.encode(&commandv1.Entry{Commands: []*commandv1.Command{cmd}}); err == nil {
			future, full := r.apply(b)
			if full != nil {
				return // the disk's guard logs it
			}
			err = raftgroup.Await(future, r.killed, l.ctx.Done())
		}
	}
	if err != nil && l.ctx.Err() == nil {
		r.log.Warn("cannot raise the feature level yet", "event", "feature_level_waits", "partition", r.id, "error", err)
	}
}

// raiseLevels raises the state's level whenever the cluster's rises, until the leadership ends.
func (l *leadership) raiseLevels() {
	r := l.r
	if r.env.ClusterLevel == nil {
		return
	}
	for l.ctx.Err() == nil {
		to, changed := r.env.ClusterLevel()
		cmd, err := r.levelCommand()
		if cmd != nil {
			if _, err = r.commands.proposeUnder(l.ctx, l, cmd); err == nil {
				r.log.Info("feature level raised", "event", "feature_level_raised", "partition", r.id, "to", to)
			}
		}
		var retry <-chan time.Time
		stop := func() {}
		if err != nil {
			retry, stop = r.clock.After(levelRetry)
		}
		select {
		case <-changed:
		case <-retry:
		case <-l.ctx.Done():
		}
		stop()
	}
}
