package rpc

import (
	"context"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
)

// Bounds of a watch of a run. A watcher repeats one call, each time with the version that it saw last. So a
// watch holds only the current call, and a slow caller gets the newest state.
const (
	// watchPace is the least time from one call to its answer, unless the run has ended: about ten states a
	// second. A later change is answered at once.
	watchPace = 100 * time.Millisecond
	// watchAgain is when a watch reads a run again without a notification.
	watchAgain = 10 * time.Second
)

// awaitChange waits until the status of a run is beyond what the caller has seen, the run has ended or was
// retried, or the wait is over.
func (g *graphs) awaitChange(ctx context.Context, ns string, in *perdurev1.GraphStatusRequest) error {
	began := time.Now()
	over := time.NewTimer(min(time.Duration(in.WaitMs)*time.Millisecond, maxWait))
	defer over.Stop()
	seen := group.RunVersion{Incarnation: in.AfterIncarnation, Events: in.AfterVersion}
	var pause time.Duration
	for {
		moved, now, err := g.awaitOnce(ctx, ns, in, &seen, over)
		switch {
		case err != nil || now:
			return err
		case moved && in.AfterVersion == 0 && in.AfterIncarnation == 0:
			return nil // the first call of a watch
		case moved:
			_, err := g.calm(ctx, watchPace-time.Since(began), over)
			return err
		}
		// A notification without a change: the read was behind the notification.
		if ended, err := g.calm(ctx, pause, over); ended || err != nil {
			return err
		}
		pause = min(max(2*pause, time.Millisecond), watchPace)
	}
}

// awaitOnce is one round: watch, read, wait. moved says that the run is beyond what was seen, now that the
// caller is to be answered at once. A watch is bound to the leader at its start, so each round has its own.
func (g *graphs) awaitOnce(ctx context.Context, ns string, in *perdurev1.GraphStatusRequest, seen *group.RunVersion,
	over *time.Timer) (moved, now bool, err error) {
	watch := g.s.router.WatchRun(ns, in.Id)
	defer watch.Stop()
	reply, _, err := g.s.router.Query(ctx, level(in.Level), group.RunQuery(ns, in.Id))
	if err != nil {
		return false, false, err
	}
	v := group.RunVersionOf(reply)
	if seen.Incarnation == 0 {
		seen.Incarnation = v.Incarnation
	}
	if finished(v.Status) {
		return true, true, nil
	}
	if v.Incarnation != seen.Incarnation || v.Events > seen.Events {
		return true, false, nil
	}
	watch.Follow(v)
	again := time.NewTimer(watchAgain)
	defer again.Stop()
	select {
	case <-watch.C:
	case <-again.C:
	case <-over.C:
		return false, true, nil
	case <-g.s.stopping:
		return false, true, errStopping()
	case <-ctx.Done():
		return false, true, ctx.Err()
	}
	return false, false, nil
}

// calm waits for d, or says that the wait is over.
func (g *graphs) calm(ctx context.Context, d time.Duration, over *time.Timer) (ended bool, err error) {
	if d <= 0 {
		return false, nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false, nil
	case <-over.C:
		return true, nil
	case <-g.s.stopping:
		return true, errStopping()
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

func finished(s perdurev1.ExecutionStatus) bool {
	switch s {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
		perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		return true
	}
	return false
}
