package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/wire"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
)

// Level is how fresh a read must be.
type Level int

const (
	// Linearizable: the leader confirms that it still leads, then answers from applied state.
	Linearizable Level = iota
	// Stale: this replica answers from its applied state. A server that does not know whether it is still a
	// member refuses.
	Stale
)

// reader answers reads of the state, and waits for changes of it.
type reader struct {
	*core
	// acks are the answers to this server's requests in the group; server is its id there. Join sets both.
	acks     raftgroup.Acknowledgements
	server   raft.ServerID
	confirms confirmer
}

// Query reads the applied state and returns the index that the answer reflects. Refusals are *api.Error.
func (r *reader) Query(ctx context.Context, level Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	if halted := r.Halted(); halted != nil {
		return nil, 0, refusal.Halted(r.id, halted)
	}
	if level == Linearizable {
		if err := r.confirm(ctx); err != nil {
			return nil, 0, err
		}
	} else if err := r.env.MayAnswer(r.serving() != nil); err != nil {
		return nil, 0, refusal.TryLater(r.id, err.Error())
	}
	a, err := r.read(q)
	if err != nil {
		return nil, 0, err
	}
	if a.refused != nil {
		return nil, a.index, a.refused
	}
	return a.reply, a.index, nil
}

// answer is what this replica's state says.
type answer struct {
	reply *commandv1.QueryReply
	index uint64
	// refused is why the query has no answer, such as an id that does not exist, or nil.
	refused *api.Error
}

// read answers from this replica's applied state.
func (r *reader) read(q *commandv1.Query) (answer, error) {
	reply, index, err := r.store.Query(q)
	if err != nil {
		if r.isStopping() {
			return answer{}, refusal.Stopping(r.id)
		}
		r.Halt(err)
		return answer{}, refusal.Halted(r.id, err)
	}
	return answer{reply, index, wire.QueryError(reply)}, nil
}

// Learn has the state read for a millisecond which ids are free, and reports whether there is more to read: see
// fsm.Store.Learn. A store that cannot be read halts the replica.
func (r *reader) Learn() bool {
	if r.store == nil || r.Halted() != nil {
		return false
	}
	more, err := r.store.Learn()
	return more && err == nil
}

// confirmer shares one confirmation of leadership among the reads that wait for it.
type confirmer struct {
	mu      sync.Mutex
	running bool
	waiting []chan error
}

// confirm blocks until this node is known to have led at some moment after the call. Reads that come while
// one round is under way share the next.
func (r *reader) confirm(ctx context.Context) error {
	if r.awaitServing(ctx) == nil {
		return r.NotServing()
	}
	done := make(chan error, 1)
	c := &r.confirms
	c.mu.Lock()
	c.waiting = append(c.waiting, done)
	start := !c.running
	c.running = true
	c.mu.Unlock()
	if start {
		go r.confirmLoop()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return refusal.TryLater(r.id, "the leader could not be confirmed in time")
	case <-r.stopping:
		return refusal.Stopping(r.id)
	}
}

func (r *reader) confirmLoop() {
	c := &r.confirms
	for {
		c.mu.Lock()
		round := c.waiting
		c.waiting = nil
		if len(round) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		lead := r.serving()
		var err error
		if lead == nil {
			err = r.NotServing()
		} else {
			ctx, cancel := context.WithTimeout(lead.ctx, confirmTimeout)
			switch failed := raftgroup.Confirm(ctx, r.raft, r.acks, r.server, lead.term); {
			case errors.Is(failed, raftgroup.ErrDeposed) || r.serving() != lead:
				err = refusal.NotLeader(r.id, r.hint())
			case failed != nil:
				err = refusal.TryLater(r.id, failed.Error())
			}
			cancel()
		}
		for _, done := range round {
			done <- err
		}
	}
}

// confirmTimeout bounds one round of confirmation. A leader that hears nothing for so long is cut off; its
// readers may ask for another leader.
const confirmTimeout = time.Second
