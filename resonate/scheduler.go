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
	now     func() time.Time
	stop    context.CancelFunc
	running sync.WaitGroup
}

// StartScheduler starts a Scheduler over the Store of [NewStore]; Close ends it.
func StartScheduler(store Store, log *slog.Logger) *Scheduler {
	ctx, stop := context.WithCancel(context.Background())
	s := &Scheduler{leaders: store.(*leaders), log: log, now: time.Now, stop: stop}
	for _, replica := range s.leaders.router.Replicas() {
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
			s.runDue(ctx, replica)
		}
	}
}

// runDue runs the schedules of a partition that are due. This node's own state suffices: what it does not have yet is run
// at the next look.
func (s *Scheduler) runDue(ctx context.Context, replica *group.Replica) {
	for cursor := ""; ; {
		reply, _, err := replica.Query(ctx, group.Stale, &commandv1.Query{Namespace: s.leaders.namespace, Kind: &commandv1.Query_Schedules{
			Schedules: &perdurev1.SearchSchedulesRequest{Namespace: s.leaders.namespace, DueMs: s.now().UnixMilli(), Cursor: cursor}}})
		if err != nil {
			return // the replica serves no more
		}
		for _, due := range reply.GetSchedules().Schedules {
			if err := s.run(ctx, due); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot run schedule", "event", "schedule_failed", "namespace", due.Namespace, "schedule", due.Id, "error", err)
			}
		}
		if cursor = reply.GetSchedules().Cursor; cursor == "" || ctx.Err() != nil {
			return
		}
	}
}

// run makes up for the runs of one schedule that are due.
func (s *Scheduler) run(ctx context.Context, due *perdurev1.Schedule) error {
	table, err := parseCron(due.Cron)
	if err != nil {
		return err
	}
	now := s.now().UnixMilli()
	at, left := s.latest(table, due.NextRunAtMs, now)
	if left > 0 {
		s.log.Warn("missed runs left out", "event", "schedule_runs_left_out", "namespace", due.Namespace, "schedule", due.Id, "runs", left)
	}
	for ran := due.NextRunAtMs; ; {
		if _, err := s.leaders.CreatePromise(ctx, s.leaders.ids.scheduleRecord(due).fired(at)); err != nil {
			if refusalOf(err).Status != 400 {
				return err
			}
			s.log.Warn("schedule makes no valid promise", "event", "schedule_invalid", "namespace", due.Namespace, "schedule", due.Id, "error", err)
		}
		next, ok := table.next(at)
		if !ok {
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

// latest is the first of the last maxCatchUp runs from one on that are due, and how many are before it.
func (s *Scheduler) latest(table timetable, from, now int64) (at int64, left int) {
	recent := make([]int64, 0, maxCatchUp)
	for ok := true; ok && from <= now; from, ok = table.next(from) {
		if len(recent) == maxCatchUp {
			recent = append(recent[:0], recent[1:]...)
			left++
		}
		recent = append(recent, from)
	}
	return recent[0], left
}
