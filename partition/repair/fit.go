package repair

import (
	"context"
	"fmt"

	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
	"perdure/partition/snapshot"
)

// LostError reports that two stores of a partition do not fit together: something acknowledged is missing.
type LostError struct {
	Partition uint32
	Detail    string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("partition %d: refusing to serve: %s", e.Partition, e.Detail)
}

// Fit checks, before the partition serves, that its state, markers and log fit together: every entry in the
// log is sound, the state covers the newest marker's index, and the log reaches from there to the state's
// index. It returns the newest marker's index. If that marker's content was received and not installed before
// a crash, it also returns the content's id. Errors: *LostError, and those of the log.
func Fit(partition uint32, st fsm.Status, markers []snapshot.Marker, log raftlog.Log) (marked uint64, install string, err error) {
	first, err := log.FirstIndex()
	if err != nil {
		return 0, "", err
	}
	last, err := log.LastIndex()
	if err != nil {
		return 0, "", err
	}
	var newest snapshot.Marker
	for _, m := range markers {
		if m.Seq > newest.Seq {
			newest = m
		}
	}
	marked = newest.Index
	state, covers := identity.StateDir(partition), max(st.Covered, st.Applied)
	if marked > covers && newest.Origin == snapshot.Received {
		// The content was received and not installed before a crash.
		install = newest.ID
		covers = marked
	}
	lost := func(format string, args ...any) error {
		return &LostError{partition, fmt.Sprintf(format, args...)}
	}
	switch {
	case marked > covers:
		return 0, "", lost("a marker in %s says that %s covers index %d, it covers %d: state was lost", identity.MarkerDir(partition), state, marked, covers)
	case st.Applied > max(last, marked, st.Received):
		return 0, "", lost("%s has applied index %d, the log of group %d in %s ends at %d: log entries were lost", state, st.Applied, partition, identity.RaftLogDir, last)
	case first > marked+1:
		return 0, "", lost("the log of group %d in %s begins at index %d, the newest marker in %s is at %d: markers or log entries were lost", partition, identity.RaftLogDir, first, identity.MarkerDir(partition), marked)
	}
	// Raft panics when it reads a damaged entry, and it would read one beyond the marker much later.
	return marked, install, log.Check(context.Background(), first)
}
