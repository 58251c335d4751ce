package partition

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

func errNotLeader(partition uint32, leader string) *api.Error {
	e := api.Errorf(perdurev1.Reason_REASON_NOT_LEADER, "this node does not lead partition %d", partition)
	if leader != "" {
		e.With("leader", leader)
	}
	return e
}

func errTryLater(partition uint32, why string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "partition %d: %s", partition, why)
}

// errPeersBusy refuses a call of another node whose request was not read.
func errPeersBusy(message string, retryAfter time.Duration) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "calls between nodes: %s", message).With("bound", "peer").
		WithRetryAfterMS(retryAfter.Milliseconds())
}

// errWatchesFull refuses another node's watch.
func errWatchesFull(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "partition %d: this node has as many watches as there may be", partition).
		With("bound", "watches").WithRetryAfterMS(watchRetry.Milliseconds())
}

func errOverloaded(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "partition %d: too many commands are waiting", partition).
		With("bound", "commands").WithRetryAfterMS(retryAfterMin.Milliseconds())
}

func errUnknownOutcome(partition uint32, why string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "partition %d: %s: the request may or may not have been applied", partition, why)
}

func errStopping(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_SHUTTING_DOWN, "partition %d is stopping", partition)
}

func errHalted(partition uint32, cause error) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_CORRUPT, "partition %d has stopped: %v", partition, cause)
}

// raftError says what an error of a Raft future means to a caller: surely not in the log, or unknown.
func raftError(partition uint32, leader string, err error) *api.Error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLeader(partition, leader)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return errTryLater(partition, "the log did not take the entry in time")
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return errTryLater(partition, "the leadership is being handed over")
	default:
		// Leadership lost, shutdown, a log store's error: the entry may be applied all the same.
		return errUnknownOutcome(partition, err.Error())
	}
}
