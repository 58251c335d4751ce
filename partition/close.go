package partition

import (
	"context"
	"errors"
	"fmt"

	"perdure/internal/clock"
	"perdure/partition/raftgroup"
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
	_ = raftgroup.Wait(ctx, n.auditDone)
	_ = raftgroup.Wait(ctx, n.retained)
	_ = raftgroup.Wait(ctx, n.learned)
	_ = raftgroup.Wait(ctx, n.metered)
	_ = within(ctx, "rebuilds", func() error { n.rebuilder.Close(); return nil }) // they start no replica any more
	for _, r := range n.router.Replicas() {
		r.Stop()
	}
	half, cancel := halfOf(ctx)
	defer cancel()
	for _, r := range n.router.Replicas() {
		r.Drain(half)
	}
	for _, r := range n.router.Replicas() {
		errs = append(errs, r.Shutdown())
	}
	if down := n.cluster.Shutdown(); down != nil {
		errs = append(errs, n.cluster.CloseTransport(), within(ctx, "the directory", down.Error))
	}
	errs = append(errs, n.peers.Close(), n.mux.Close())
	errs = append(errs, within(ctx, "elections", func() error { n.failover.Close(); return nil }))
	for _, r := range n.router.Replicas() {
		errs = append(errs, r.Close(ctx))
	}
	errs = append(errs, within(ctx, "the workers' sessions", func() error { n.dispatch.Close(); return nil }))
	errs = append(errs, within(ctx, "the streams", func() error { n.addresses.Close(); return nil }))
	errs = append(errs, within(ctx, "the logs", n.closeShared))
	_ = raftgroup.Wait(ctx, n.diskDone)
	n.logs.Close()
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

// within runs fn in a goroutine, and waits for it until ctx ends.
func within(ctx context.Context, what string, fn func() error) error {
	done := make(chan struct{})
	var err error
	go func() {
		err = fn()
		close(done)
	}()
	if late := raftgroup.Wait(ctx, done); late != nil {
		return fmt.Errorf("%s did not close in time: %w", what, late)
	}
	return err
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
		errs = append(errs, r.Abort())
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
	if n.addresses != nil {
		n.addresses.Close()
	}
	errs = append(errs, n.closeShared())
	n.logs.Close()
	n.disk.Close()
	return errors.Join(errs...)
}
