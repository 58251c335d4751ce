// Package crashfs is Pebble's file system in memory, for tests that clone it as a power loss would leave it, while
// others use it.
//
// vfs.MemFS takes the lock that keeps clones apart twice when a file is reused or a directory is locked; a clone
// that waits between the two hangs both for good. Here no clone begins while such an operation is under way.
package crashfs

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a file system in memory. It is safe for concurrent use, as long as all who clone it use this FS.
type FS struct {
	*vfs.MemFS
	cloning sync.RWMutex
}

var _ vfs.FS = (*FS)(nil)

// New is an empty file system that can be cloned.
func New() *FS { return Of(vfs.NewCrashableMem()) }

// Of makes a file system that is there already one of this kind.
func Of(mem *vfs.MemFS) *FS { return &FS{MemFS: mem} }

// CrashClone is what a power loss would leave now. It waits for operations that are under way.
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *FS {
	f.cloning.Lock()
	defer f.cloning.Unlock()
	return Of(f.MemFS.CrashClone(cfg))
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.cloning.RLock()
	defer f.cloning.RUnlock()
	return f.MemFS.ReuseForWrite(oldname, newname, category)
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.cloning.RLock()
	defer f.cloning.RUnlock()
	return f.MemFS.Lock(name)
}
