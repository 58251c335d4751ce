package refusal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// Of Raft's errors only three are known to leave the log as it was. After any other, a caller may not repeat
// the command without its request id.
func TestOfRaft(t *testing.T) {
	for _, c := range []struct {
		err        error
		reason     perdurev1.Reason
		notApplied bool
	}{
		{raft.ErrNotLeader, perdurev1.Reason_REASON_NOT_LEADER, true},
		{raft.ErrEnqueueTimeout, perdurev1.Reason_REASON_TRY_LATER, true},
		{raft.ErrLeadershipTransferInProgress, perdurev1.Reason_REASON_TRY_LATER, true},
		{fmt.Errorf("wrapped: %w", raft.ErrNotLeader), perdurev1.Reason_REASON_NOT_LEADER, true},
		{raft.ErrLeadershipLost, perdurev1.Reason_REASON_OUTCOME_UNKNOWN, false},
		{raft.ErrRaftShutdown, perdurev1.Reason_REASON_OUTCOME_UNKNOWN, false},
		{raft.ErrAbortedByRestore, perdurev1.Reason_REASON_OUTCOME_UNKNOWN, false},
		{errors.New("no space left on device"), perdurev1.Reason_REASON_OUTCOME_UNKNOWN, false},
	} {
		e := OfRaft(7, "n2:7402", c.err)
		if e.Reason != c.reason || api.NotApplied(e.Reason) != c.notApplied || !api.Retryable(e.Reason) {
			t.Errorf("%v is refused as %v", c.err, e)
		}
		if c.reason == perdurev1.Reason_REASON_NOT_LEADER && e.Meta["leader"] != "n2:7402" {
			t.Errorf("%v does not name the leader: %v", c.err, e.Meta)
		}
	}
}

// A caller turns to another node only where that may help, and to the leader if the refusal names it. Both hold after
// the error has crossed gRPC.
func TestElsewhere(t *testing.T) {
	for _, c := range []struct {
		err    error
		leader string
		again  bool
	}{
		{NotLeader(1, "n2:7402"), "n2:7402", true},
		{NotLeader(1, ""), "", true},
		{TryLater(1, "busy"), "", true},
		{Stopping(1), "", true},
		{Unknown(1, "lost"), "", false},
		{Halted(1, errors.New("damaged")), "", false},
		{api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "taken"), "", false},
		{status.Error(codes.Unavailable, "connection refused"), "", true},
	} {
		for how, err := range map[string]error{"here": c.err, "by gRPC": overGRPC(c.err)} {
			if leader, again := Elsewhere(err); leader != c.leader || again != c.again {
				t.Errorf("%s, %v: leader %q, again %t", how, err, leader, again)
			}
		}
	}
}

func overGRPC(err error) error {
	if e, ours := api.FromStatus(err); ours {
		return e.GRPCStatus().Err()
	}
	return err
}
