package partition

import (
	"context"

	"github.com/hashicorp/raft"
)

// knownLeader is the server that a replica knows as its group's leader.
type knownLeader struct {
	server raft.ServerID
	addr   string
	// ctx ends when the replica learns of another leader, or of none.
	ctx    context.Context
	cancel context.CancelFunc
	// next is closed at the same moment.
	next chan struct{}
}

// followLeader keeps known true, until the replica stops.
func (r *Replica) followLeader() {
	events := make(chan raft.Observation, 16)
	// A full channel drops a notification, but a queued one makes the replica check.
	observer := raft.NewObserver(events, false, func(o *raft.Observation) bool {
		_, is := o.Data.(raft.LeaderObservation)
		return is
	})
	r.raft.RegisterObserver(observer)
	defer r.raft.DeregisterObserver(observer)
	for {
		addr, server := r.raft.LeaderWithID()
		if old := r.known.Load(); old == nil || old.server != server || old.addr != string(addr) {
			r.setKnown(server, string(addr))
		}
		select {
		case <-events:
		case <-r.stopping:
			r.setKnown("", "")
			return
		case <-r.halting:
			r.setKnown("", "")
			return
		}
	}
}

func (r *Replica) setKnown(server raft.ServerID, addr string) {
	k := &knownLeader{server: server, addr: addr, next: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if old := r.known.Swap(k); old != nil {
		old.cancel()
		close(old.next)
	}
	if r.onServing != nil {
		r.onServing()
	}
}

// leaderElsewhere returns the address of the leader if it is another node; empty if none is known.
func (r *Replica) leaderElsewhere() (addr string, known *knownLeader) {
	k := r.known.Load()
	if k == nil || k.addr == "" || k.addr == r.address {
		return "", nil
	}
	return k.addr, k
}

// leaderID returns the server that leads as far as this one knows, perhaps this one; empty if none is known.
func (r *Replica) leaderID() string {
	if k := r.known.Load(); k != nil {
		return string(k.server)
	}
	return ""
}

// newLeader returns a channel that is closed when the replica learns of another leader.
func (r *Replica) newLeader() <-chan struct{} {
	if k := r.known.Load(); k != nil {
		return k.next
	}
	return nil
}
