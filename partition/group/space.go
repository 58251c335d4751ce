package group

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/disk"
)

// grows reports whether a command adds to the state what only a later command removes. Every other command
// frees space, ends something, or records what has already happened: the node accepts it while there is any
// space. A commit is one of these however large its results are: the step has acted, and would act again if
// the commit were refused.
func grows(cmd *commandv1.Command) bool {
	switch cmd.Kind.(type) {
	case *commandv1.Command_Start, *commandv1.Command_Signal, *commandv1.Command_CreatePromise,
		*commandv1.Command_SubmitGraph, *commandv1.Command_RetryGraph:
		return true
	}
	return false
}

// refuseForDisk returns the error that refuses a command for lack of disk space, or nil.
func (r *proposer) refuseForDisk(cmd *commandv1.Command) *api.Error {
	if r.disk == nil {
		return nil
	}
	switch level := r.env.DiskLevel(); {
	case level == disk.OK || level == disk.Low && !grows(cmd):
		return nil
	default:
		r.metrics.DiskRefusals.Inc()
		return r.errDiskFull(level)
	}
}

// errDiskFull refuses a command, with the figures of this node's disk.
func (r *proposer) errDiskFull(level disk.Level) *api.Error {
	st := r.disk.Status()
	what := "what grows the state is refused"
	if level >= disk.Critical {
		what = "nothing is proposed"
	}
	whose := "the disk is " + level.String()
	if st.Level < level {
		whose = "the disks of a majority are " + level.String()
	}
	return api.Errorf(perdurev1.Reason_REASON_DISK_FULL, "partition %d: %s: %s until there is space: %s", r.id, whose, what, st.Space()).
		With("rule", "disk_"+level.String()).With("free", fmt.Sprint(st.Free)).With("low_mark", fmt.Sprint(st.Low))
}

// guardedLog refuses entries for which there is no space, before anything is written. Raft then steps down, or has the
// leader send them again; an entry that it has begun to write must not meet a full disk.
type guardedLog struct {
	raft.LogStore
	disk *disk.Guard
	// owed: Raft removed a conflicting end of the log for entries that follow at once. Raft does not survive
	// a refusal of these: it would take the removed ones for stored.
	owed atomic.Bool
}

// entryOverhead is an upper bound of what an entry takes in the log in addition to its data.
const entryOverhead = 256

// StoreLog implements raft.LogStore.
func (l *guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. A *disk.FullError says that nothing was stored. Entries of Raft's own are few
// and small and are always stored: with them a leader is elected, and serves reads.
func (l *guardedLog) StoreLogs(logs []*raft.Log) error {
	bytes, commands := int64(0), false
	for _, e := range logs {
		bytes += int64(len(e.Data)+len(e.Extensions)) + entryOverhead
		commands = commands || e.Type == raft.LogCommand
	}
	if owed := l.owed.Swap(false); owed || !commands {
		return l.LogStore.StoreLogs(logs)
	}
	release, err := l.disk.Admit(bytes, disk.Full)
	if err != nil {
		return err
	}
	defer release()
	return l.LogStore.StoreLogs(logs)
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
		if err := l.disk.Check(entryOverhead, disk.Full); err != nil {
			return err
		}
	}
	if err := l.LogStore.DeleteRange(low, high); err != nil {
		return err
	}
	if suffix {
		l.owed.Store(true)
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
