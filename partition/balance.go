package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/disk"
	"perdure/partition/raftgroup"
)

const (
	// operatorsWill is how long a partition stays where an operator has handed it.
	operatorsWill = 10 * time.Minute
	// settleHeartbeats is for how many heartbeat time-outs a node must have been reachable and a leader
	// must have led before a leadership is moved: 5 s with the default of 2 s.
	settleHeartbeats = 2.5
	// stuckHeartbeats is after how many of them, beside the longest that the transport may wait for an
	// answer, a transfer is stuck.
	stuckHeartbeats = 2
	transportWait   = 20 * time.Second
)

// balancer brings leaderships back to whom the directory prefers, so that they are spread evenly: after a
// failover everything that the lost node led is elsewhere. It moves one at a time, each by a transfer that
// costs its callers some milliseconds, and only to a node that has been there for a while and lacks
// nothing.
type balancer struct {
	n      *Node
	settle time.Duration
	// every is how often it looks.
	every time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	// Of the loop's goroutine only: since when each member has answered without fail, this node has led
	// each partition, and a transfer was seen not to end.
	reachable map[string]time.Time
	led       map[uint32]ledSince
	stuck     map[uint32]time.Time

	mu   sync.Mutex
	kept map[uint32]time.Time // until when
}

type ledSince struct {
	term  uint64
	since time.Time
}

func newBalancer(n *Node) *balancer {
	b := &balancer{n: n, every: n.cfg.HeartbeatTimeout, settle: time.Duration(settleHeartbeats * float64(n.cfg.HeartbeatTimeout)),
		done: make(chan struct{}), reachable: map[string]time.Time{}, led: map[uint32]ledSince{}, stuck: map[uint32]time.Time{}, kept: map[uint32]time.Time{}}
	b.ctx, b.cancel = context.WithCancel(n.lifetime)
	return b
}

// run looks until the node stops.
func (b *balancer) run() {
	defer close(b.done)
	for b.n.pause(b.ctx, b.every) {
		b.look()
	}
}

// stop ends it, and waits for what it is doing until ctx ends.
func (b *balancer) stop(ctx context.Context) {
	b.cancel()
	_ = wait(ctx, b.done)
}

// keep leaves a partition with this node for a while, whoever is preferred.
func (b *balancer) keep(partition uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept[partition] = b.n.clock.Now().Add(operatorsWill)
}

func (b *balancer) isKept(partition uint32, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Before(b.kept[partition])
}

func (b *balancer) look() {
	n, now := b.n, b.n.clock.Now()
	dir := n.cluster.Directory()
	if dir == nil {
		return
	}
	wanted := map[string][]group{}
	for _, p := range dir.Placements {
		g, ok := n.group(p.Partition)
		if !ok || g.raft.State() != raft.Leader {
			delete(b.led, p.Partition)
			delete(b.stuck, p.Partition)
			continue
		}
		if term := g.raft.CurrentTerm(); b.led[p.Partition].term != term {
			b.led[p.Partition] = ledSince{term, now}
		}
		serves := n.router.slots[p.Partition].Load().serving() != nil
		if !serves && now.Sub(b.led[p.Partition].since) > b.settle || n.transfers.failedLately(p.Partition, now) {
			if err := b.stuckTransfer(g, now); err != nil {
				n.fatal(err)
				return
			}
		}
		if serves && p.Preferred != n.identity.NodeID && now.Sub(b.led[p.Partition].since) >= b.settle &&
			dir.State == commandv1.DirectoryState_DIRECTORY_STATE_READY && !b.isKept(p.Partition, now) {
			wanted[p.Preferred] = append(wanted[p.Preferred], g)
		}
	}
	for server := range b.reachable {
		if !slices.ContainsFunc(dir.Members, func(m *commandv1.DirectoryMember) bool { return m.ServerId == server && wanted[m.NodeId] != nil }) {
			delete(b.reachable, server)
		}
	}
	for _, m := range dir.Members {
		if groups := wanted[m.NodeId]; len(groups) > 0 && m.ServerId != n.identity.ServerID {
			b.giveTo(m, groups)
		}
	}
}

// giveTo hands groups to the node that should lead them, if it is settled.
func (b *balancer) giveTo(m *commandv1.DirectoryMember, groups []group) {
	n := b.n
	said, err := n.ask(b.ctx, m)
	now := n.clock.Now()
	if err != nil {
		delete(b.reachable, m.ServerId)
		return
	}
	if _, is := b.reachable[m.ServerId]; !is {
		b.reachable[m.ServerId] = now
	}
	if now.Sub(b.reachable[m.ServerId]) < b.settle {
		return
	}
	if levelOf(said) != disk.OK {
		return // it would hand them on again
	}
	for _, g := range groups {
		if !n.ableHeir(g, said) {
			continue
		}
		ctx, cancel := context.WithTimeout(b.ctx, handPatience)
		err := n.handTo(ctx, g, m)
		cancel()
		if b.ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, errHandAgain) {
			return
		}
	}
}

// stuckTransfer finds out whether a transfer of a group that this node leads is under way and does not end.
// The library says that one is under way to whoever asks for another; what is asked for here is none, since
// nobody has an empty id.
func (b *balancer) stuckTransfer(g group, now time.Time) error {
	ctx, cancel := context.WithTimeout(b.ctx, b.every)
	defer cancel()
	err := raftgroup.Await(g.raft.LeadershipTransferToServer("", ""), ctx.Done(), b.n.done)
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		delete(b.stuck, g.number)
		return nil
	}
	since, is := b.stuck[g.number]
	if !is {
		b.stuck[g.number] = now
		return nil
	}
	if took := now.Sub(since); took > transportWait+stuckHeartbeats*b.n.cfg.ElectionTimeout {
		return &StuckTransferError{g.number, took}
	}
	return nil
}
