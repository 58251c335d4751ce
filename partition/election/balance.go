package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/partition/disk"
)

const (
	// pinDuration is how long a partition stays with the node that an operator has moved it to.
	pinDuration = 10 * time.Minute
	// A member must have answered, and this node have led, for settleHalves half heartbeat timeouts before a
	// leadership is moved: 5 s with the default of 2 s.
	settleHalves = 5
	// A transfer is stuck after the transport's timeout and stuckElections election timeouts.
	stuckElections   = 2
	transportTimeout = 20 * time.Second
)

// Balancer moves leaderships back to the members that the directory prefers: after a failover the lost node's
// groups are led elsewhere. It transfers one group after the other, which costs callers some milliseconds
// each. The target must have answered for a while and be caught up.
type Balancer struct {
	Options
	transfers *Transfers
	settle    time.Duration

	ctx     context.Context
	cancel  context.CancelFunc
	started bool
	done    chan struct{}

	// Of the loop's goroutine only: since when each member has answered without fail, this node has led each partition,
	// and a transfer was seen not to end.
	reachable map[string]time.Time
	ledSince  map[uint32]ledTerm
	stuck     map[uint32]time.Time

	mu     sync.Mutex
	pinned map[uint32]time.Time // partition → until when this node keeps it, whichever member is preferred
}

// ledTerm is a term in which this node leads a partition.
type ledTerm struct {
	term  uint64
	since time.Time
}

// NewBalancer returns a Balancer that does nothing until Start and ends with lifetime. The caller closes it.
func NewBalancer(lifetime context.Context, opts Options, t *Transfers) *Balancer {
	b := &Balancer{Options: opts, transfers: t, settle: settleHalves * opts.HeartbeatTimeout / 2, done: make(chan struct{}),
		reachable: map[string]time.Time{}, ledSince: map[uint32]ledTerm{}, stuck: map[uint32]time.Time{}, pinned: map[uint32]time.Time{}}
	b.ctx, b.cancel = context.WithCancel(lifetime)
	return b
}

// Start begins to balance, once in a heartbeat timeout.
func (b *Balancer) Start() {
	b.started = true
	go func() {
		defer close(b.done)
		for clock.Wait(b.ctx, b.Clock, b.HeartbeatTimeout) {
			b.balance()
		}
	}()
}

// Close ends the Balancer and waits for a transfer under way until ctx ends.
func (b *Balancer) Close(ctx context.Context) {
	b.cancel()
	if !b.started {
		return
	}
	select {
	case <-b.done:
	case <-ctx.Done():
	}
}

// Pin leaves a partition with this node for ten minutes, whichever member is preferred.
func (b *Balancer) Pin(partition uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pinned[partition] = b.Clock.Now().Add(pinDuration)
}

func (b *Balancer) isPinned(partition uint32, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Before(b.pinned[partition])
}

func (b *Balancer) balance() {
	now, dir := b.Clock.Now(), b.Env.Directory()
	if dir == nil {
		return
	}
	wanted := map[string][]Group{}
	for _, p := range dir.Placements {
		g, ok := b.Env.Group(p.Partition)
		if !ok || g.State() != raft.Leader {
			delete(b.ledSince, p.Partition)
			delete(b.stuck, p.Partition)
			continue
		}
		if term := g.Term(); b.ledSince[p.Partition].term != term {
			b.ledSince[p.Partition] = ledTerm{term, now}
		}
		serves, led := g.Serves(), now.Sub(b.ledSince[p.Partition].since)
		if !serves && led > b.settle || b.transfers.failedLately(p.Partition, now) {
			if err := b.checkStuck(g, now); err != nil {
				b.Env.Halt(err)
				return
			}
		}
		if serves && p.Preferred != b.Node && led >= b.settle &&
			dir.State == commandv1.DirectoryState_DIRECTORY_STATE_READY && !b.isPinned(p.Partition, now) {
			wanted[p.Preferred] = append(wanted[p.Preferred], g)
		}
	}
	for server := range b.reachable {
		if !slices.ContainsFunc(dir.Members, func(m *commandv1.DirectoryMember) bool { return m.ServerId == server && wanted[m.NodeId] != nil }) {
			delete(b.reachable, server)
		}
	}
	for _, m := range dir.Members {
		if groups := wanted[m.NodeId]; len(groups) > 0 && m.ServerId != b.Server {
			b.transferBack(m, groups)
		}
	}
}

// transferBack transfers groups to the member that should lead them, if it has answered for long enough.
func (b *Balancer) transferBack(m *commandv1.DirectoryMember, groups []Group) {
	status, err := b.Env.Ask(b.ctx, m)
	now := b.Clock.Now()
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
	if DiskLevel(status) != disk.OK {
		return // it would transfer them again
	}
	for _, g := range groups {
		if !mayLead(g.ID(), b.Server, g.Status(), status) {
			continue
		}
		ctx, cancel := context.WithTimeout(b.ctx, TransferTimeout)
		err := b.transfers.Transfer(ctx, g, m)
		cancel()
		if b.ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, ErrRetryLater) {
			return
		}
	}
}

// DiskLevel returns the level of a member's disk by its status.
func DiskLevel(status *commandv1.NodeStatus) disk.Level {
	for _, l := range []disk.Level{disk.Low, disk.Critical, disk.Full} {
		if status.GetDisk().GetLevel() == l.String() {
			return l
		}
	}
	return disk.OK
}

// checkStuck returns a StuckTransferError if a transfer of a group that this node leads is under way and does
// not end. It asks the library for a transfer to a server with an empty id: none exists, and the library
// refuses with another error while a transfer is under way.
func (b *Balancer) checkStuck(g Group, now time.Time) error {
	ctx, cancel := context.WithTimeout(b.ctx, b.HeartbeatTimeout)
	defer cancel()
	if err := g.Transfer(ctx, "", ""); !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		delete(b.stuck, g.ID())
		return nil
	}
	since, is := b.stuck[g.ID()]
	if !is {
		b.stuck[g.ID()] = now
		return nil
	}
	if took := now.Sub(since); took > transportTimeout+stuckElections*b.ElectionTimeout {
		return &StuckTransferError{g.ID(), took}
	}
	return nil
}

// StuckTransferError reports that a transfer of a partition's leadership does not end, so the partition refuses
// writes for as long as this process leads it. This is a known fault of the Raft library (v1.7.3); only a new
// process ends it. The node halts, another one leads its groups at once, and a new process is healthy.
type StuckTransferError struct {
	Partition uint32
	Since     time.Duration
}

func (e *StuckTransferError) Error() string {
	return fmt.Sprintf("partition %d refuses writes: a transfer of its leadership has not ended for %v; restart this process", e.Partition, e.Since)
}
