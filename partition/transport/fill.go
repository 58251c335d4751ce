package transport

import (
	"github.com/hashicorp/raft"

	"perdure/partition/raftlog"
)

// maxAppendBytes bounds the data of the entries in one message to a follower. One entry always travels, however large.
// The follower decodes a message whole, and writes its entries in one batch.
const maxAppendBytes = 1 << 20

// fill builds a message of the entries of args from position from on, with their data, up to maxAppendBytes.
// It returns their number. The error is that of reading an entry: raft.ErrLogNotFound if the log was cut or
// overwritten since the library's read.
//
// A follower regards the entries of its own log up to the leader's commit index as committed. It may hold
// other entries instead of those that a shortened message omits, so the message's commit index is bounded by
// its entries:
//
//	LeaderCommitIndex <= index of the last entry, or PrevLogEntry without any
//	LeaderCommitIndex <= index up to which this server's log is synced
func (t *RaftTransport) fill(args *raft.AppendEntriesRequest, from int) (*raft.AppendEntriesRequest, int, error) {
	part := *args
	if from > 0 {
		part.PrevLogEntry, part.PrevLogTerm = args.Entries[from-1].Index, args.Entries[from-1].Term
	}
	rest := args.Entries[from:]
	part.Entries = make([]*raft.Log, 0, len(rest))
	bytes := 0
	for _, l := range rest {
		if bytes += raftlog.SizeOf(l); len(part.Entries) > 0 && bytes > maxAppendBytes {
			break
		}
		if t.load != nil {
			var err error
			if l, err = t.load(l); err != nil {
				return nil, 0, err
			}
		}
		part.Entries = append(part.Entries, l)
	}
	last := part.PrevLogEntry
	if n := len(part.Entries); n > 0 {
		last = part.Entries[n-1].Index
	}
	if part.LeaderCommitIndex = min(part.LeaderCommitIndex, last); t.synced != nil {
		part.LeaderCommitIndex = t.synced(part.LeaderCommitIndex)
	}
	return &part, len(part.Entries), nil
}
