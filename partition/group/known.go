package group

import (
	"context"

	"github.com/hashicorp/raft"
)

// Leader is the server that a replica knows as its group's leader.
type Leader struct {
	Server string // id; empty if none is known
	Addr   string // of its peer port
	// Known ends when the replica learns of another leader, or of none.
	Known  context.Context
	cancel context.CancelFunc
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
		if old := r.known.Load(); old == nil || old.Server != string(server) || old.Addr != string(addr) {
			r.setKnown(string(server), string(addr))
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

func (r *Replica) setKnown(server, addr string) {
	k := &Leader{Server: server, Addr: addr}
	k.Known, k.cancel = context.WithCancel(context.Background())
	if old := r.known.Swap(k); old != nil {
		old.cancel()
	}
	r.changed()
}

// LeaderElsewhere returns the leader if it is another node; false if none is known.
func (r *Replica) LeaderElsewhere() (l Leader, ok bool) {
	k := r.known.Load()
	if k == nil || k.Addr == "" || k.Addr == r.address {
		return Leader{}, false
	}
	return *k, true
}

// Leader returns the server id of the leader as far as this server knows, perhaps its own; empty if none is known.
func (r *Replica) Leader() string {
	if k := r.known.Load(); k != nil {
		return k.Server
	}
	return ""
}

// LeaderChanged returns a channel that is closed when the replica learns of another leader, or of none.
func (r *Replica) LeaderChanged() <-chan struct{} {
	if k := r.known.Load(); k != nil {
		return k.Known.Done()
	}
	return nil
}
