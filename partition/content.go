package partition

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/fsync"
	"perdure/partition/disk"
	"perdure/partition/snapshot"
)

// The content of snapshots lies beside the state, in files named after the marker: one while it is sent
// to a follower that lags behind the log, one while it is received and until it is installed.

func (n *Node) contentPath(r *Replica, kind, markerID string) string {
	return n.path(fmt.Sprintf("%s-%04d-%s", kind, r.id, markerID))
}

// content opens what a marker stands for: a received file, or a copy of the present state, which may be
// newer than the marker.
func (n *Node) content(r *Replica) func(m snapshot.Marker) (io.ReadCloser, int64, error) {
	return func(m snapshot.Marker) (io.ReadCloser, int64, error) {
		fs := n.cfg.FS
		if m.Origin == snapshot.Received {
			if f, err := fs.Open(n.contentPath(r, "received", m.ID)); err == nil {
				return f, m.Size, nil
			}
			// Installed long ago: the state itself is its content now.
		}
		path := n.contentPath(r, "sending", m.ID)
		f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, 0, err
		}
		size, err := r.store.WriteContent(&contentCopy{to: f, disk: n.disk.Guard})
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, 0, errors.Join(err, fs.Remove(path))
		}
		read, err := fs.Open(path)
		if err != nil {
			return nil, 0, err
		}
		return &sentFile{File: read, fs: fs, path: path}, size, nil
	}
}

// sentFile removes the copy once it was sent.
type sentFile struct {
	vfs.File
	fs   vfs.FS
	path string
}

func (f *sentFile) Close() error { return errors.Join(f.File.Close(), f.fs.Remove(f.path)) }

// receive prepares the file that takes a snapshot's content.
func (n *Node) receive(r *Replica) func(m snapshot.Marker) (snapshot.Receiver, error) {
	return func(m snapshot.Marker) (snapshot.Receiver, error) {
		if err := n.disk.Check(0, disk.Low); err != nil {
			return nil, n.refuseContent(r.id, 0, err)
		}
		path := n.contentPath(r, "received", m.ID)
		f, err := n.cfg.FS.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		return &receivedFile{File: f, n: n, path: path, group: r.id, copy: contentCopy{to: f, disk: n.disk.Guard, installed: true}}, nil
	}
}

// contentCopy writes a partition's content to a file as long as the disk's low mark stays free, for what the file takes
// and, if it is to be installed, for the state that is made of it: as much once more.
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

// refuseContent is the error of a state from another node that does not fit the disk; came bytes of it had come.
func (n *Node) refuseContent(partition uint32, came int64, full error) error {
	n.log.Warn("the state that another node sends does not fit the disk", "event", "content_refused", "partition", partition, "received", came, "error", full)
	return fmt.Errorf("partition %d: the state does not fit the disk of node %s, %d bytes of it had come: %w", partition, n.identity.NodeID, came, full)
}

type receivedFile struct {
	vfs.File
	n     *Node
	path  string
	group uint32
	copy  contentCopy
}

// Write implements snapshot.Receiver. It refuses content for which there is no space before the disk is full.
func (f *receivedFile) Write(p []byte) (int, error) {
	n, err := f.copy.Write(p)
	if err != nil && disk.IsFull(err) {
		err = f.n.refuseContent(f.group, f.copy.written, err)
	}
	return n, err
}

// Commit implements snapshot.Receiver.
func (f *receivedFile) Commit() error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return fsync.SyncDir(f.n.cfg.FS, f.n.cfg.DataDir)
}

// Abort implements snapshot.Receiver.
func (f *receivedFile) Abort() error {
	return errors.Join(f.Close(), f.n.cfg.FS.Remove(f.path))
}

// discard removes received content that no marker needs any more.
func (n *Node) discard(r *Replica) func(m snapshot.Marker) {
	return func(m snapshot.Marker) {
		path := n.contentPath(r, "received", m.ID)
		if err := n.cfg.FS.Remove(path); err != nil && !isNotExist(err) {
			n.log.Warn("received snapshot content could not be removed", "event", "discard_failed", "path", path, "error", err)
		}
	}
}
