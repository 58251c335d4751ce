package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/clock"
)

// ReserveFile is the name of the preallocated file.
const ReserveFile = "disk-reserve"

// Bounds of the default reserve: 1 % of the disk between these.
const (
	MinReserve = 64 << 20
	MaxReserve = 1 << 30
)

const (
	// measureEvery is the interval at which the guard reads the free space.
	measureEvery = time.Second
	// retryEvery is between two attempts of a write that met a full disk.
	retryEvery = 100 * time.Millisecond
	// pace is how long a new table waits for space before its creation fails; Pebble tries again at once.
	pace = time.Second
)

// Level is how little space is left.
type Level uint8

// The levels, in order.
const (
	OK Level = iota
	Low
	Critical
	Full
)

// String is the level's name.
func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Low:
		return "low"
	case Critical:
		return "critical"
	case Full:
		return "full"
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// FullError refuses a write before anything is written. It is ENOSPC to errors.Is.
type FullError struct {
	// Free are the free bytes, less those admitted and not written yet; Need the bytes of the write; Mark the
	// bytes that must stay free.
	Free, Need, Mark int64
	// Spent: elections have used up their part of the reserve, of which Free bytes are left.
	Spent bool
}

func (e *FullError) Error() string {
	if e.Spent {
		return fmt.Sprintf("disk: %d bytes exceed the %d that elections may still use of the reserve", e.Need, max(e.Free, 0))
	}
	return fmt.Sprintf("disk: %d bytes do not fit: %d are free and %d must stay free", e.Need, max(e.Free, 0), e.Mark)
}

// Unwrap is ENOSPC.
func (*FullError) Unwrap() error { return syscall.ENOSPC }

// IsFull reports whether an error says that the disk, or the quota on it, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Status is the result of a guard's last check of the free space.
type Status struct {
	Level Level
	// Free and Total are bytes of the file system, 0 if unknown. The reserve file counts as used.
	Free, Total int64
	// Reserve is the size of the reserve, Held whether its file is there.
	Reserve int64
	Held    bool
	// Waiting are writes that wait for space now.
	Waiting int64
	// Low is the mark below which growth is refused.
	Low int64
}

// Options of New. FS and Dir are required.
type Options struct {
	// FS is the file system, Dir the directory whose free space is checked.
	FS  vfs.FS
	Dir string
	// Reserve is R in bytes; 0 for 1 % of the disk, MinReserve at least and MaxReserve at most.
	Reserve int64
	// Usage reads the free and total bytes of the file system; nil for FS.GetDiskUsage. With ErrUnsupported
	// every level is OK.
	Usage func() (free, total int64, err error)
	// Clock paces measurements and retries; the machine's if nil.
	Clock clock.Clock
	// Logger gets the lines for an operator; nil for none.
	Logger *slog.Logger
	// OnLevel is called after the level has changed, on the goroutine that noticed it. It must not block. Nil
	// for none.
	OnLevel func(from, to Level)
}

// Guard watches one directory. Its methods are safe for concurrent use; those that are not said to block do not wait
// for space.
type Guard struct {
	fs      vfs.FS // below
	dir     string
	asked   int64
	usage   func() (int64, int64, error)
	clock   clock.Clock
	yield   func()        // lets other goroutines run
	turns   chan struct{} // one element for each table that a compaction writes in its turn
	log     *slog.Logger
	onLevel func(from, to Level)

	level   atomic.Uint32
	waiting atomic.Int64
	syncs   atomic.Int64
	opening atomic.Bool // see Opening

	mu           sync.Mutex // guards the rest
	free         int64
	total        int64
	reserve      int64
	inflight     int64
	held         bool
	unmeasurable bool // the usage cannot be read
	// elections are the bytes that elections may use of the reserve, as of electionsAt; 0 <= elections <= R/8.
	elections   float64
	electionsAt time.Time

	// ballast is held while the reserve file is made or removed.
	ballast sync.Mutex

	stop     chan struct{}
	done     chan struct{}
	stopOnce sync.Once
	runOnce  sync.Once
}

// New returns a guard that checks the free space on request; Run checks it periodically.
func New(o Options) *Guard {
	g := &Guard{fs: o.FS, dir: o.Dir, asked: o.Reserve, usage: o.Usage, clock: o.Clock, yield: runtime.Gosched, turns: make(chan struct{}, turnsOf(runtime.GOMAXPROCS(0))), log: o.Logger, onLevel: o.OnLevel,
		stop: make(chan struct{}), done: make(chan struct{})}
	if g.usage == nil {
		g.usage = func() (int64, int64, error) {
			u, err := g.fs.GetDiskUsage(g.dir)
			return int64(u.AvailBytes), int64(u.TotalBytes), err
		}
	}
	if g.clock == nil {
		g.clock = clock.System{}
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g
}

// Run begins to watch and to keep the reserve, until Close.
func (g *Guard) Run() {
	g.runOnce.Do(func() {
		g.Measure()
		g.ensureReserve()
		go func() {
			defer close(g.done)
			for g.pause(measureEvery) {
				g.Measure()
				g.ensureReserve()
			}
		}()
	})
}

// Close ends the watch. Writes that wait for space fail. The reserve file stays.
func (g *Guard) Close() {
	g.stopOnce.Do(func() { close(g.stop) })
	g.runOnce.Do(func() { close(g.done) })
	<-g.done
}

// Level is the level at the last measurement.
func (g *Guard) Level() Level { return Level(g.level.Load()) }

// Status returns the result of the last check of the free space.
func (g *Guard) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{Level: g.Level(), Free: g.free, Total: g.total, Reserve: g.reserve, Held: g.held, Waiting: g.waiting.Load(),
		Low: g.mark(Low)}
}

// mark is what must stay free for a level not to be reached. The caller holds mu.
func (g *Guard) mark(l Level) int64 {
	switch l {
	case Low:
		return 2 * g.reserve
	case Critical:
		return g.reserve
	case Full:
		return g.reserve / 2
	}
	return 0
}

// scarceMark is what must stay free beside files that can be made again. The caller holds mu.
func (g *Guard) scarceMark() int64 { return g.mark(Low) + g.reserve }

// Scarce reports whether so little is free that files which can be made again are to be removed, before anything else is
// refused for them. It is of the last measurement.
func (g *Guard) Scarce() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.unmeasurable && g.free < g.scarceMark()
}

// CheckSpare refuses, with a *FullError, n bytes of files that can be made again, if Scarce would be true with them.
func (g *Guard) CheckSpare(n int64) error {
	release, err := g.admit(n, func(free int64) error {
		if free-n < g.scarceMark() {
			return &FullError{Free: free, Need: n, Mark: g.scarceMark()}
		}
		return nil
	})
	if err == nil {
		release()
	}
	return err
}

// Measure reads the free space and returns the level.
func (g *Guard) Measure() Level {
	g.mu.Lock()
	from, to := g.measureLocked()
	g.mu.Unlock()
	g.report(from, to)
	return to
}

func (g *Guard) measureLocked() (from, to Level) {
	from = g.Level()
	free, total, err := g.usage()
	if err != nil {
		if !g.unmeasurable && !errors.Is(err, vfs.ErrUnsupported) {
			g.log.Warn("cannot read free disk space", "event", "disk_unknown", "dir", g.dir, "error", err)
		}
		g.unmeasurable, g.free, g.total = true, 0, 0
		g.level.Store(uint32(OK))
		return from, OK
	}
	g.unmeasurable, g.free, g.total = false, free, total
	if g.reserve == 0 {
		if g.reserve = g.asked; g.reserve == 0 {
			g.reserve = min(max(total/100, MinReserve), MaxReserve)
		}
	}
	// A level is left only when an eighth more than its mark is free, so that it does not change to and fro.
	to = OK
	for _, l := range []Level{Low, Critical, Full} {
		mark := g.mark(l)
		if from >= l {
			mark += mark / 8
		}
		if free < mark {
			to = l
		}
	}
	g.level.Store(uint32(to))
	return from, to
}

// report logs a change of level and calls OnLevel.
func (g *Guard) report(from, to Level) {
	if from == to {
		return
	}
	st := g.Status()
	at := slog.LevelWarn
	if to == OK {
		at = slog.LevelInfo
	}
	g.log.Log(context.Background(), at, "free disk space", "event", "disk_level", "level", to.String(), "was", from.String(),
		"free", st.Free, "total", st.Total, "low_mark", st.Low)
	if g.onLevel != nil {
		g.onLevel(from, to)
	}
}

// Check refuses a write of n bytes that would leave less than the mark of a level free. It reserves nothing.
func (g *Guard) Check(n int64, l Level) error {
	release, err := g.Admit(n, l)
	if err == nil {
		release()
	}
	return err
}

// Admit refuses, with a *FullError, a write of n bytes that would leave less than the mark of a level free. Until
// release is called, once, the bytes count as used: call it when they are written.
func (g *Guard) Admit(n int64, l Level) (release func(), err error) {
	return g.admit(n, func(free int64) error {
		if free-n < g.mark(l) {
			return &FullError{Free: free, Need: n, Mark: g.mark(l)}
		}
		return nil
	})
}

// AdmitCatchUp is Admit for an entry that another member's log already has and that a majority needs. It may use the
// reserve down to R/2.
func (g *Guard) AdmitCatchUp(n int64) (release func(), err error) {
	return g.admit(n, func(free int64) error { return g.fits(free, n, g.reserve/2) })
}

// AdmitElection is Admit for an entry with which a leader begins. It may use the reserve down to R/4, at most
// R/8 at once and R/8 more in an hour, so elections without an end leave space for the writes that must be done.
func (g *Guard) AdmitElection(n int64) (release func(), err error) {
	return g.admit(n, func(free int64) error {
		if err := g.fits(free, n, g.reserve/4); err != nil {
			return err
		}
		limit, now := float64(g.reserve/8), g.clock.Now()
		if g.electionsAt.IsZero() {
			g.elections = limit
		} else {
			g.elections = min(g.elections+limit*now.Sub(g.electionsAt).Hours(), limit)
		}
		g.electionsAt = now
		if g.elections < float64(n) {
			return &FullError{Free: int64(g.elections), Need: n, Spent: true}
		}
		g.elections -= float64(n)
		return nil
	})
}

// fits refuses a write of n bytes after which less than mark would be left of the free space and the reserve. The
// caller holds mu.
func (g *Guard) fits(free, n, mark int64) error {
	if g.held {
		free += g.reserve
	}
	if free-n < mark {
		return &FullError{Free: free, Need: n, Mark: mark}
	}
	return nil
}

// admit counts n bytes as used until release, unless refuse returns an error. It calls refuse with mu held.
func (g *Guard) admit(n int64, refuse func(free int64) error) (release func(), err error) {
	g.mu.Lock()
	from, to := g.measureLocked()
	if !g.unmeasurable {
		err = refuse(g.free - g.inflight)
	}
	if err == nil {
		g.inflight += n
	}
	g.mu.Unlock()
	g.report(from, to)
	if err != nil {
		return nil, err
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inflight -= n
	}, nil
}

// ensureReserve makes the reserve file if it is missing and there is ample space.
func (g *Guard) ensureReserve() {
	g.ballast.Lock()
	defer g.ballast.Unlock()
	path := g.fs.PathJoin(g.dir, ReserveFile)
	_, err := g.fs.Stat(path)
	g.mu.Lock()
	had := g.held
	g.held = err == nil
	free, reserve, wanted := g.free, g.reserve, !g.unmeasurable && err != nil && g.free >= 2*g.mark(Low)+g.reserve
	g.mu.Unlock()
	if had && err != nil {
		g.log.Warn("disk reserve gone", "event", "disk_reserve_gone", "file", path, "free", free)
	}
	if !wanted {
		return
	}
	if err := preallocate(g.fs, path, reserve); err != nil {
		g.log.Warn("cannot create the disk reserve", "event", "disk_reserve_failed", "file", path, "bytes", reserve, "error", err)
		return
	}
	g.mu.Lock()
	g.held = true
	g.mu.Unlock()
	g.Measure()
	if had || free > 0 {
		g.log.Info("disk reserve created", "event", "disk_reserve_made", "file", path, "bytes", reserve)
	}
}

// preallocate makes a file that takes n bytes of the disk.
func preallocate(fs vfs.FS, path string, n int64) (err error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = fs.Remove(path)
		}
	}()
	if err := f.Preallocate(0, n); err == nil {
		return f.Sync()
	}
	zero := make([]byte, 1<<20)
	for left := n; left > 0; left -= int64(len(zero)) {
		if _, err := f.Write(zero[:min(left, int64(len(zero)))]); err != nil {
			return err
		}
	}
	return f.Sync()
}

// releaseReserve removes the reserve file: mandatory writes get its space.
func (g *Guard) releaseReserve() {
	g.ballast.Lock()
	defer g.ballast.Unlock()
	path := g.fs.PathJoin(g.dir, ReserveFile)
	if err := g.fs.Remove(path); err != nil {
		return // it is not there
	}
	g.mu.Lock()
	g.held = false
	g.mu.Unlock()
	g.log.Warn("disk full: reserve released for mandatory writes", "event", "disk_reserve_used", "file", path)
}

// Wait helps a caller whose mandatory write has met a full disk: it releases the reserve and waits a moment.
// It blocks for retryEvery at most, and reports whether to try again.
func (g *Guard) Wait(tries int) bool {
	if tries == 0 {
		g.releaseReserve()
		g.Measure()
		return !g.closed()
	}
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	return g.pause(retryEvery)
}

// pause waits for d; false if the guard is closed first.
func (g *Guard) pause(d time.Duration) bool {
	c, stop := g.clock.After(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-g.stop:
		return false
	}
}

func (g *Guard) closed() bool {
	select {
	case <-g.stop:
		return true
	default:
		return false
	}
}

// insist repeats a write until it does not fail for lack of space, or the guard is closed.
func (g *Guard) insist(what string, write func() error) error {
	for tries := 0; ; tries++ {
		err := write()
		if err == nil || !IsFull(err) {
			return err
		}
		if tries == 1 {
			g.log.Error("write waits for disk space", "event", "disk_write_waits", "file", what)
		}
		if !g.Wait(tries) {
			return err
		}
	}
}

// Insist repeats a write of another file in the directory until it does not fail for lack of space. It blocks until
// then, or until Close; what names the file.
func (g *Guard) Insist(what string, write func() error) error { return g.insist(what, write) }
