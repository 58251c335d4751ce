package group

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/admission"
	"perdure/partition/disk"
	"perdure/partition/raftgroup"
)

// refuseForDisk returns the error that refuses a command for lack of disk space, or nil. Below the low mark
// only what begins work is refused: everything else passes while there is any space.
func (r *proposer) refuseForDisk(cmd *commandv1.Command) *api.Error {
	if r.disk == nil {
		return nil
	}
	switch level := r.env.DiskLevel(); {
	case level == disk.OK || level == disk.Low && !admission.BeginsWork(cmd):
		return nil
	default:
		r.metrics.DiskRefusals.Inc()
		return r.errDiskFull(level)
	}
}

// apply gives an entry to Raft, unless no majority has space for it. Nothing else calls raft.Apply: a log that refuses
// an entry deposes its leader.
func (c *core) apply(entry []byte) (raft.ApplyFuture, *api.Error) {
	if c.disk != nil {
		if level := c.env.DiskLevel(); level >= disk.Critical {
			return nil, c.errDiskFull(level)
		}
		if c.disk.Check(int64(len(entry)), disk.Critical) != nil {
			return nil, c.errDiskFull(disk.Critical)
		}
	}
	return c.raft.Apply(entry, raftgroup.EnqueueTimeout), nil
}

// errDiskFull refuses a command, with the figures of this node's disk.
func (c *core) errDiskFull(level disk.Level) *api.Error {
	st := c.disk.Status()
	what := "what grows the state is refused"
	if level >= disk.Critical {
		what = "nothing is proposed"
	}
	whose := "the disk is " + level.String()
	if st.Level < level {
		whose = "the disks of a majority are " + level.String()
	}
	return api.Errorf(perdurev1.Reason_REASON_DISK_FULL, "partition %d: %s: %s until there is space: %s", c.id, whose, what, st.Space()).
		With("rule", "disk_"+level.String()).With("free", fmt.Sprint(st.Free)).With("low_mark", fmt.Sprint(st.Low))
}

// guardedLog refuses entries for which there is no space, before anything is written. Raft then steps down, or has the
// leader send them again; an entry that it has begun to write must not meet a full disk.
type guardedLog struct {
	raft.LogStore
	disk *disk.Guard
	// stuck reports that no leader proposes anything, because a majority's disks are critical: what is sent to
	// this log is little, and a leader cannot begin without it.
	stuck func() bool
	// suffixRemoved: Raft removed a conflicting end of the log for entries that follow at once. Raft does not
	// survive a refusal of these: it would take the removed ones for stored.
	suffixRemoved atomic.Bool
}

// entryOverhead is an upper bound of what an entry takes in the log in addition to its data.
const entryOverhead = 256

// StoreLog implements raft.LogStore.
func (l *guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. A *disk.FullError says that nothing was stored.
func (l *guardedLog) StoreLogs(logs []*raft.Log) error {
	if l.suffixRemoved.Swap(false) {
		return l.LogStore.StoreLogs(logs)
	}
	release, err := l.admit(logs)
	if err != nil {
		return err
	}
	defer release()
	return l.LogStore.StoreLogs(logs)
}

// admit finds space for entries. It never refuses a configuration alone: Raft uses it at once, stored or not.
func (l *guardedLog) admit(logs []*raft.Log) (release func(), err error) {
	bytes, commands, configuration := int64(0), false, false
	for _, e := range logs {
		bytes += int64(len(e.Data)+len(e.Extensions)) + entryOverhead
		commands = commands || e.Type == raft.LogCommand
		configuration = configuration || e.Type == raft.LogConfiguration
	}
	release, err = l.disk.Admit(bytes, disk.Full)
	switch {
	case err == nil:
	case commands && l.stuck():
		return l.disk.AdmitCatchUp(bytes)
	case !commands && configuration:
		return func() {}, nil
	case !commands:
		return l.disk.AdmitElection(bytes)
	}
	return release, err
}

// DeleteRange implements raft.LogStore. It removes the end of the log only if there is space for the entries
// that replace it.
func (l *guardedLog) DeleteRange(low, high uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	first, err := l.FirstIndex()
	if err != nil {
		return err
	}
	suffix := high >= last
	if suffix && low > first { // the whole log goes after a snapshot was installed
		release, err := l.admit([]*raft.Log{{Type: raft.LogCommand}})
		if err != nil {
			return err
		}
		release()
	}
	if err := l.LogStore.DeleteRange(low, high); err != nil {
		return err
	}
	if suffix {
		l.suffixRemoved.Store(true)
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore, as the log below does.
func (l *guardedLog) IsMonotonic() bool {
	m, is := l.LogStore.(raft.MonotonicLogStore)
	return is && m.IsMonotonic()
}

// isDiskFull says of an error of a Raft future that the entry was refused for want of space: it is not in the log.
func isDiskFull(err error) bool {
	var full *disk.FullError
	return errors.As(err, &full)
}
