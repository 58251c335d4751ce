package resonate

import (
	"context"
	"log/slog"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
)

// latest is what counting every occurrence finds, however long ago the first is.
func TestLatestRuns(t *testing.T) {
	for _, c := range []struct {
		expression string
		span       time.Duration
	}{
		{"* * * * *", 0}, {"* * * * *", time.Minute}, {"* * * * *", 98 * time.Minute}, {"* * * * *", 99 * time.Minute}, {"* * * * *", 100 * time.Minute}, {"* * * * *", 49 * time.Hour},
		{"* * * * * *", 50 * time.Second}, {"* * * * * *", 5 * time.Hour}, {"* * 3 * * *", 60 * time.Hour},
		{"0 0 1 * *", 400 * 24 * time.Hour}, {"0 0 1 1 *", 20 * 365 * 24 * time.Hour}, {"* 0 1 1 *", 3 * 365 * 24 * time.Hour},
	} {
		table, err := parseCron(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		from, ok := table.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
		if !ok {
			t.Fatal("no occurrence")
		}
		now := from + c.span.Milliseconds()
		var all []int64
		for at, ok := from, true; ok && at <= now; at, ok = table.next(at) {
			all = append(all, at)
		}
		if got, want := table.latest(from, now), all[max(len(all)-maxCatchUp, 0)]; got != want {
			t.Errorf("%s over %s: %d, want %d, of %d runs", c.expression, c.span, got, want, len(all))
		}
	}
	// The cost does not grow with the runs that are left out.
	table, err := parseCron("* * * * * *")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := table.latest(1000, 8e15), int64(8e15-(maxCatchUp-1)*1000); got != want {
		t.Errorf("latest %d, want %d", got, want)
	}
}

func newSchedule(t *testing.T, s Store, id string) {
	t.Helper()
	table, err := parseCron("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateSchedule(context.Background(), NewSchedule{ID: id, Cron: "* * * * *", PromiseID: "{{.id}}-{{.timestamp}}", PromiseTimeout: maxMS,
		PromiseTags: map[string]string{tagTarget: "poll://any@g"}}, table.next); err != nil {
		t.Fatal(err)
	}
}

// count is how many promises there are, and their least creation.
func count(t *testing.T, s Store) (n int, least int64) {
	t.Helper()
	page, _, err := s.SearchPromises(context.Background(), Search{Limit: maxPage})
	if err != nil {
		t.Fatal(err)
	}
	least = maxMS
	for _, p := range page {
		least = min(least, p.CreatedAt)
	}
	return len(page), least
}

// Missed runs are made up for, at most maxCatchUp of them, the latest ones.
func TestCatchUp(t *testing.T) {
	f, s := newFaulty(t)
	newSchedule(t, s, "s")
	const minute = 60_000
	if err := f.Sweep(withDebugTime(context.Background(), (maxCatchUp+50)*minute)); err != nil {
		t.Fatal(err)
	}
	if n, least := count(t, s); n != maxCatchUp || least != 51*minute {
		t.Errorf("%d runs from %d on, want %d from %d on", n, least, maxCatchUp, 51*minute)
	}
	got, err := s.Schedule(context.Background(), "s")
	if err != nil || got.NextRunAt != (maxCatchUp+51)*minute || got.LastRunAt == nil || *got.LastRunAt != (maxCatchUp+50)*minute {
		t.Errorf("schedule %+v, %v", got, err)
	}
}

// ask queries a sandbox for a Scheduler.
func (s *Sandbox) ask(ctx context.Context, q *commandv1.Query) (*commandv1.QueryReply, error) {
	reply, _, err := s.Read(ctx, 0, group.Linearizable, q)
	return reply, err
}

// A run whose promise could not be created is not recorded.
func TestRunIsNotLost(t *testing.T) {
	f, s := newFaulty(t)
	sched := &Scheduler{leaders: s.(*leaders), log: slog.New(slog.DiscardHandler)}
	newSchedule(t, s, "s")
	f.proposed, f.refuse = 0, first(1, reason(perdurev1.Reason_REASON_CORRUPT))
	ctx := withDebugTime(context.Background(), 60_500)
	sched.runDue(ctx, 60_500, f.ask)
	if got, err := s.Schedule(ctx, "s"); err != nil || got.NextRunAt != 60_000 {
		t.Fatalf("the run is recorded: %+v, %v", got, err)
	}
	sched.runDue(ctx, 60_500, f.ask)
	if n, _ := count(t, s); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// A schedule whose promise is refused goes on to its next run.
func TestInvalidRun(t *testing.T) {
	f, s := newFaulty(t)
	sched := &Scheduler{leaders: s.(*leaders), log: slog.New(slog.DiscardHandler)}
	if _, err := s.CreateSchedule(context.Background(), NewSchedule{ID: "s", Cron: "* * * * *", PromiseID: "x",
		PromiseTags: map[string]string{tagTarget: "poll://any@g", tagDelay: "never"}}, func(int64) (int64, bool) { return 60_000, true }); err != nil {
		t.Fatal(err)
	}
	ctx := withDebugTime(context.Background(), 60_500)
	sched.runDue(ctx, 60_500, f.ask)
	if got, err := s.Schedule(ctx, "s"); err != nil || got.NextRunAt != 120_000 {
		t.Errorf("schedule %+v, %v", got, err)
	}
}

// A run that was begun and not recorded is completed: its promise exists once, at its time. A schedule that cannot run does
// not keep others from running.
func TestInterruptedRun(t *testing.T) {
	f, s := newFaulty(t)
	sched := &Scheduler{leaders: s.(*leaders), log: slog.New(slog.DiscardHandler)}
	newSchedule(t, s, "a")
	newSchedule(t, s, "b")
	f.proposed, f.refuse = 0, func(n int) error { // the advance of a
		if n == 1 {
			return reason(perdurev1.Reason_REASON_CORRUPT)
		}
		return nil
	}
	ctx := withDebugTime(context.Background(), 60_500)
	sched.runDue(ctx, 60_500, f.ask)
	if n, _ := count(t, s); n != 2 {
		t.Fatalf("%d runs, want 2", n)
	}
	if got, err := s.Schedule(ctx, "a"); err != nil || got.NextRunAt != 60_000 {
		t.Fatalf("the run of a is recorded: %+v, %v", got, err)
	}
	ctx = withDebugTime(context.Background(), 61_000)
	sched.runDue(ctx, 61_000, f.ask)
	if n, least := count(t, s); n != 2 || least != 60_000 {
		t.Errorf("%d runs from %d on, want 2 from 60000 on", n, least)
	}
	if got, err := s.Schedule(ctx, "a"); err != nil || got.NextRunAt != 120_000 {
		t.Errorf("the run of a is not recorded: %+v, %v", got, err)
	}
}
