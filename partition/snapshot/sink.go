package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// sink is one snapshot being made. Raft uses it from one goroutine.
type sink struct {
	store  *Store
	marker Marker

	receiver Receiver // set once content began to arrive
	failed   error
	done     bool
	result   error // of Close
}

var (
	_ raft.SnapshotSink = (*sink)(nil)
	_ io.ReaderFrom     = (*sink)(nil)
)

func (k *sink) ID() string { return k.marker.ID }

// Marker lets the machine's Persist see which index is being covered.
func (k *sink) Marker() Marker { return k.marker }

var errSinkDone = errors.New("snapshot: sink is closed")

// receive makes the sink one for received content.
func (k *sink) receive() error {
	switch {
	case k.done:
		return errSinkDone
	case k.failed != nil:
		return k.failed
	case k.receiver != nil:
		return nil
	}
	k.marker.Origin = Received
	if k.receiver, k.failed = k.store.opts.Receive(k.marker); k.failed != nil {
		k.failed = fmt.Errorf("snapshot: group %d: receive %s: %w", k.store.opts.Group, k.marker.ID, k.failed)
	}
	return k.failed
}

// Write takes content from another node. A machine's Persist must not write: its state is its snapshot.
func (k *sink) Write(p []byte) (int, error) {
	if err := k.receive(); err != nil {
		return 0, err
	}
	n, err := k.receiver.Write(p)
	k.marker.Size += int64(n)
	if err != nil {
		k.failed = err
	}
	return n, err
}

// ReadFrom is how Raft copies content in (io.Copy prefers it to Write). Unlike Write it is called even
// when no byte comes, so an empty transfer cannot be taken for a local snapshot.
func (k *sink) ReadFrom(r io.Reader) (int64, error) {
	if err := k.receive(); err != nil {
		return 0, err
	}
	return io.CopyBuffer(struct{ io.Writer }{k}, struct{ io.Reader }{r}, make([]byte, 256<<10))
}

// Close makes the snapshot durable and lists it. On an error nothing is listed; a content that was
// committed by then is left for the caller's sweep at the next start.
func (k *sink) Close() error {
	if k.done {
		return k.result
	}
	k.done = true
	k.result = k.finish()
	return k.result
}

func (k *sink) finish() error {
	if k.marker.Origin == Local {
		if err := k.store.opts.Cover(k.marker); err != nil {
			return fmt.Errorf("snapshot: group %d: cover %s: %w", k.store.opts.Group, k.marker.ID, err)
		}
		return k.store.write(k.marker)
	}
	if k.failed == nil && k.marker.Size == 0 {
		k.failed = &EmptyError{Group: k.store.opts.Group, ID: k.marker.ID}
	}
	if k.failed != nil {
		return errors.Join(k.failed, k.abort())
	}
	receiver := k.receiver
	k.receiver = nil
	if err := receiver.Commit(); err != nil {
		return fmt.Errorf("snapshot: group %d: commit %s: %w", k.store.opts.Group, k.marker.ID, err)
	}
	// If the marker fails the content stays: the marker's name may have reached the disk.
	return k.store.write(k.marker)
}

// Cancel gives the snapshot up and removes what was received.
func (k *sink) Cancel() error {
	if k.done {
		return nil
	}
	k.done, k.result = true, errSinkDone
	return k.abort()
}

func (k *sink) abort() error {
	if k.receiver == nil {
		return nil
	}
	r := k.receiver
	k.receiver = nil
	return r.Abort()
}
