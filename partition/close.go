package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"perdure/internal/clock"
)

// Close stops the partitions in order: it refuses new work, answers what the log has taken, takes Raft down,
// closes the connections, flushes the states and closes the logs. It returns when ctx ends, whatever hangs by
// then; the end of the process ends that. Half of the time is for the answers.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	var errs []error
	n.HandOver(ctx)
	close(n.stopping)
	n.endLifetime()
	n.cluster.Stop(ctx) // what control changes is the groups' own affair
	_ = wait(ctx, n.auditDone)
	_ = within(ctx, "rebuilds", func() error { n.rebuilder.Close(); return nil }) // they start no replica any more
	for _, r := range n.router.Replicas() {
		r.beginStop()
	}
	half, cancel := halfOf(ctx)
	defer cancel()
	for _, r := range n.router.Replicas() {
		_ = wait(half, r.ledDone)  // or its duties end with Raft
		_ = wait(half, r.resolved) // or the outcome of what is under way is unknown
	}
	for _, r := range n.router.Replicas() {
		r.shutdown()
		if t, ok := r.transport.(raft.WithClose); ok {
			errs = append(errs, t.Close())
		}
	}
	if down := n.cluster.Shutdown(); down != nil {
		errs = append(errs, n.cluster.CloseTransport(), within(ctx, "the directory", down.Error))
	}
	errs = append(errs, n.peers.Close(), n.mux.Close())
	errs = append(errs, within(ctx, "elections", func() error { n.failover.Close(); return nil }))
	for _, r := range n.router.Replicas() {
		errs = append(errs, r.finishStop(ctx))
	}
	errs = append(errs, within(ctx, "the workers' sessions", func() error { n.dispatch.Close(); return nil }))
	errs = append(errs, within(ctx, "the logs", n.closeShared))
	n.logs.Close()
	_ = wait(ctx, n.diskDone)
	n.disk.Close()
	return errors.Join(errs...)
}

// halfOf returns a context that ends when half of ctx's remaining time is over.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	left, ok := clock.Left(ctx)
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, left/2)
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// within runs fn in a goroutine, and waits for it until ctx ends.
func within(ctx context.Context, what string, fn func() error) error {
	done := make(chan struct{})
	var err error
	go func() {
		err = fn()
		close(done)
	}()
	if late := wait(ctx, done); late != nil {
		return fmt.Errorf("%s did not close in time: %w", what, late)
	}
	return err
}

// beginStop ends new work, once.
func (r *Replica) beginStop() { r.stopOnce.Do(func() { close(r.stopping) }) }

// shutdown takes Raft down, once. It does not wait: see raftDown.
func (r *Replica) shutdown() {
	r.downOnce.Do(func() {
		if r.raft == nil {
			close(r.raftDown)
			return
		}
		down := r.raft.Shutdown()
		go func() {
			r.downErr = down.Error()
			close(r.raftDown)
		}()
	})
}

// closeState closes the state once, if it was opened, when Raft does not use it any more. It blocks until
// both are done.
func (r *Replica) closeState() {
	r.closeOnce.Do(func() {
		<-r.raftDown
		if r.store != nil {
			r.closeErr = r.store.Close()
		}
		close(r.storeClosed)
	})
}

// released blocks until no part of this replica has its state directory open, so that another one may open
// it. The replica must have halted. The error names what still holds the directory when ctx ended.
func (r *Replica) released(ctx context.Context) error {
	if err := wait(ctx, r.storeClosed); err != nil {
		return fmt.Errorf("its state is not closed yet: %w", err)
	}
	if opening := r.opening.Load(); opening != nil {
		if err := wait(ctx, *opening); err != nil {
			return fmt.Errorf("its state is still being opened: %w", err)
		}
	}
	if r.store != nil && r.store.Hung() {
		return errors.New("its state cannot be closed: a write to it failed half way")
	}
	return nil
}

// finishStop waits for Raft, abandons what it has not answered, and closes the state.
func (r *Replica) finishStop(ctx context.Context) error {
	late := wait(ctx, r.raftDown)
	close(r.killed)
	if late != nil {
		late = fmt.Errorf("partition %d: raft did not stop in time: %w", r.id, late)
	}
	_ = wait(ctx, r.resolved) // the proposer may wait for a hanging log
	close(r.stopped)
	r.watches.wakeAll()
	if late != nil {
		return late
	}
	go r.closeState()
	if err := wait(ctx, r.storeClosed); err != nil {
		return fmt.Errorf("partition %d: the state did not close in time: %w", r.id, err)
	}
	return errors.Join(r.downErr, r.closeErr)
}

// closeShared closes what all groups share.
func (n *Node) closeShared() error {
	var errs []error
	if n.raftlog != nil {
		errs = append(errs, n.raftlog.Close())
	}
	if n.stable != nil {
		errs = append(errs, n.stable.Close())
	}
	if n.cache != nil {
		n.cache.Unref()
	}
	return errors.Join(errs...)
}

// undo closes what Start has opened before it failed.
func (n *Node) undo() error {
	close(n.stopping)
	var errs []error
	for _, r := range n.replicas {
		if r.raft != nil {
			errs = append(errs, r.raft.Shutdown().Error())
		}
		if r.store != nil {
			errs = append(errs, r.store.Close())
		}
	}
	n.endLifetime()
	if n.cluster != nil {
		if down := n.cluster.Shutdown(); down != nil {
			errs = append(errs, down.Error())
		}
		n.cluster.Stop(context.Background())
	}
	if n.peers != nil {
		errs = append(errs, n.peers.Close())
	}
	if n.mux != nil {
		errs = append(errs, n.mux.Close())
	}
	if n.failover != nil {
		n.failover.Close()
	}
	errs = append(errs, n.closeShared())
	n.logs.Close()
	n.disk.Close()
	return errors.Join(errs...)
}

// retireTimeout bounds the waits of retire.
const retireTimeout = 30 * time.Second

// retire ends the waits for a replica that another one has replaced.
func (r *Replica) retire() {
	r.beginStop()
	ctx, cancel := context.WithTimeout(context.Background(), retireTimeout)
	defer cancel()
	_ = wait(ctx, r.ledDone)
	_ = wait(ctx, r.resolved)
	close(r.killed)
	close(r.stopped)
	r.watches.wakeAll()
}
