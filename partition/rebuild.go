package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/fsync"
	"perdure/partition/disk"
	"perdure/partition/identity"
	"perdure/partition/snapshot"
)

// errRebuilding is why a replica that is made anew does not serve meanwhile.
var errRebuilding = errors.New("this replica is being made anew from the others")

// Rebuild implements Peers.
func (s *peerService) Rebuild(ctx context.Context, in *commandv1.RebuildRequest) (*commandv1.RebuildReply, error) {
	if _, err := s.n.router.Replica(in.Partition); err != nil {
		return nil, err
	}
	reply, err := s.n.rebuild(ctx, in.Partition)
	if err != nil {
		return nil, err
	}
	return &commandv1.RebuildReply{Applied: reply.Applied, DoneMsAgo: reply.DoneMsAgo}, nil
}

func (n *Node) rebuilding(p uint32) bool {
	n.rebuildMu.Lock()
	defer n.rebuildMu.Unlock()
	return n.rebuilds[p]
}

// rebuild makes this node's replica of a partition anew: its state is moved aside, the leader's takes its
// place, and the replica goes on from there. Term, vote and log stay what they are, so the group keeps what
// this member has promised it. A crash on the way leaves a replica without its state, which halts at the
// next start and can be rebuilt again.
func (n *Node) rebuild(ctx context.Context, p uint32) (*perdurev1.RebuildReplicaResponse, error) {
	if n.identity.Alone() {
		return nil, api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "the cluster has one member: there is nothing to rebuild partition %d from", p)
	}
	n.rebuildMu.Lock()
	// A repeated command waits for what is under way, and is content with what has just been done.
	ago := n.clock.Now().Sub(n.rebuilt[p])
	wanted := n.router.slots[p].Load().halted() != nil || ago > rebuiltJustNow
	begin := wanted && !n.rebuilds[p] && !n.closing
	out := &perdurev1.RebuildReplicaResponse{}
	if !wanted && !n.rebuilds[p] {
		out.DoneMsAgo = uint64(max(1, ago.Milliseconds()))
	}
	if begin {
		n.rebuilds[p] = true
		n.renewals.Add(1)
	}
	n.rebuildMu.Unlock()
	if begin {
		// Whoever asked may go; the work is done all the same.
		ended := make(chan error, 1)
		go func() {
			defer n.renewals.Done()
			served := n.router.slots[p].Load().halted() == nil
			err := n.renew(p)
			n.rebuildMu.Lock()
			delete(n.rebuilds, p)
			n.rebuildMu.Unlock()
			if err != nil {
				n.tellNotRebuilt(p, err, served && n.router.slots[p].Load().halted() != nil)
			} else {
				n.log.Info("a replica was made anew, and catches up", "event", "replica_renewed", "partition", p)
			}
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != nil {
				return nil, errTryLater(p, "the replica could not be rebuilt: "+err.Error())
			}
		case <-ctx.Done():
			return nil, errTryLater(p, "the replica is still being rebuilt")
		}
	}
	// Caught up: what the leader has applied now, it has applied too.
	for {
		r := n.router.slots[p].Load()
		if err := r.halted(); err != nil && !n.rebuilding(p) {
			return nil, errHalted(p, err)
		}
		if applied, ok := n.caughtUp(ctx, r); ok {
			if out.DoneMsAgo == 0 {
				n.log.Info("a replica was rebuilt", "event", "replica_rebuilt", "partition", p, "applied", applied)
			} else {
				n.log.Info("a replica was not rebuilt once more: it had been, a moment before",
					"event", "rebuild_repeated", "partition", p, "applied", applied, "ago", ago)
			}
			out.Applied = applied
			return out, nil
		}
		c, stop := n.clock.After(100 * time.Millisecond)
		select {
		case <-c:
		case <-ctx.Done():
			stop()
			return nil, errTryLater(p, "the replica has not caught up yet")
		case <-n.stopping:
			stop()
			return nil, errStopping(p)
		}
		stop()
	}
}

// rebuildFailures are the reasons for which attempts to make a replica anew have failed of late, each told once:
// whoever asked repeats the command for as long as there is hope.
type rebuildFailures struct {
	told map[string]bool
	last time.Time
}

// maxToldReasons bounds the reasons that are remembered as told.
const maxToldReasons = 16

// tellNotRebuilt logs why a replica was not made anew, unless it did a moment ago. That the command is to be
// repeated is a warning only; down says that the replica served and does not any more.
func (n *Node) tellNotRebuilt(p uint32, err error, down bool) {
	now := n.clock.Now()
	n.rebuildMu.Lock()
	f := n.unbuilt[p]
	if f == nil || now.Sub(f.last) > rebuiltJustNow || len(f.told) == maxToldReasons {
		f = &rebuildFailures{told: map[string]bool{}}
		n.unbuilt[p] = f
	}
	told := f.told[err.Error()]
	f.told[err.Error()], f.last = true, now
	n.rebuildMu.Unlock()
	if told {
		return
	}
	level := slog.LevelError
	var refusal *api.Error
	if errors.As(err, &refusal) && !down {
		switch refusal.Reason {
		case perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_SHUTTING_DOWN:
			level = slog.LevelWarn
		}
	}
	n.log.Log(context.Background(), level, "a replica could not be rebuilt", "event", "rebuild_failed", "partition", p, "error", err)
}

// caughtUp reports whether a replica has applied what its leader has.
func (n *Node) caughtUp(ctx context.Context, r *Replica) (applied uint64, ok bool) {
	if r.halted() != nil || r.raft == nil {
		return 0, false
	}
	own := n.statusOf(r)
	if own.Serving {
		return own.Applied, true
	}
	addr, _ := r.leaderElsewhere()
	if addr == "" {
		return 0, false
	}
	client, err := n.peers.Client(addr)
	if err != nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	st, err := client.Status(ctx, &commandv1.StatusRequest{Partition: &r.id})
	if err != nil || len(st.Replicas) != 1 || !st.Replicas[0].Serving {
		return 0, false
	}
	own = n.statusOf(r)
	return own.Applied, own.Halted == "" && own.Applied >= st.Replicas[0].Applied
}

// rebuiltJustNow is for how long a rebuild answers for a repeated command.
const rebuiltJustNow = time.Minute

// renewPatience bounds the parts of a rebuild that wait for something to end.
const renewPatience = 30 * time.Second

// renew takes a replica down and puts a new one in its place. The old one has stopped before the leader is
// asked for its state: so that state holds whatever any snapshot marker of this node stands for.
func (n *Node) renew(p uint32) (err error) {
	ctx, cancel := context.WithTimeout(n.lifetime, rebuildPatience)
	defer cancel()
	old := n.router.slots[p].Load()
	// Whoever has the content leads; this replica must not.
	if old.halted() == nil && old.serving() != nil {
		if _, err := n.Transfer(ctx, p, ""); err != nil {
			return fmt.Errorf("its leadership could not be handed on: %w", err)
		}
	}
	if _, err := n.leaderOf(ctx, p); err != nil {
		return err
	}
	if err := n.disk.Check(0, disk.Low); err != nil { // before the replica is halted
		return n.refuseContent(p, 0, err)
	}
	old.halt(errRebuilding)
	defer func() {
		if err != nil {
			failed := fmt.Errorf("it was to be made anew from the others, which failed; it can be tried again: %w", err)
			old.haltErr.Store(&failed)
		}
	}()
	ending, stop := context.WithTimeout(ctx, renewPatience)
	err = old.released(ending)
	stop()
	if err != nil {
		return fmt.Errorf("the old replica does not stop; restart the node and try again: %w", err)
	}
	if old.raft != nil {
		if err := old.transport.(interface{ Close() error }).Close(); err != nil {
			return err
		}
	}
	content, err := n.fetch(ctx, p)
	if err != nil {
		return err
	}
	defer func() { _ = n.cfg.FS.Remove(content) }() // it was installed, or is fetched again
	if err := n.keepAside(p); err != nil {
		return err
	}
	r := n.newReplica(p)
	if err := n.fill(r, n.path(identity.StateDir(p)), content); err != nil {
		return err
	}
	if err := n.examine(r, false); err != nil {
		return err
	}
	if err := n.reconcile(r); err != nil {
		return err
	}
	// A node that stops closes what is there; what comes later is left as a crash would leave it.
	n.rebuildMu.Lock()
	defer n.rebuildMu.Unlock()
	if n.closing {
		return errStopping(p)
	}
	if err := n.openState(r, false); err != nil {
		return err
	}
	if err := n.join(r, false); err != nil {
		return errors.Join(err, r.store.Close())
	}
	n.router.slots[p].Store(r)
	r.run()
	n.rebuilt[p] = n.clock.Now()
	delete(n.unbuilt, p)
	go old.retire()
	return nil
}

// retire ends the waits for a replica that another one has replaced.
func (r *Replica) retire() {
	r.beginStop()
	ctx, cancel := context.WithTimeout(context.Background(), renewPatience)
	defer cancel()
	_ = wait(ctx, r.ledDone)
	_ = wait(ctx, r.resolved)
	close(r.killed)
	close(r.stopped)
	r.watches.wakeAll()
}

// leaderOf is the address of another node that leads a partition. It waits for one for leaderTimeout: this
// node may have started a moment ago, or a leadership be on its way.
func (n *Node) leaderOf(ctx context.Context, p uint32) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	for {
		if addr := n.leaderNow(ctx, p); addr != "" {
			return addr, nil
		}
		if !n.pause(ctx, leaderPause) {
			return "", errTryLater(p, "it has no leader among the others to copy from")
		}
	}
}

// leaderNow is the address of another node that says that it leads a partition, empty if none does.
func (n *Node) leaderNow(ctx context.Context, p uint32) string {
	for _, m := range n.cluster.Members() {
		if m.ServerId == n.identity.ServerID {
			continue
		}
		if st, err := n.ask(ctx, m); err == nil && int(p) < len(st.Replicas) && st.Replicas[p].Serving {
			return n.cluster.AddressOf(m.ServerId)
		}
	}
	return ""
}

// leaderTimeout bounds the wait for a leader to copy from.
const leaderTimeout = 10 * time.Second

// leaderPause is between two looks for a leader to copy from.
const leaderPause = 100 * time.Millisecond

// rebuildPatience bounds a whole rebuild.
const rebuildPatience = time.Hour

// fetch copies the leader's state of a partition into a file.
func (n *Node) fetch(ctx context.Context, p uint32) (path string, err error) {
	lead, err := n.leaderOf(ctx, p)
	if err != nil {
		return "", err
	}
	client, err := n.peers.Client(lead)
	if err != nil {
		return "", err
	}
	stream, err := client.Content(ctx, &commandv1.ContentRequest{Partition: p})
	if err != nil {
		return "", err
	}
	fs := n.cfg.FS
	path = n.path(fmt.Sprintf("fetched-%04d", p))
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	to := contentCopy{to: f, disk: n.disk.Guard, installed: true}
	for {
		var chunk *commandv1.ContentChunk
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		if _, err = to.Write(chunk.Data); err != nil {
			if disk.IsFull(err) {
				err = n.refuseContent(p, to.written, err)
			}
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("copying from %s: %w", lead, err), fs.Remove(path))
	}
	return path, nil
}

// keepAside moves a partition's state where nobody looks for it. What was kept before stays: it may be the
// evidence.
func (n *Node) keepAside(p uint32) error {
	fs := n.cfg.FS
	if _, err := fs.Stat(n.path(identity.StateDir(p))); err != nil {
		if isNotExist(err) {
			return nil
		}
		return err
	}
	name := keepPrefix(p) + n.clock.Now().UTC().Format("20060102T150405.000")
	if err := fs.Rename(n.path(identity.StateDir(p)), n.path(name)); err != nil {
		return err
	}
	return errors.Join(fsync.SyncDir(fs, n.cfg.DataDir), n.kept.add(name))
}

// fill makes a new state of fetched content, durable and covering what the newest marker stands for.
func (n *Node) fill(r *Replica, dir, content string) error {
	opts := n.stateOptions(r, true)
	failed := make(chan error, 1)
	opts.OnFatal = func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	opts.Flush, opts.Await = nil, nil
	st, err := fsm.Open(dir, opts)
	if err != nil {
		return err
	}
	f, err := n.cfg.FS.Open(content)
	if err == nil {
		err = st.Restore(f)
	}
	if err == nil {
		// The leader had applied everything that any member's marker stands for when it sent this.
		err = st.Cover(n.newestMarker(r.id))
	}
	return errors.Join(err, st.Close())
}

// newestMarker is the index of a partition's newest snapshot marker, 0 if it has none that can be read.
func (n *Node) newestMarker(p uint32) uint64 {
	s, err := snapshot.Open(n.path(identity.MarkerDir(p)), snapshot.Options{Group: p, FS: n.cfg.FS,
		Cover:   func(snapshot.Marker) error { return errRebuilding },
		Content: func(snapshot.Marker) (io.ReadCloser, int64, error) { return nil, 0, errRebuilding },
		Receive: func(snapshot.Marker) (snapshot.Receiver, error) { return nil, errRebuilding },
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
