package repair

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
)

// StoppedInOrder reports whether the node of a data directory was stopped in order, so that its states are
// complete; after a crash the log holds more. It changes nothing. Errors are those of raftlog.Clean.
func StoppedInOrder(dir string) (bool, error) {
	return raftlog.Clean(vfs.Default.PathJoin(dir, identity.RaftLogDir))
}

// LogCopy is a copy of the Raft logs of a stopped node, to be read while the node's own stay as they are.
type LogCopy struct {
	from  string
	store *raftlog.Store
}

// CopyLogs copies the logs of a data directory into the directory to, which must not exist, and opens the
// copy. It blocks on the disk. The node must not run: the caller ensures that by holding all its states
// (fsm.OpenReadOnly). Errors: *fsm.ForeignError, and those of raftlog.Open.
func CopyLogs(id identity.Identity, dir, to string) (*LogCopy, error) {
	from := vfs.Default.PathJoin(dir, identity.RaftLogDir)
	if _, err := vfs.Clone(vfs.Default, vfs.Default, from, to); err != nil {
		return nil, fmt.Errorf("copying %s: %w", from, err)
	}
	store, err := raftlog.Open(to, raftlog.Options{
		Backend: raftlog.Backend(id.LogStore), MustExist: true, OnFatal: func(error) {}, // the error reports the same
	})
	if err != nil {
		return nil, fmt.Errorf("the copy of %s: %w", from, err)
	}
	if have, _ := store.Stamp(); string(have) != string(id.Stamp(identity.RaftLogDir)) {
		return nil, errors.Join(&fsm.ForeignError{Dir: from, Have: have, Want: id.Stamp(identity.RaftLogDir)}, store.Close())
	}
	return &LogCopy{from, store}, nil
}

// Commands calls fn, in order, for every command entry of a partition's log that a state does not have yet,
// and ends with fn's first error. Only the cluster knows whether all of them were committed; in a cluster of
// one node they were, or will be. Errors: *LostError if the log does not reach down to the state;
// *raftlog.CorruptError.
func (l *LogCopy) Commands(partition uint32, st fsm.Status, fn func(index uint64, data []byte) error) error {
	log := l.store.Group(partition)
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	if covers := max(st.Covered, st.Applied); last > covers && first > covers+1 {
		return &LostError{partition, fmt.Sprintf("%s covers index %d, the log of group %d in %s begins at index %d: log entries were lost",
			identity.StateDir(partition), covers, partition, l.from, first)}
	}
	for index := max(first, st.Applied+1); index <= last; index++ {
		var entry raft.Log
		if err := log.GetLog(index, &entry); err != nil {
			return err
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		if err := fn(index, entry.Data); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the copy, and leaves it where it is.
func (l *LogCopy) Close() error { return l.store.Close() }
