package partition

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

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
		size, err := r.store.WriteContent(f)
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
		path := n.contentPath(r, "received", m.ID)
		f, err := n.cfg.FS.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		return &receivedFile{File: f, n: n, path: path}, nil
	}
}

type receivedFile struct {
	vfs.File
	n    *Node
	path string
}

// Commit implements snapshot.Receiver.
func (f *receivedFile) Commit() error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(f.n.cfg.FS, f.n.cfg.DataDir)
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
