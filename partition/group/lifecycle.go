package group

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lifecycle is how far a replica is on the way to its end. A node stops it; it halts by itself.
type lifecycle struct {
	haltOnce sync.Once
	haltErr  atomic.Pointer[error]
	halting  chan struct{} // closed when haltErr is set

	// stopping: no new work. ledDone: the leader loop has ended. resolved: the last entry was answered.
	// raftDown: nothing of Raft runs any more. killed: futures are abandoned. storeClosed: the state is
	// closed. stopped: no caller will get an answer any more.
	stopping, ledDone, resolved, raftDown, killed, storeClosed, stopped chan struct{}

	stopOnce, downOnce, closeOnce sync.Once
	downErr, closeErr             error // set before raftDown and storeClosed are closed
}

func (l *lifecycle) init() {
	for _, c := range []*chan struct{}{&l.halting, &l.stopping, &l.ledDone, &l.resolved, &l.raftDown, &l.killed, &l.storeClosed, &l.stopped} {
		*c = make(chan struct{})
	}
}

// Stopping is closed when the replica begins to stop.
func (l *lifecycle) Stopping() <-chan struct{} { return l.stopping }

func (l *lifecycle) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// Halted returns why this replica has stopped for good, or nil.
func (l *lifecycle) Halted() error {
	if p := l.haltErr.Load(); p != nil {
		return *p
	}
	return nil
}

// SetHalted replaces the reason why this replica has halted.
func (l *lifecycle) SetHalted(why error) { l.haltErr.Store(&why) }

// lifetime is a context that ends with the replica, for commands of its own.
func (l *lifecycle) lifetime() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	go func() {
		select {
		case <-l.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
