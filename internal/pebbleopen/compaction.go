package pebbleopen

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets Pebble compact a database from begin on, as many at once as the database allows.
type scheduler struct {
	// db is set before any other call.
	db pebble.DBForCompaction

	// granting is held while compactions are granted. It is taken before Pebble's own locks, mu after them.
	granting sync.Mutex

	mu           sync.Mutex
	begun, ended bool
	running      int
}

var _ pebble.CompactionScheduler = (*scheduler)(nil)

// Register implements pebble.CompactionScheduler. Open does it before it may fail, and never undoes it.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) { s.db = db }

// begin grants the compactions that have waited, and permits new ones from now on. The database is open.
func (s *scheduler) begin() {
	s.mu.Lock()
	s.begun = true
	s.mu.Unlock()
	s.grant()
}

// Unregister implements pebble.CompactionScheduler: when it returns, nothing is granted any more.
func (s *scheduler) Unregister() {
	s.granting.Lock()
	defer s.granting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// TrySchedule implements pebble.CompactionScheduler. A refused compaction waits for begin, or for the end of
// a running compaction, which grants the next.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasCapacity() {
		return false, nil
	}
	s.running++
	return true, s
}

// hasCapacity reports whether one more compaction may run. The caller holds mu.
func (s *scheduler) hasCapacity() bool {
	return s.begun && !s.ended && s.running < s.db.GetAllowedWithoutPermission()
}

// grant starts what waits. The caller holds no lock of Pebble's.
func (s *scheduler) grant() {
	s.granting.Lock()
	defer s.granting.Unlock()
	for s.grantOne() {
	}
}

func (s *scheduler) grantOne() bool {
	s.mu.Lock()
	free := s.hasCapacity()
	s.mu.Unlock()
	if !free {
		return false
	}
	if waiting, _ := s.db.GetWaitingCompaction(); !waiting || !s.db.Schedule(s) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++ // it may have ended already, and be counted down before it is counted
	return true
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. Where more are allowed now, the
// next question and the next end find out.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {}

// Done implements pebble.CompactionGrantHandle.
func (s *scheduler) Done() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	s.grant()
}

// Started implements pebble.CompactionGrantHandle; so do the other two. Nothing is measured.
func (s *scheduler) Started() {}

func (s *scheduler) MeasureCPU(pebble.CompactionGoroutineKind) {}

func (s *scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}
