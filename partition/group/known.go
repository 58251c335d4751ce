package group

import (
	"context"
	"sync/atomic"

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

// tracker is what a replica knows of its group's leader.
type tracker struct {
	address string // of this node's peer port
	// changed is called when the replica learns of another leader, or of none.
	changed func()
	known   atomic.Pointer[Leader] // nil before follow
}

// follow keeps known true, until one of two channels is closed. It blocks until then.
func (t *tracker) follow(g *raft.Raft, stopping, halting <-chan struct{}) {
	events := make(chan raft.Observation, 16)
	// A full channel drops a notification, but a queued one makes the replica check.
	observer := raft.NewObserver(events, false, func(o *raft.Observation) bool {
		_, is := o.Data.(raft.LeaderObservation)
		return is
	})
	g.RegisterObserver(observer)
	defer g.DeregisterObserver(observer)
	for {
		addr, server := g.LeaderWithID()
		if old := t.known.Load(); old == nil || old.Server != string(server) || old.Addr != string(addr) {
			t.set(string(server), string(addr))
		}
		select {
		case <-events:
		case <-stopping:
			t.set("", "")
			return
		case <-halting:
			t.set("", "")
			return
		}
	}
}

func (t *tracker) set(server, addr string) {
	k := &Leader{Server: server, Addr: addr}
	k.Known, k.cancel = context.WithCancel(context.Background())
	if old := t.known.Swap(k); old != nil {
		old.cancel()
	}
	t.changed()
}

// hint returns the address of the leader, perhaps this node's; empty if none is known.
func (t *tracker) hint() string {
	if k := t.known.Load(); k != nil {
		return k.Addr
	}
	return ""
}

// LeaderElsewhere returns the leader if it is another node; false if none is known.
func (t *tracker) LeaderElsewhere() (l Leader, ok bool) {
	k := t.known.Load()
	if k == nil || k.Addr == "" || k.Addr == t.address {
		return Leader{}, false
	}
	return *k, true
}

// Leader returns the server id of the leader as far as this server knows, perhaps its own; empty if none is known.
func (t *tracker) Leader() string {
	if k := t.known.Load(); k != nil {
		return k.Server
	}
	return ""
}

// LeaderChanged returns a channel that is closed when the replica learns of another leader, or of none.
func (t *tracker) LeaderChanged() <-chan struct{} {
	if k := t.known.Load(); k != nil {
		return k.Known.Done()
	}
	return nil
}
