// Package refusal owns the errors with which a node refuses a call about a partition: each function makes an
// *api.Error whose reason says what the caller may do next. An outcome is reported as known only if it is: a
// command that the log may still apply is Unknown. The package has no state.
package refusal

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// NotLeader refuses what only the leader answers; leader is its address, empty if unknown.
func NotLeader(partition uint32, leader string) *api.Error {
	e := api.Errorf(perdurev1.Reason_REASON_NOT_LEADER, "this node does not lead partition %d", partition)
	if leader != "" {
		e.With("leader", leader)
	}
	return e
}

// TryLater refuses what was not applied and may succeed when it is repeated.
func TryLater(partition uint32, why string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "partition %d: %s", partition, why)
}

// NoLeader refuses because this node has known no leader of a partition for so long.
func NoLeader(partition uint32, waited time.Duration) *api.Error {
	return TryLater(partition, fmt.Sprintf("no leader has been known for %v", waited)).With("partition", strconv.FormatUint(uint64(partition), 10))
}

// Unknown reports that a command may or may not have been applied.
func Unknown(partition uint32, why string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "partition %d: %s: the request may or may not have been applied", partition, why)
}

// Stopping refuses because the replica stops.
func Stopping(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_SHUTTING_DOWN, "partition %d is stopping", partition)
}

// Halted refuses because the replica has halted.
func Halted(partition uint32, cause error) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_CORRUPT, "partition %d has stopped: %v", partition, cause)
}

// OfRaft returns what an error of a Raft future means to a caller: the command is surely not in the log, or its outcome
// is unknown.
func OfRaft(partition uint32, leader string, err error) *api.Error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return NotLeader(partition, leader)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return TryLater(partition, "the log did not take the entry in time")
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return TryLater(partition, "the leadership is being handed over")
	default:
		// Leadership lost, shutdown, a log store's error: the entry may still be applied.
		return Unknown(partition, err.Error())
	}
}

// Elsewhere reports whether another node may give another answer than err, and the address of the leader if err names
// it.
func Elsewhere(err error) (leader string, again bool) {
	e, ours := api.FromStatus(err)
	if !ours {
		return "", true
	}
	return e.Meta["leader"], api.Code(e.Reason) == api.Code(perdurev1.Reason_REASON_NOT_LEADER)
}
