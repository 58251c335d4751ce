package rpc

import (
	"context"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/group"
)

// maxWait bounds a long poll; clients poll again.
const maxWait = 60 * time.Second

// await reads about an id, and holds the answer back until what it reads has settled or the wait is over, at most
// maxWait. A stale read waits at the leader, too, unless this node's replica knows the answer.
func (s *Server) await(ctx context.Context, level group.Level, q *commandv1.Query, waitMS int64) (*commandv1.QueryReply, uint64, error) {
	if waitMS == 0 || level == group.Stale {
		reply, index, err := s.router.Query(ctx, level, q)
		if waitMS == 0 || err != nil || group.Settled(reply) {
			return reply, index, err
		}
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.serving, cancel)()
	reply, index, err := s.router.Await(waiting, q, min(time.Duration(waitMS)*time.Millisecond, maxWait))
	switch {
	case err == nil:
		return reply, index, nil
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case s.isStopping():
		return nil, 0, errStopping()
	}
	return nil, 0, err
}
