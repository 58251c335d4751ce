package group

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"perdure/fsm"
	"perdure/fsm/machine"
	"perdure/partition/disk"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
	"perdure/partition/raftlogger"
	"perdure/partition/repair"
	"perdure/partition/snapshot"
	"perdure/partition/transport"
)

func (o *Options) path(name string) string { return o.FS.PathJoin(o.Dir, name) }

// Examine reads the partition's state and opens its markers. It changes nothing, except that it completes what
// a crash has interrupted. creating says that the partition has neither state nor markers yet.
func (r *Replica) Examine(creating bool) (err error) {
	o, dir := &r.opts, r.opts.path(identity.StateDir(r.id))
	if !creating {
		if err := fsm.Recover(o.FS, dir); err != nil {
			return fmt.Errorf("recover state store %s: %w", dir, err)
		}
	}
	opts := r.stateOptions(creating)
	opts.OnFatal = func(error) {} // Inspect returns the same error
	if r.found, err = fsm.Inspect(dir, opts); err != nil {
		return err
	}
	name := identity.MarkerDir(r.id)
	if r.snapshots, err = snapshot.Open(o.path(name), snapshot.Options{
		Group: r.id, FS: o.FS, Logger: o.Libraries.Named("markers"), MustCreate: creating,
		Cover:   func(m snapshot.Marker) error { return r.store.Cover(m.Index) },
		Content: o.Contents.Open(r.id, func(w io.Writer) (int64, error) { return r.store.WriteContent(w) }), Receive: o.Contents.Receive(r.id), Discard: o.Contents.Discard(r.id),
	}); err != nil {
		return err
	}
	return o.Identity.Check(identity.StampedDir{FS: o.FS, Dir: o.path(name)}, name, o.path(name), creating)
}

// Reconcile checks that the state, the markers and the log fit together: see repair.Fit. logs and terms are the
// group's from then on. Examine comes before it.
func (r *Replica) Reconcile(logs raftlog.Log, terms raft.StableStore) (err error) {
	r.logs, r.terms = logs, terms
	r.marked, r.install, err = repair.Fit(r.id, r.found, r.snapshots.Markers(), logs)
	return err
}

func (r *Replica) stateOptions(creating bool) fsm.Options {
	o := &r.opts
	return fsm.Options{
		FS: o.FS, Cache: o.Cache, MemTableBytes: o.MemTableBytes,
		Machine: machine.Config{Partition: r.id, Partitions: o.Partitions, CheckInvariants: o.CheckInvariants},
		Create:  creating, Stamp: o.Identity.Stamp(identity.StateDir(r.id)),
		Logger: raftlogger.Pebble{Log: r.log, Fatal: r.hang}, Flush: r.flush, Await: r.await, OnFatal: r.Halt, Passing: disk.IsFull,
		OnWritten: func(keys, bytes int) {
			r.metrics.StateWrites.Add(float64(keys))
			r.metrics.StateBytes.Add(float64(bytes))
		},
		Spare: func(bytes int64) error {
			if r.disk == nil {
				return nil
			}
			return r.disk.CheckSpare(bytes)
		},
		OnCheckpoint: r.onCheckpoint,
		OnRestored:   func() { r.metrics.Received.Inc(); r.watches.WakeAll(); r.noteCut() },
	}
}

// Open opens the state for writing, after Reconcile. It installs a content that was received before a crash.
func (r *Replica) Open(creating bool) (err error) {
	if r.store, err = fsm.Open(r.opts.path(identity.StateDir(r.id)), r.stateOptions(creating)); err != nil {
		return err
	}
	r.noteCut()
	if r.install == "" {
		return nil
	}
	_, content, err := r.snapshots.Open(r.install)
	if err != nil {
		return err
	}
	if err := r.store.Restore(content); err != nil {
		return err
	}
	return r.store.Cover(r.marked)
}

// Join starts the group's Raft, after Open. bootstrap makes this server the group's only member. In a cluster,
// control makes the groups when the directory says so.
func (r *Replica) Join(bootstrap bool) error {
	o, cfg := &r.opts, r.opts.Raft(fmt.Sprintf("raft-%d", r.id))
	cache := raftlog.NewCache(r.logs, raftlog.CacheOptions{
		Bytes: max(logCacheBytes/int(o.Partitions), minLogCacheBytes), Refer: referBytes, OnStored: r.stored,
		Overlap: func() bool {
			g := r.group.Load()
			return g != nil && g.State() == raft.Leader
		},
	})
	r.entries, r.most = cache, cfg.TrailingLogs
	logs := &guardedLog{LogStore: cache, disk: r.disk, stuck: r.env.DisksStuck}
	r.transport = transport.NewRaftTransport(o.Port.Raft(r.id), transport.RaftOptions{
		Logger: cfg.Logger, Addresses: o.Addresses, Answered: o.Libraries.PeerAnswered, Load: cache.Load, Synced: cache.Synced,
		Leading: func(term uint64) bool {
			g := r.group.Load()
			return g != nil && g.State() == raft.Leader && g.CurrentTerm() == term
		},
	})
	r.acks, r.server = r.transport.Acks(), cfg.LocalID
	carrier := &countingTransport{r.transport, r.metrics.Sent, func() func() { return r.trailing.transfer(r.clock.Now) }}
	if bootstrap {
		if err := raft.BootstrapCluster(cfg, logs, r.terms, r.snapshots, carrier, raft.Configuration{
			Servers: []raft.Server{{ID: cfg.LocalID, Address: raft.ServerAddress(r.address)}},
		}); err != nil {
			return fmt.Errorf("partition %d: bootstrap: %w", r.id, err)
		}
	}
	var err error
	if r.raft, err = raft.NewRaft(cfg, &entryMachine{Store: r.store, load: cache.Load, awaitSync: cache.AwaitSync, halt: r.Halt},
		logs, syncedTerms{r.terms, cache.AwaitSync}, r.snapshots, carrier); err != nil {
		return fmt.Errorf("partition %d: %w", r.id, err)
	}
	r.logged.Store(cache.BytesAfter(r.marked)) // NewRaft has read them
	if end := r.raft.LastIndex(); end >= r.marked+cfg.SnapshotThreshold {
		r.overdue.Store(end)
	}
	r.group.Store(r.raft)
	return nil
}

// Fill makes a new state of fetched content, which replaces a missing one. The state is durable and
// covers the newest marker. Examine, Reconcile, Open and Join come after it.
func (r *Replica) Fill(content string) error {
	opts := r.stateOptions(true)
	opts.OnFatal = func(error) {} // Inspect returns the same error
	opts.Flush, opts.Await = nil, nil
	st, err := fsm.Open(r.opts.path(identity.StateDir(r.id)), opts)
	if err != nil {
		return err
	}
	f, err := r.opts.FS.Open(content)
	if err == nil {
		err = st.Restore(f)
	}
	if err == nil {
		// When the leader sent this content, it had applied everything that any member's marker covers.
		err = st.Cover(r.newestMarker())
	}
	return errors.Join(err, st.Close())
}

// newestMarker returns the index of the partition's newest readable snapshot marker, 0 if it has none.
func (r *Replica) newestMarker() uint64 {
	s, err := snapshot.Open(r.opts.path(identity.MarkerDir(r.id)), snapshot.Options{Group: r.id, FS: r.opts.FS,
		Cover:   func(snapshot.Marker) error { return repair.ErrRebuilding },
		Content: func(snapshot.Marker) (io.ReadCloser, int64, error) { return nil, 0, repair.ErrRebuilding },
		Receive: func(snapshot.Marker) (snapshot.Receiver, error) { return nil, repair.ErrRebuilding },
	})
	if err != nil {
		return 0
	}
	newest := uint64(0)
	for _, m := range s.Markers() {
		newest = max(newest, m.Index)
	}
	return newest
}
