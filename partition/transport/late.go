package transport

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// late returns an error for an answer that says of a request's term that it is over, if this server knows that: it does not
// lead in it any more, or has led in a later one. The answer may have waited in the network until the
// server leads again. The library (v1.7.3, followerReplication.notifyAll) would vote with it against a VerifyLeader of the
// former term, take that vote in the new term's main loop, and step down.
//
// The error is raft.ErrLeadershipLost to errors.Is. A leader that learns from the answer of its successor gets it as it is.
func (t *RaftTransport) late(asked, answered uint64) error {
	if answered <= asked || !t.acks.over(asked) && (t.leading == nil || t.leading(asked)) {
		return nil
	}
	return fmt.Errorf("the answer to a request of term %d came in term %d: %w", asked, answered, raft.ErrLeadershipLost)
}

// InstallSnapshot implements raft.Transport.
func (t *RaftTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.NetworkTransport.InstallSnapshot(id, target, args, resp, data); err != nil {
		return err
	}
	return t.late(args.Term, resp.Term)
}
