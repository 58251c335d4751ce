package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/fsync"
)

// folder is a Store in a directory: each object is a file.
type folder struct {
	fs  vfs.FS
	dir string
	// writes numbers this process's temporary files.
	writes atomic.Uint64
	// writer distinguishes the processes that write to one directory.
	writer string
}

// OpenFolder returns the store in a directory, which the first Put makes.
func OpenFolder(dir string) (Store, error) { return openFolder(vfs.Default, dir) }

func openFolder(fsys vfs.FS, dir string) (*folder, error) {
	info, err := fsys.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is no directory", dir)
	}
	return &folder{fs: fsys, dir: dir, writer: randomText()}, nil
}

func (f *folder) path(name string) string {
	return f.fs.PathJoin(append([]string{f.dir}, strings.Split(name, "/")...)...)
}

// Put implements Store.
func (f *folder) Put(ctx context.Context, name string, r io.Reader, size int64) (err error) {
	path := f.path(name)
	if err := fsync.MakeDir(f.fs, f.fs.PathDir(path)); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%s-%d%s", path, f.writer, f.writes.Add(1), fsync.TmpSuffix)
	defer func() {
		if err != nil {
			_ = f.fs.Remove(tmp) // what remains of it is ignored by List
		}
	}()
	w, err := f.fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	n, err := io.Copy(w, &cancelled{ctx, r})
	if err == nil && n != size {
		err = fmt.Errorf("%s has %d bytes, %d were announced", name, n, size)
	}
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	if err = f.fs.Rename(tmp, path); err != nil {
		return err
	}
	return fsync.SyncDir(f.fs, f.fs.PathDir(path))
}

// Get implements Store.
func (f *folder) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := f.fs.Open(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotFoundError{"object", name}
	}
	if err != nil {
		return nil, err
	}
	return &readCloser{&cancelled{ctx, r}, r}, nil
}

// List implements Store.
func (f *folder) List(ctx context.Context, prefix string) ([]Object, error) {
	list, err := f.fs.List(f.path(strings.TrimSuffix(prefix, "/")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(list)
	var out []Object
	for _, base := range list {
		if strings.HasSuffix(base, fsync.TmpSuffix) {
			continue // being written, or left by a crash
		}
		size, ok, err := f.Exists(ctx, prefix+base)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, Object{prefix + base, size})
		}
	}
	return out, nil
}

// Delete implements Store.
func (f *folder) Delete(_ context.Context, name string) error {
	path := f.path(name)
	switch err := f.fs.Remove(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fsync.SyncDir(f.fs, f.fs.PathDir(path))
}

// Exists implements Store.
func (f *folder) Exists(ctx context.Context, name string) (int64, bool, error) {
	info, err := f.fs.Stat(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, ctx.Err()
	}
	if err != nil {
		return 0, false, err
	}
	return info.Size(), true, ctx.Err()
}

// cancelled is a reader that ends with its context.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c *cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// readCloser joins a reader and what closes it.
type readCloser struct {
	io.Reader
	io.Closer
}
