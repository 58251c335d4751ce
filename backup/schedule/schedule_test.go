package schedule

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/backup"
	"perdure/internal/clock"
)

// memory is a Store in memory. err fails every Put.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	err     error
}

func (m *memory) Put(_ context.Context, name string, r io.Reader, _ int64) error {
	b, err := io.ReadAll(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err = errors.Join(err, m.err); err == nil {
		m.objects[name] = b
	}
	return err
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	if !ok {
		return nil, &backup.NotFoundError{What: "object", Name: name}
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m *memory) List(_ context.Context, prefix string) (out []backup.Object, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, backup.Object{Name: name, Size: int64(len(m.objects[name]))})
		}
	}
	return out, nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

func (m *memory) Exists(_ context.Context, name string) (int64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	return int64(len(b)), ok, nil
}

// source is a cluster of one partition, on one node, with one file. It keeps every cut.
type source struct {
	mu   sync.Mutex
	cuts []time.Time
	// err fails each cut; running counts the reads under way, of a create one at most, most is their largest number.
	err           error
	running, most int
	// stalls, while it is not nil, holds each read until it is closed or the read's context ends.
	stalls chan struct{}
}

func (*source) Cluster(context.Context) (string, error) { return "c-1", nil }

func (s *source) Cut(context.Context) (backup.Cut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return backup.Cut{}, s.err
	}
	s.cuts = append(s.cuts, time.Now())
	return backup.Cut{Number: uint64(len(s.cuts)), Cluster: "c-1", Partitions: 1, Checkpoints: []backup.Checkpoint{{Node: "n1", Index: 7}}}, nil
}

func (*source) content(cut uint64) string { return strings.Repeat("state ", int(cut)) }

func (s *source) List(_ context.Context, cut uint64, _ backup.Checkpoint) (uint64, []backup.Listed, error) {
	return 7, []backup.Listed{{Name: "000001.sst", Size: int64(len(s.content(cut)))}}, nil
}

func (s *source) Read(ctx context.Context, cut uint64, _ backup.Checkpoint, _ string, offset int64) (io.ReadCloser, error) {
	s.mu.Lock()
	stalls := s.stalls
	s.running++
	s.most = max(s.most, s.running)
	s.mu.Unlock()
	defer s.set(func(s *source) { s.running-- })
	if stalls != nil {
		select {
		case <-stalls:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return io.NopCloser(strings.NewReader(s.content(cut)[offset:])), nil
}

func (s *source) Hash(_ context.Context, cut uint64, _ backup.Checkpoint, _ string) (string, error) {
	sum := sha256.Sum256([]byte(s.content(cut)))
	return hex.EncodeToString(sum[:]), nil
}

func (*source) Delta(_ context.Context, cut uint64, at backup.Checkpoint, _ backup.Base, _ int64) (backup.Listed, error) {
	return backup.Listed{}, &backup.GoneError{Cut: cut, Partition: at.Partition, Node: at.Node, Err: errors.New("it makes none")}
}

func (*source) Release(context.Context, uint64) error { return nil }

func (s *source) set(change func(s *source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// began are the times of the cuts.
func (s *source) began() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cuts)
}

// world is a cluster whose nodes make backups into one store. It is used within a bubble.
type world struct {
	t      *testing.T
	store  *memory
	source *source
}

func newWorld(t *testing.T) *world {
	return &world{t, &memory{objects: map[string][]byte{}}, &source{}}
}

// node runs the schedule of one more node, until the test ends or stop is called.
func (w *world) node(keep int) (s *Schedule, leads *atomic.Bool, stop func()) {
	leads = &atomic.Bool{}
	s = New(Options{URL: "s3://b/p", Open: func() (backup.Store, error) { return w.store, nil }, Source: w.source, Every: time.Hour, Keep: keep,
		Leads: leads.Load, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Spool: w.t.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	return s, leads, func() {
		cancel()
		run.Wait()
	}
}

func (w *world) names() []string {
	names, err := backup.Names(context.Background(), w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	return names
}

// pass lets the virtual time of a bubble pass.
func pass(d time.Duration) {
	clock.Wait(context.Background(), clock.System{}, d)
	synctest.Wait()
}

// The node that leads makes a backup at once if there is none, then one each interval, and keeps so many. Others make none.
func TestScheduleMakesBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, leads, stop := w.node(2)
		defer stop()
		other, _, stopOther := w.node(2)
		defer stopOther()
		pass(10 * time.Hour)
		if got := w.source.began(); len(got) > 0 {
			t.Fatalf("%d backups without a leader", len(got))
		}
		leads.Store(true)
		begun := time.Now()
		pass(30 * time.Minute)
		st := s.Status()
		if len(w.names()) != 1 || st.LastName != w.names()[0] || st.Failures != 0 || st.Running || !st.Leads || st.LastBytes != 6 {
			t.Fatalf("after half an hour: %v, %v", w.names(), st)
		}
		first := st.LastName
		pass(4 * time.Hour)
		cuts := w.source.began()
		if len(cuts) != 5 {
			t.Fatalf("%d backups in four and a half hours", len(cuts))
		}
		for n, at := range cuts {
			if late := at.Sub(begun) - time.Duration(n)*time.Hour; late < 0 || late > 10*time.Second {
				t.Errorf("backup %d began %v after the first moment", n, at.Sub(begun))
			}
		}
		if names := w.names(); len(names) != 2 || slices.Contains(names, first) {
			t.Errorf("kept %v", names)
		}
		if files, err := w.store.List(t.Context(), "files/"); err != nil || len(files) != 2 {
			t.Errorf("the store has the files %v, %v", files, err)
		}
		if st := other.Status(); st.Leads || st.LastName != "" || st.EveryMs != time.Hour.Milliseconds() {
			t.Errorf("the other node says %v", st)
		}
	})
}

// A failed backup is tried again after a minute, two, four, up to the interval; success ends that.
func TestScheduleRepeatsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.set(func(s *source) { s.err = errors.New("planted") })
		s, leads, stop := w.node(0)
		defer stop()
		leads.Store(true)
		for n, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
			pass(10 * time.Second)
			st := s.Status()
			left := time.Until(time.UnixMilli(st.NextMs))
			if st.Failures != uint64(n+1) || !strings.Contains(st.Problem, "planted") || left > wait || left < wait-20*time.Second {
				t.Fatalf("after failure %d: %v, the next in %v", n+1, st, left)
			}
			pass(left)
		}
		w.source.set(func(s *source) { s.err = nil })
		pass(time.Hour)
		if st := s.Status(); st.Failures != 0 || st.Problem != "" || len(w.names()) != 1 {
			t.Errorf("after a success: %v", st)
		}
	})
}

// While another create may be running the schedule makes none, and takes its backup for its own.
func TestScheduleWaitsForACreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stalls := make(chan struct{})
		w.source.set(func(s *source) { s.stalls = stalls })
		var create sync.WaitGroup
		create.Go(func() {
			if _, err := backup.Create(context.Background(), w.source, w.store, backup.Options{Spool: t.TempDir()}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		s, leads, stop := w.node(0)
		defer stop()
		leads.Store(true)
		pass(20 * time.Minute)
		if st := s.Status(); len(w.source.began()) != 1 || !st.Running || st.Failures != 0 {
			t.Fatalf("%d creates, %v", len(w.source.began()), st)
		}
		close(stalls)
		create.Wait()
		pass(30 * time.Minute)
		if st := s.Status(); len(w.source.began()) != 1 || st.Running || st.LastName != w.names()[0] {
			t.Fatalf("%d creates, %v", len(w.source.began()), st)
		}
		pass(30 * time.Minute)
		if len(w.source.began()) != 2 || w.source.most != 1 {
			t.Errorf("%d creates, %d at once", len(w.source.began()), w.source.most)
		}
	})
}

// A create ends with its node's leadership. The next leader continues it in the same cut, and nothing counts as failed.
func TestScheduleChangesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.set(func(s *source) { s.stalls = make(chan struct{}) })
		first, leads, stop := w.node(0)
		defer stop()
		second, leadsNext, stopNext := w.node(0)
		defer stopNext()
		leads.Store(true)
		pass(2 * time.Minute)
		if !first.Status().Running {
			t.Fatalf("the first node says %v", first.Status())
		}
		leads.Store(false)
		leadsNext.Store(true)
		w.source.set(func(s *source) { s.stalls = nil })
		pass(2 * time.Minute)
		if st := second.Status(); len(w.names()) != 1 || st.LastName != w.names()[0] || st.Failures != 0 {
			t.Errorf("the second node says %v", st)
		}
		if st := first.Status(); st.Leads || st.Running || st.Failures != 0 || st.LastName != "" {
			t.Errorf("the first node says %v", st)
		}
		first.mu.Lock()
		defer first.mu.Unlock()
		if n := len(w.source.began()); n != 1 || first.failed != 0 {
			t.Errorf("%d cuts for one backup, %d failures", n, first.failed)
		}
	})
}

// Stopping a node in the middle of a backup ends that at once, and the next start continues it.
func TestScheduleStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.set(func(s *source) { s.stalls = make(chan struct{}) })
		_, leads, stop := w.node(0)
		leads.Store(true)
		pass(2 * time.Minute)
		at := time.Now()
		stop()
		if took := time.Since(at); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
		w.source.set(func(s *source) { s.stalls = nil })
		_, leads, stop = w.node(0)
		defer stop()
		leads.Store(true)
		pass(2 * time.Minute)
		if len(w.names()) != 1 || len(w.source.began()) != 1 {
			t.Errorf("%v after %d cuts", w.names(), len(w.source.began()))
		}
	})
}

// METRICS.md names the metrics of backups, and no other.
func TestMetricNames(t *testing.T) {
	doc, err := os.ReadFile("../../partition/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Backups\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var named, names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(perdure_[a-z_]+)`").FindAllStringSubmatch(section, -1) {
		named = append(named, m[1])
	}
	descs := make(chan *prometheus.Desc, 100)
	New(Options{}).Describe(descs)
	close(descs)
	for d := range descs {
		names = append(names, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	slices.Sort(named)
	slices.Sort(names)
	if !slices.Equal(named, names) {
		t.Errorf("METRICS.md names\n%v, there are\n%v", named, names)
	}
}

// What a scrape shows, before the node leads and afterwards.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, leads, stop := w.node(0)
		defer stop()
		registry := prometheus.NewRegistry()
		registry.MustRegister(s)
		scrape := func() map[string]float64 {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]float64{}
			for _, f := range families {
				m := f.GetMetric()[0]
				out[strings.TrimPrefix(f.GetName(), "perdure_backup_")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return out
		}
		if got := scrape(); len(got) != 3 {
			t.Errorf("of a node that does not lead: %v", got)
		}
		leads.Store(true)
		pass(10 * time.Minute)
		got := scrape()
		if age := got["age_seconds"]; age < 590 || age > 600 || got["made_total"] != 1 || got["failures_total"] != 0 || got["last_size_bytes"] != 6 ||
			got["stored_bytes_total"] < 6 || got["running"] != 0 || got["last_success_timestamp_seconds"] == 0 {
			t.Errorf("after one backup: %v", got)
		}
	})
}
