package raftlog

import (
	"errors"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// zeroBytes is by how much a write-ahead log grows at once. So much is in the page cache and in the disk's queue for one sync; the
// next ones, about a hundred of entries of a few commands, find the blocks there.
//
// A log grows so after zeroAfter syncs in a row that each wrote at most zeroSmall bytes beyond its end: what is written in large pieces
// would cost twice the bytes, and gain little.
const (
	zeroBytes = 256 << 10
	zeroSmall = 16 << 10
	zeroAfter = 4
)

// pageBytes are written at once: Linux keeps what is written at once in one large folio, and each later write to a part of that would
// count, and be looked through, as a write of the whole.
const pageBytes = 4 << 10

// zeroAheadFS fills write-ahead logs with zeros before records get there. A sync that makes a file longer writes the file's size, too,
// which is a second write to the disk, one after the other, and on a journaling file system a third. Pebble reuses the files of logs, but
// a log file is 64 MiB, so most of what a store writes in its first hour would go to new ones. Pebble preallocates the space, which
// leaves the size to be written, and the blocks to be marked as written.
//
// Readers take a zero where a record would begin for the end of the log, as they do old bytes in a file that is reused.
type zeroAheadFS struct{ vfs.FS }

// Create implements vfs.FS.
func (fs zeroAheadFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return zeroAhead(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs zeroAheadFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return zeroAhead(newname, f, err)
}

// Unwrap implements vfs.FS.
func (fs zeroAheadFS) Unwrap() vfs.FS { return fs.FS }

func zeroAhead(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // Stat's error says what is wrong
		return nil, err
	}
	return &zeroAheadFile{File: f, size: info.Size()}, nil
}

// A tryWriter is a file whose other writes wait for space, as those of package disk do.
type tryWriter interface {
	TryWriteAt(b []byte, at int64) (int, error)
}

// zeroAheadFile is a write-ahead log. Its Write, Sync and SyncData are for one goroutine at a time.
type zeroAheadFile struct {
	vfs.File
	// size is the file's, end is where the next write goes, and synced where it went after the last sync.
	size, end, synced int64
	small             int // syncs in a row that made the file longer by few bytes
}

// Write implements io.Writer.
func (f *zeroAheadFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.end += int64(n)
	return n, err
}

// Sync implements vfs.File.
func (f *zeroAheadFile) Sync() error {
	if err := f.extend(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *zeroAheadFile) SyncData() error {
	if err := f.extend(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// extend writes the zeros that the sync that follows is to make part of the file.
func (f *zeroAheadFile) extend() error {
	wrote := f.end - f.synced
	f.synced = f.end
	switch {
	case f.end <= f.size:
		return nil // reused, or filled
	case wrote > zeroSmall:
		f.small = 0
	default:
		f.small++
	}
	f.size = f.end
	if f.small < zeroAfter {
		return nil
	}
	write := f.WriteAt
	if below, waits := f.File.(tryWriter); waits {
		write = below.TryWriteAt
	}
	zeros := make([]byte, pageBytes)
	for to := f.end + zeroBytes; f.size < to; {
		clear(zeros) // a file system of tests changes what it was given
		n, err := write(zeros[:min(pageBytes-f.size%pageBytes, to-f.size)], f.size)
		f.size += int64(n)
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			f.small = 0
			return nil // what the sync is for is written
		}
		if err != nil {
			return err
		}
	}
	return nil
}
