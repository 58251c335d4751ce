package resonate

import (
	"context"
	"log/slog"
	"sync"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
)

// The bounds of schedules.
const (
	// schedulePeriod is how often a leader looks for schedules that are due.
	schedulePeriod = time.Second
	// maxCatchUp is how many missed runs a schedule makes up for; the earlier ones are left out, and logged.
	maxCatchUp = 100
)

// Scheduler runs the schedules of the partitions that its node leads: each run creates the promise of its time at that
// promise's partition, then advances the schedule. Both are idempotent, so a run that a former leader has begun is
// completed by the next one, and two leaders at a time do no harm.
type Scheduler struct {
	leaders *leaders
	log     *slog.Logger
	stop    context.CancelFunc
	running sync.WaitGroup
}

// StartScheduler starts a Scheduler over the Store of [NewStore] and the node's replicas; Close ends it.
func StartScheduler(store Store, replicas []*group.Replica, log *slog.Logger) *Scheduler {
	ctx, stop := context.WithCancel(context.Background())
	s := &Scheduler{leaders: store.(*leaders), log: log, stop: stop}
	for _, replica := range replicas {
		s.running.Go(func() { s.serve(ctx, replica) })
	}
	return s
}

// Close ends the runs under way and waits for them.
func (s *Scheduler) Close() {
	s.stop()
	s.running.Wait()
}

// serve runs the schedules of one partition while this node leads it.
func (s *Scheduler) serve(ctx context.Context, replica *group.Replica) {
	ticks := time.NewTicker(schedulePeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if replica.Serving() {
			// This node's own state suffices: what it does not have yet is run at the next look.
			s.runDue(ctx, time.Now().UnixMilli(), func(ctx context.Context, q *commandv1.Query) (*commandv1.QueryReply, error) {
				reply, _, err := replica.Query(ctx, group.Stale, q)
				return reply, err
			})
		}
	}
}

// runDue runs the schedules of a partition that are due at a time. ask queries the partition.
func (s *Scheduler) runDue(ctx context.Context, now int64, ask func(context.Context, *commandv1.Query) (*commandv1.QueryReply, error)) {
	for cursor := ""; ; {
		reply, err := ask(ctx, &commandv1.Query{Namespace: s.leaders.namespace, Kind: &commandv1.Query_Schedules{
			Schedules: &perdurev1.SearchSchedulesRequest{Namespace: s.leaders.namespace, DueMs: now, Cursor: cursor}}})
		if err != nil {
			return // the replica serves no more
		}
		for _, due := range reply.GetSchedules().Schedules {
			if err := s.run(ctx, due, now); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot run schedule", "event", "schedule_failed", "namespace", due.Namespace, "schedule", due.Id, "error", err)
			}
		}
		if cursor = reply.GetSchedules().Cursor; cursor == "" || ctx.Err() != nil {
			return
		}
	}
}

// run makes up for the runs of one schedule that are due at now.
func (s *Scheduler) run(ctx context.Context, due *perdurev1.Schedule, now int64) error {
	table, err := parseCron(due.Cron)
	if err != nil {
		return err
	}
	at := table.latest(due.NextRunAtMs, now)
	if at != due.NextRunAtMs {
		s.log.Warn("missed runs left out", "event", "schedule_runs_left_out", "namespace", due.Namespace, "schedule", due.Id,
			"from", time.UnixMilli(due.NextRunAtMs).UTC(), "until", time.UnixMilli(at).UTC())
	}
	for ran := due.NextRunAtMs; ; {
		if _, err := s.leaders.CreatePromise(ctx, s.leaders.ids.scheduleRecord(due).fired(at)); err != nil {
			if refusalOf(err).Status != 400 {
				return err
			}
			s.log.Warn("schedule makes no valid promise", "event", "schedule_invalid", "namespace", due.Namespace, "schedule", due.Id, "error", err)
		}
		next, ok := table.next(at)
		if !ok || next > maxMS {
			next = maxMS
		}
		reply, err := s.leaders.propose(ctx, &commandv1.Command{Id: due.Id, Kind: &commandv1.Command_AdvanceSchedule{AdvanceSchedule: &perdurev1.AdvanceScheduleRequest{
			Namespace: due.Namespace, Id: due.Id, Incarnation: due.Incarnation, RanAtMs: ran, NextRunAtMs: next}}})
		if err != nil {
			return err
		}
		if ran, at = next, next; next > now || reply.GetSchedule().GetSchedule().GetNextRunAtMs() != next {
			return nil // another leader runs it, or it is another schedule now
		}
	}
}
