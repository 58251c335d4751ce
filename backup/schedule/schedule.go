// Package schedule makes the backups of a cluster at an interval and deletes the older ones, on the node that leads
// partition 0.
//
// The store says everything: what the newest backup of the cluster is, whether a create runs, and what an interrupted
// one has copied. So a node that becomes the leader needs no memory of the one before: it continues an interrupted
// backup, and makes the next one when Every has passed since the cut of the newest one, also if an operator made
// that. A crash loses the number of failures and nothing else.
//
// Two backups never overlap: the schedule waits while a create of another node, or of `perdure backup create`, may be
// running. A create ends when its node stops leading; the next leader continues what it copied. After a kill -9 that
// takes five minutes, since only the age of its partial then says that a create has ended.
//
//	s := schedule.New(schedule.Options{…})
//	go s.Run(ctx)
//	s.Status()
package schedule

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/backup"
	"perdure/internal/clock"
)

const (
	// LeastEvery is the shortest interval between two backups.
	LeastEvery = time.Minute
	// pollEvery is how often the schedule looks whether the node leads: before a backup, and while it makes one.
	pollEvery = time.Second
	// busyEvery is the pause until a create that runs elsewhere is looked at again.
	busyEvery = 30 * time.Second
	// lookEvery bounds the time until the store is read again, for a newer backup or for one that was deleted.
	lookEvery = time.Hour
	// retryAfter is the pause after the first failure; it doubles with each further one, up to retryMost and the interval.
	retryAfter = time.Minute
	retryMost  = time.Hour
	// lookWithin bounds a look at the store before a backup.
	lookWithin = 10 * time.Minute
)

// Options are New's.
type Options struct {
	// URL names the store in the status and the log.
	URL    string
	Open   func() (backup.Store, error)
	Source backup.Source
	// Every is the time between the cuts of two backups.
	Every time.Duration
	// Keep is how many backups of the cluster are kept; 0: all.
	Keep int
	// Rate bounds the bytes that nodes read for a backup, per second; 0: no bound.
	Rate int64
	// Spool is the directory for temporary files; "": the system's.
	Spool string
	// Leads reports whether this node makes the cluster's backups now. It must not block.
	Leads func() bool

	Clock clock.Clock
	Log   *slog.Logger
}

// Schedule makes backups in the background. It is a prometheus.Collector.
type Schedule struct {
	o Options

	mu     sync.Mutex
	status perdurev1.BackupSchedule
	// made, failed and stored count since the start.
	made, failed uint64
	stored       int64

	// The fields below are Run's.
	//
	// next is when the store is looked at again; waiting says that a create elsewhere was logged.
	next    time.Time
	waiting bool
}

// New makes the schedule of a node.
func New(o Options) *Schedule {
	return &Schedule{o: o, status: perdurev1.BackupSchedule{Url: o.URL, EveryMs: o.Every.Milliseconds(), Keep: uint32(o.Keep)}}
}

// Status is what the node knows of the cluster's backups. It does not block.
func (s *Schedule) Status() *perdurev1.BackupSchedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return proto.CloneOf(&s.status)
}

// note changes the status.
func (s *Schedule) note(change func(st *perdurev1.BackupSchedule)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// Run makes backups until ctx ends, and blocks until the last one has ended.
func (s *Schedule) Run(ctx context.Context) {
	s.o.Log.Info("backups are made while this node leads partition 0", "event", "backup_schedule", "url", s.o.URL, "every", s.o.Every, "keep", s.o.Keep)
	for {
		switch now := s.o.Clock.Now(); {
		case !s.o.Leads():
			s.forget()
		case !now.Before(s.next):
			s.turn(ctx)
		}
		if !clock.Wait(ctx, s.o.Clock, pollEvery) {
			return
		}
	}
}

// forget drops what another node knows better from now on.
func (s *Schedule) forget() {
	s.next, s.waiting = time.Time{}, false
	s.note(func(st *perdurev1.BackupSchedule) {
		*st = perdurev1.BackupSchedule{Url: st.Url, EveryMs: st.EveryMs, Keep: st.Keep}
	})
}

// turn makes a backup if one is due, and sets when the store is looked at again.
func (s *Schedule) turn(ctx context.Context) {
	leading, stop := s.whileLeading(ctx)
	defer stop()
	s.note(func(st *perdurev1.BackupSchedule) { st.Leads = true })
	next, err := s.work(leading)
	s.note(func(st *perdurev1.BackupSchedule) { st.Running = err == nil && s.waiting })
	switch {
	case leading.Err() != nil:
		return // the next leader, or the next start, continues
	case err != nil:
		next = s.fail(err)
	}
	s.note(func(st *perdurev1.BackupSchedule) { st.NextMs = next.UnixMilli() })
	s.next = next
	if most := s.o.Clock.Now().Add(lookEvery); s.next.After(most) {
		s.next = most
	}
}

// whileLeading returns a context that ends when the node stops leading. The caller must call stop.
func (s *Schedule) whileLeading(ctx context.Context) (leading context.Context, stop func()) {
	leading, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for clock.Wait(leading, s.o.Clock, pollEvery) {
			if !s.o.Leads() {
				cancel()
			}
		}
	})
	return leading, func() {
		cancel()
		watch.Wait()
	}
}

// work looks at the store and makes a backup if one is due. It returns when to look again.
func (s *Schedule) work(ctx context.Context) (next time.Time, err error) {
	store, cluster, err := s.look(ctx)
	if err != nil {
		return next, err
	}
	st, now := s.Status(), s.o.Clock.Now()
	if due := time.UnixMilli(st.LastMs).Add(s.o.Every); st.LastName != "" && now.Before(due) {
		s.waiting = false
		return due, nil
	}
	other, err := s.other(ctx, store)
	if err != nil {
		return next, err
	}
	if other != "" {
		if !s.waiting {
			s.o.Log.Info("another create is running, the schedule waits", "event", "backup_waits", "name", other)
		}
		s.waiting = true
		return now.Add(busyEvery), nil
	}
	s.waiting = false
	s.note(func(st *perdurev1.BackupSchedule) { st.Running, st.NextMs = true, 0 })
	r, err := backup.Create(ctx, s.o.Source, store, backup.Options{Rate: s.o.Rate, Spool: s.o.Spool})
	if err != nil {
		return next, err
	}
	s.succeed(r, now)
	s.keep(ctx, store, cluster)
	return r.Created.Add(s.o.Every), nil
}

// look opens the store and finds the newest backup of the cluster.
func (s *Schedule) look(ctx context.Context) (store backup.Store, cluster string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	if store, err = s.o.Open(); err != nil {
		return nil, "", err
	}
	if cluster, err = s.o.Source.Cluster(ctx); err != nil {
		return nil, "", err
	}
	m, err := backup.NewestOf(ctx, store, cluster)
	if err != nil {
		return nil, "", err
	}
	s.note(func(st *perdurev1.BackupSchedule) {
		st.LastName, st.LastMs, st.LastBytes = "", 0, 0
		if m != nil {
			st.LastName, st.LastMs, st.LastBytes = m.Name, m.Created.UnixMilli(), uint64(m.Bytes())
		}
	})
	return store, cluster, nil
}

// other names a create that may be running; "" if there is none.
func (s *Schedule) other(ctx context.Context, store backup.Store) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	partials, err := backup.Partials(ctx, store)
	if err != nil {
		return "", err
	}
	for _, p := range partials {
		if p.Running(s.o.Clock.Now()) {
			return p.Name, nil
		}
	}
	return "", nil
}

// succeed notes a backup that was made.
func (s *Schedule) succeed(r *backup.Result, began time.Time) {
	s.mu.Lock()
	s.made++
	s.stored += r.Progress.Stored
	s.status.LastName, s.status.LastMs, s.status.LastBytes = r.Name, r.Created.UnixMilli(), uint64(r.Bytes())
	s.status.Failures, s.status.Problem = 0, ""
	s.mu.Unlock()
	s.o.Log.Info("backup made", "event", "backup_made", "name", r.Name, "bytes", r.Bytes(), "stored", r.Progress.Stored,
		"resumed", r.Progress.Resumed, "took", s.o.Clock.Now().Sub(began))
}

// keep deletes the backups beyond those that are kept. What fails is done after the next backup.
func (s *Schedule) keep(ctx context.Context, store backup.Store, cluster string) {
	if s.o.Keep == 0 {
		return
	}
	deleted, err := backup.Keep(ctx, store, cluster, s.o.Keep)
	var done backup.Collected
	if err == nil && len(deleted) > 0 {
		done, err = backup.Collect(ctx, store)
	}
	switch busy := (*backup.BusyError)(nil); {
	case errors.As(err, &busy):
		s.o.Log.Info("unused files of backups stay for now", "event", "backup_files_stay", "reason", busy.Error())
	case err != nil && ctx.Err() == nil:
		s.o.Log.Warn("cannot delete older backups", "event", "backup_keep_failed", "error", err)
	}
	if len(deleted) > 0 {
		s.o.Log.Info("older backups deleted", "event", "backup_deleted", "names", deleted, "files", done.Files, "bytes", done.Bytes)
	}
}

// fail notes a failed attempt and returns when the next one is made.
func (s *Schedule) fail(err error) time.Time {
	s.mu.Lock()
	s.failed++
	s.status.Failures++
	s.status.Problem = err.Error()
	failures, last := s.status.Failures, s.status.LastName
	s.mu.Unlock()
	wait := min(retryAfter<<min(failures-1, 10), retryMost, s.o.Every)
	s.o.Log.Error("backup failed", "event", "backup_failed", "url", s.o.URL, "failures", failures, "retry_in", wait, "last", last, "error", err)
	return s.o.Clock.Now().Add(wait)
}
