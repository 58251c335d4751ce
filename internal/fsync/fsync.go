// Package fsync makes names and small files survive a crash.
//
// It owns no files. When one of its functions returns nil, its result is on disk. After a crash at any moment
// a replaced file is the old one or the new one, never a mixture. A crash may leave a file with the suffix
// ".tmp" next to it, which the next replacement overwrites.
package fsync

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TmpSuffix is appended to the name of a file while it is being written.
const TmpSuffix = ".tmp"

// SyncDir makes the names in a directory durable.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDir makes a directory and its missing parents. All parents are synced, also those that were there: a
// process that died may have made them a moment ago. Parents this process may not read are left out.
func MakeDir(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for {
		parent := fsys.PathDir(dir)
		if err := SyncDir(fsys, parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if parent == dir || parent == "." {
			return nil
		}
		dir = parent
	}
}

// WriteFile replaces the file at path atomically and durably: a crash leaves the old content or the new one.
func WriteFile(fsys vfs.FS, path string, b []byte) error {
	tmp := path + TmpSuffix
	err := writeSync(fsys, tmp, b)
	if err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err != nil {
		_ = fsys.Remove(tmp)
		return err
	}
	return SyncDir(fsys, fsys.PathDir(path))
}

func writeSync(fsys vfs.FS, path string, b []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
