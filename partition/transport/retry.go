package transport

import (
	"errors"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// After each failure to reach a server that is down, Raft's replication to it pauses longer, up to 10 s; a
// server that came back would get nothing for so long. So the transport retries a message that was refused by
// the address for up to returnTimeout, and the library sees few failures.
const (
	returnTimeout  = 10 * time.Second
	returnPauseMin = 20 * time.Millisecond
	returnPauseMax = 250 * time.Millisecond
)

// AppendEntries implements raft.Transport. It sends as many of the entries as maxAppendBytes allow, at least one, and
// shortens args.Entries to these. The library (v1.7.3, replicateTo) takes the follower's progress from args.Entries
// after the call, and sends what is left in the next one.
func (t *RaftTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := args
	if !heartbeat(args) {
		var n int
		var err error
		if sent, n, err = t.fill(args, 0); err != nil {
			return err
		}
		args.Entries = args.Entries[:n]
	}
	pause, deadline := returnPauseMin, t.clock.Now().Add(returnTimeout)
	for {
		number := t.acks.begin(args.Term)
		err := t.NetworkTransport.AppendEntries(id, target, sent, resp)
		if err == nil {
			t.acks.answered(id, number, args.Term, resp.Term)
			t.answered(string(id))
			err = t.late(args.Term, resp.Term)
		}
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) || heartbeat(args) ||
			t.leading == nil || !t.leading(args.Term) || t.clock.Now().After(deadline) {
			return err
		}
		next, stop := t.clock.After(pause)
		select {
		case <-next:
		case <-t.closed:
			stop()
			return err
		}
		pause = min(2*pause, returnPauseMax)
	}
}

// RequestVote implements raft.Transport.
func (t *RaftTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	err := t.NetworkTransport.RequestVote(id, target, args, resp)
	if err == nil {
		t.answered(string(id))
	}
	return err
}

// heartbeat reports whether a message is a heartbeat. The transport does not retry it: the next one comes
// soon.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// Close implements raft.WithClose.
func (t *RaftTransport) Close() error {
	t.closeOnce.Do(func() { close(t.closed) })
	return t.NetworkTransport.Close()
}
