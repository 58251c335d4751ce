package partition

import (
	"context"
	"fmt"

	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/snapshot"
)

// LostError says that two stores of a partition do not fit together: something acknowledged is missing.
type LostError struct {
	Partition uint32
	Detail    string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("partition %d: refusing to serve: %s", e.Partition, e.Detail)
}

// examine looks at a partition's state and opens its markers. It changes nothing but to finish what a
// crash has interrupted.
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
		Content: n.content(r), Receive: n.receive(r), Discard: n.discard(r),
	}); err != nil {
		return err
	}
	return n.stamp(identity.StampedDir{FS: n.cfg.FS, Dir: n.path(name)}, name, creating)
}

// reconcile checks that state, markers and log fit together before anything is served: every entry that
// the log holds is sound, the state covers what the newest marker says it does, and the log reaches from
// there to where the state is.
func (n *Node) reconcile(r *Replica) error {
	log := n.raftlog.Group(r.id)
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	st := r.found
	var newest snapshot.Marker
	for _, m := range r.snapshots.Markers() {
		if m.Seq > newest.Seq {
			newest = m
		}
	}
	r.marked = newest.Index
	state, covers := identity.StateDir(r.id), max(st.Covered, st.Applied)
	if r.marked > covers && newest.Origin == snapshot.Received {
		// Received and not installed before a crash.
		r.install = newest.ID
		covers = r.marked
	}
	lost := func(format string, args ...any) error {
		return &LostError{r.id, fmt.Sprintf(format, args...)}
	}
	switch {
	case r.marked > covers:
		return lost("a marker in %s says that %s covers index %d, it covers %d: state was lost", identity.MarkerDir(r.id), state, r.marked, covers)
	case st.Applied > max(last, r.marked, st.Received):
		return lost("%s has applied index %d, the log of group %d in %s ends at %d: log entries were lost", state, st.Applied, r.id, identity.RaftLogDir, last)
	case first > r.marked+1:
		return lost("the log of group %d in %s begins at index %d, the newest marker in %s is at %d: markers or log entries were lost", r.id, identity.RaftLogDir, first, identity.MarkerDir(r.id), r.marked)
	}
	// Raft panics when it reads an entry that is damaged; one behind the marker it would meet much later.
	return log.Check(context.Background(), first)
}
