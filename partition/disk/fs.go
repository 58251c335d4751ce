package disk

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the guarded file system: see the package comment. Reads and removals are those of the one below, and so are
// syncs, which it counts.
func (g *Guard) FS() vfs.FS { return &guardedFS{FS: g.fs, g: g} }

type guardedFS struct {
	vfs.FS
	g *Guard
}

// lookBytes is how much a table may grow the interval at which the guard reads the free space.
const lookBytes = 1 << 20

// yieldFor is how long the writes of a table let other goroutines run first. A table of 2 MiB takes a tenth of it alone, so
// flushes and compactions keep a share when all cores are busy.
const yieldFor = 200 * time.Millisecond

// spared says how much must stay free for a file that may fail, and whether it is one: tables, and copies of states.
func spared(name string, category vfs.DiskWriteCategory) (Level, bool) {
	base := name[strings.LastIndexAny(name, `/\`)+1:]
	switch {
	case category == "pebble-memtable-flush":
		return Full, true
	case strings.HasPrefix(string(category), "pebble-compaction"), strings.HasPrefix(string(category), "pebble-blob"):
		return Critical, true
	case strings.HasSuffix(base, ".sst"), strings.HasSuffix(base, ".blob"):
		return Full, true
	case strings.HasPrefix(base, "delta-"), strings.HasPrefix(base, "fetched-"), strings.HasPrefix(base, "sending-"), strings.HasPrefix(base, "received-"):
		return Critical, true
	}
	return OK, false
}

// Create implements vfs.FS. A table's creation waits for space, a second at most, and a compaction's for its turn.
func (f *guardedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if level, may := spared(name, category); may {
		if err := f.g.await(level); err != nil {
			return nil, &fs.PathError{Op: "create", Path: name, Err: err}
		}
		turn := strings.HasPrefix(string(category), "pebble-compaction") && f.g.takeTurn()
		file, err := f.FS.Create(name, category)
		if err != nil {
			if turn {
				f.g.endTurn()
			}
			return nil, err
		}
		return &table{File: countedFile{file, &f.g.syncs}, g: f.g, level: level, name: name, unseen: lookBytes,
			yields: f.g.clock.Now().Add(yieldFor), turn: turn}, nil
	}
	return f.file(name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

// await waits until a table may begin, for pace at most.
func (g *Guard) await(level Level) error {
	err := g.checkTable(lookBytes, level)
	for until := g.clock.Now().Add(pace); err != nil && g.clock.Now().Before(until); err = g.checkTable(lookBytes, level) {
		if !g.pause(retryEvery) {
			return err
		}
	}
	return err
}

// checkTable refuses to write n bytes of a table that would leave less than the mark of a level free. While
// stores open, a flush gives up the reserve first: Pebble opens no log before it has flushed what it read of
// it.
func (g *Guard) checkTable(n int64, level Level) error {
	err := g.Check(n, level)
	if err != nil && level == Full && g.opening.Load() {
		g.releaseReserve()
		err = g.Check(n, level)
	}
	return err
}

// Opening lets flushes use the reserve, until Opened: while a node opens its stores.
func (g *Guard) Opening() { g.opening.Store(true) }

// Opened ends Opening.
func (g *Guard) Opened() { g.opening.Store(false) }

// CheckFlush refuses, with a *FullError, what Pebble needs to begin the flush of a memtable.
func (g *Guard) CheckFlush() error { return g.Check(lookBytes, Full) }

// file opens a file whose writes must not fail for lack of space.
func (f *guardedFS) file(name string, open func() (vfs.File, error)) (file vfs.File, err error) {
	if err := f.g.insist(name, func() error { file, err = open(); return err }); err != nil {
		return nil, err
	}
	return &waitingFile{File: countedFile{file, &f.g.syncs}, g: f.g, name: name}, nil
}

func (f *guardedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

func (f *guardedFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(newname, func() (vfs.File, error) {
		file, err := f.FS.ReuseForWrite(oldname, newname, category)
		if err != nil && errors.Is(err, fs.ErrNotExist) {
			// An attempt before may have renamed it.
			return f.FS.Create(newname, category)
		}
		return file, err
	})
}

func (f *guardedFS) Link(oldname, newname string) error {
	return f.g.insist(newname, func() error { return f.FS.Link(oldname, newname) })
}

func (f *guardedFS) Rename(oldname, newname string) error {
	return f.g.insist(newname, func() error { return f.FS.Rename(oldname, newname) })
}

func (f *guardedFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.g.insist(dir, func() error { return f.FS.MkdirAll(dir, perm) })
}

// Unwrap implements vfs.FS.
func (f *guardedFS) Unwrap() vfs.FS { return f.FS }

// Syncs is how many calls have synced a file.
func (g *Guard) Syncs() int64 { return g.syncs.Load() }

// countedFile counts the syncs of a file.
type countedFile struct {
	vfs.File
	syncs *atomic.Int64
}

// Sync implements vfs.File.
func (c countedFile) Sync() error {
	c.syncs.Add(1)
	return c.File.Sync()
}

// SyncData implements vfs.File.
func (c countedFile) SyncData() error {
	c.syncs.Add(1)
	return c.File.SyncData()
}

// SyncTo implements vfs.File. It may write without a sync, which does not count.
func (c countedFile) SyncTo(length int64) (full bool, err error) {
	if full, err = c.File.SyncTo(length); full {
		c.syncs.Add(1)
	}
	return full, err
}

// waitingFile is a file whose writes wait for space.
type waitingFile struct {
	vfs.File
	g    *Guard
	name string
}

// Write implements io.Writer. It blocks while the disk is full.
func (p *waitingFile) Write(b []byte) (written int, err error) {
	err = p.g.insist(p.name, func() error {
		n, err := p.File.Write(b[written:])
		written += n
		return err
	})
	return written, err
}

// WriteAt implements io.WriterAt. It blocks while the disk is full.
func (p *waitingFile) WriteAt(b []byte, at int64) (written int, err error) {
	err = p.g.insist(p.name, func() error {
		n, err := p.File.WriteAt(b[written:], at+int64(written))
		written += n
		return err
	})
	return written, err
}

// TryWriteAt is WriteAt for what need not be written: it fails on a full disk, and takes nothing of the reserve.
func (p *waitingFile) TryWriteAt(b []byte, at int64) (int, error) { return p.File.WriteAt(b, at) }

// table is a file whose writes fail while there is space left for others.
type table struct {
	vfs.File
	g      *Guard
	level  Level
	name   string
	unseen int64     // bytes written since the last measurement; its writer is one goroutine
	yields time.Time // until when writes yield
	turn   bool      // it has a turn, which its end passes on
}

// Write implements io.Writer. Its error is ENOSPC while less than the level's mark would be free. Pebble writes a table block by
// block and begins no block before the one before the last is written. Flushes and compactions of several partitions would use
// all cores for 10 ms at a time, which a request waits for at each goroutine that it passes; so they yield before each block.
func (t *table) Write(b []byte) (int, error) {
	if t.unseen += int64(len(b)); t.unseen >= lookBytes {
		if err := t.g.checkTable(int64(len(b)), t.level); err != nil {
			return 0, &fs.PathError{Op: "write", Path: t.name, Err: err}
		}
		t.unseen = 0
	}
	if t.g.clock.Now().Before(t.yields) {
		t.g.yield()
	}
	return t.File.Write(b)
}
