package repair

import (
	"io/fs"
	"log/slog"
	"strings"

	commandv1 "perdure/api/command/v1"

	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/fsync"
	"perdure/partition/disk"
	"perdure/partition/snapshot"
)

// Contents manages the copies of states on their way between nodes. Copies for snapshots lie in the same
// directory as the state, in files named after the marker: one while it is sent to a follower that lags
// behind the log, one from its receipt until it is installed. Its fields do not change.
type Contents struct {
	FS     vfs.FS
	Dir    string
	NodeID string
	Disk   *disk.Guard
	Log    *slog.Logger
}

func (c *Contents) path(partition uint32, kind, markerID string) string {
	return c.FS.PathJoin(c.Dir, fmt.Sprintf("%s-%04d-%s", kind, partition, markerID))
}

// Sweep removes copies that a crash has left behind.
func (c *Contents) Sweep() {
	names, err := c.FS.List(c.Dir)
	if err != nil {
		return // the next step of a start reports it
	}
	for _, name := range names {
		if strings.HasPrefix(name, "fetched-") || strings.HasPrefix(name, "sending-") {
			if err := c.FS.Remove(c.FS.PathJoin(c.Dir, name)); err != nil {
				c.Log.Warn("cannot remove stale copy of a state", "event", "sweep_failed", "file", name, "error", err)
			}
		}
	}
}

// Open returns snapshot.Options.Content: it opens a marker's content, either a received file or a copy of the
// present state. write makes that copy, which may be newer than the marker.
func (c *Contents) Open(partition uint32, write func(io.Writer) (int64, error)) func(snapshot.Marker) (io.ReadCloser, int64, error) {
	return func(m snapshot.Marker) (io.ReadCloser, int64, error) {
		if m.Origin == snapshot.Received {
			if f, err := c.FS.Open(c.path(partition, "received", m.ID)); err == nil {
				return f, m.Size, nil
			}
			// The content was installed long ago: the state itself is its content now.
		}
		path := c.path(partition, "sending", m.ID)
		f, err := c.FS.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, 0, err
		}
		size, err := write(&contentCopy{to: f, disk: c.Disk})
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, 0, errors.Join(err, c.FS.Remove(path))
		}
		read, err := c.FS.Open(path)
		if err != nil {
			return nil, 0, err
		}
		return &sentFile{File: read, fs: c.FS, path: path}, size, nil
	}
}

// sentFile removes the copy once it was sent.
type sentFile struct {
	vfs.File
	fs   vfs.FS
	path string
}

func (f *sentFile) Close() error { return errors.Join(f.File.Close(), f.fs.Remove(f.path)) }

// Receive returns snapshot.Options.Receive: it prepares the file that takes a snapshot's content.
func (c *Contents) Receive(partition uint32) func(snapshot.Marker) (snapshot.Receiver, error) {
	return func(m snapshot.Marker) (snapshot.Receiver, error) {
		if err := c.Disk.Check(0, disk.Low); err != nil {
			return nil, c.refuse(partition, 0, err)
		}
		path := c.path(partition, "received", m.ID)
		f, err := c.FS.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		return &receivedFile{File: f, of: c, path: path, partition: partition, copy: contentCopy{to: f, disk: c.Disk, installed: true}}, nil
	}
}

// Discard returns snapshot.Options.Discard: it removes received content that no marker needs any more.
func (c *Contents) Discard(partition uint32) func(snapshot.Marker) {
	return func(m snapshot.Marker) {
		path := c.path(partition, "received", m.ID)
		if err := c.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.Log.Warn("cannot remove received snapshot content", "event", "discard_failed", "path", path, "error", err)
		}
	}
}

// fetch copies a state that another node sends into a file.
func (c *Contents) fetch(partition uint32, from string, stream commandv1.Peers_ContentClient) (path string, err error) {
	path = c.FS.PathJoin(c.Dir, fmt.Sprintf("fetched-%04d", partition))
	f, err := c.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	to := contentCopy{to: f, disk: c.Disk, installed: true}
	for {
		var chunk *commandv1.ContentChunk
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		if _, err = to.Write(chunk.Data); err != nil {
			if disk.IsFull(err) {
				err = c.refuse(partition, to.written, err)
			}
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("copying from %s: %w", from, err), c.FS.Remove(path))
	}
	return path, nil
}

// contentCopy writes a partition's content to a file as long as the disk's low mark stays free. It counts the
// file, and as much again for the state that is made of it, if it is to be installed.
type contentCopy struct {
	to        io.Writer
	disk      *disk.Guard
	installed bool
	written   int64
}

// Write implements io.Writer. A *disk.FullError says that p does not fit; nothing of it was written.
func (c *contentCopy) Write(p []byte) (int, error) {
	need := int64(len(p))
	if c.installed {
		need += c.written + int64(len(p))
	}
	if err := c.disk.Check(need, disk.Low); err != nil {
		return 0, err
	}
	n, err := c.to.Write(p)
	c.written += int64(n)
	return n, err
}

// refuse returns the error for a state from another node that does not fit the disk; came bytes of it had
// arrived.
func (c *Contents) refuse(partition uint32, came int64, full error) error {
	c.Log.Warn("state from another node does not fit the disk", "event", "content_refused", "partition", partition, "received", came, "error", full)
	return fmt.Errorf("partition %d: the state does not fit the disk of node %s, %d bytes of it had come: %w", partition, c.NodeID, came, full)
}

type receivedFile struct {
	vfs.File
	of        *Contents
	path      string
	partition uint32
	copy      contentCopy
}

// Write implements snapshot.Receiver. It refuses content for which there is no space before the disk is full.
func (f *receivedFile) Write(p []byte) (int, error) {
	n, err := f.copy.Write(p)
	if err != nil && disk.IsFull(err) {
		err = f.of.refuse(f.partition, f.copy.written, err)
	}
	return n, err
}

// Commit implements snapshot.Receiver.
func (f *receivedFile) Commit() error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return fsync.SyncDir(f.of.FS, f.of.Dir)
}

// Abort implements snapshot.Receiver.
func (f *receivedFile) Abort() error {
	return errors.Join(f.Close(), f.of.FS.Remove(f.path))
}
