package transport

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// late returns an error for an answer of a later term than its request's, if this server does not lead in the request's term
// any more, or has led in a later one: it says nothing new. It may have waited in the network until this server leads again.
// The library (v1.7.3, followerReplication.notifyAll) counts it against a VerifyLeader of the former term, hears of that in
// the main loop of the new one, and steps down.
//
// The error is raft.ErrLeadershipLost to errors.Is. An answer that tells a leader of its successor is not late.
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
