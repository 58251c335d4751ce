package partition

import (
	"fmt"
	"io"

	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/repair"
	"perdure/partition/snapshot"
)

// examine reads a partition's state and opens its markers. It changes nothing, except that it completes what
// a crash has interrupted.
func (n *Node) examine(r *Replica, creating bool) (err error) {
	dir := n.path(identity.StateDir(r.id))
	if !creating {
		if err := fsm.Recover(n.cfg.FS, dir); err != nil {
			return fmt.Errorf("state store %s: %w", dir, err)
		}
	}
	opts := n.stateOptions(r, creating)
	opts.OnFatal = func(error) {} // what it would say is in the error
	if r.found, err = fsm.Inspect(dir, opts); err != nil {
		return err
	}
	name := identity.MarkerDir(r.id)
	if r.snapshots, err = snapshot.Open(n.path(name), snapshot.Options{
		Group: r.id, FS: n.cfg.FS, Logger: n.logs.Named("markers"), MustCreate: creating,
		Cover:   func(m snapshot.Marker) error { return r.store.Cover(m.Index) },
		Content: n.contents.Open(r.id, func(w io.Writer) (int64, error) { return r.store.WriteContent(w) }), Receive: n.contents.Receive(r.id), Discard: n.contents.Discard(r.id),
	}); err != nil {
		return err
	}
	return n.stamp(identity.StampedDir{FS: n.cfg.FS, Dir: n.path(name)}, name, creating)
}

// reconcile checks that a replica's state, markers and log fit together: see repair.Fit.
func (n *Node) reconcile(r *Replica) (err error) {
	r.marked, r.install, err = repair.Fit(r.id, r.found, r.snapshots.Markers(), n.raftlog.Group(r.id))
	return err
}
