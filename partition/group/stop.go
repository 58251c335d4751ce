package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"perdure/partition/raftgroup"
)

// Stop ends new work, once. It does not block. The rest of the way is
//
//	r.Stop()
//	r.Drain(ctx)         // the callers of entries that the log has taken are answered
//	err := r.Shutdown()
//	err = r.Close(ctx)
func (r *Replica) Stop() { r.stopOnce.Do(func() { close(r.stopping) }) }

// Drain blocks until this replica's last leadership has ended and the last entry that the log has taken is
// answered, or ctx ends.
func (r *Replica) Drain(ctx context.Context) {
	_ = raftgroup.Wait(ctx, r.ledDone)  // or its duties end with Raft
	_ = raftgroup.Wait(ctx, r.resolved) // or the outcome of what is under way is unknown
}

// Shutdown takes Raft down and ends the group's connections. It does not wait for Raft: Close does.
func (r *Replica) Shutdown() error {
	r.shutdown()
	if r.transport == nil {
		return nil
	}
	return r.transport.Close()
}

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

// Released blocks until no part of this replica has its state directory open and its connections have ended,
// so that another one may open it. The replica must have halted. The error names what still holds the
// directory when ctx ended.
func (r *Replica) Released(ctx context.Context) error {
	if err := raftgroup.Wait(ctx, r.storeClosed); err != nil {
		return fmt.Errorf("its state is not closed yet: %w", err)
	}
	if err := r.opened(ctx); err != nil {
		return err
	}
	if r.store != nil && r.store.Hung() {
		return errors.New("its state cannot be closed: a write to it failed half way")
	}
	if r.raft == nil {
		return nil
	}
	return r.transport.Close()
}

// opened blocks until no database of the state is being opened.
func (r *Replica) opened(ctx context.Context) error {
	opening := r.opening.Load()
	if opening == nil {
		return nil
	}
	if err := raftgroup.Wait(ctx, *opening); err != nil {
		return fmt.Errorf("its state is still being opened: %w", err)
	}
	return nil
}

// Close waits for Raft, abandons what it has not answered, and closes the state. It returns when ctx ends,
// whatever hangs by then.
func (r *Replica) Close(ctx context.Context) error {
	late := raftgroup.Wait(ctx, r.raftDown)
	close(r.killed)
	if late != nil {
		late = fmt.Errorf("partition %d: raft did not stop in time: %w", r.id, late)
	}
	_ = raftgroup.Wait(ctx, r.resolved) // the proposer may wait for a hanging log
	close(r.stopped)
	r.watches.WakeAll()
	if late != nil {
		return late
	}
	go r.closeState()
	if err := raftgroup.Wait(ctx, r.storeClosed); err != nil {
		return fmt.Errorf("partition %d: the state did not close in time: %w", r.id, err)
	}
	errs := errors.Join(r.downErr, r.closeErr)
	if r.hung.Load() {
		return errs // what is being opened never ends
	}
	if err := r.opened(ctx); err != nil {
		errs = errors.Join(errs, fmt.Errorf("partition %d: %w", r.id, err))
	}
	return errs
}

// Abort closes what was opened of a replica that does not run.
func (r *Replica) Abort() error {
	var errs []error
	if r.raft != nil {
		errs = append(errs, r.raft.Shutdown().Error())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	return errors.Join(errs...)
}

// retireTimeout bounds the waits of Retire.
const retireTimeout = 30 * time.Second

// Retire ends the waits for a halted replica that another one has replaced. It blocks for retireTimeout at most.
func (r *Replica) Retire() {
	r.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), retireTimeout)
	defer cancel()
	_ = raftgroup.Wait(ctx, r.ledDone)
	_ = raftgroup.Wait(ctx, r.resolved)
	close(r.killed)
	close(r.stopped)
	r.watches.WakeAll()
}

// takeDown ends what a halted replica still runs: Pebble's background retries must end too. It does not block.
func (r *Replica) takeDown() {
	r.shutdown()
	go r.closeState()
}
