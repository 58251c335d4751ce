package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/partition/disk"
	"perdure/partition/refusal"
)

// ErrRebuilding is why a replica that is being rebuilt does not serve meanwhile.
var ErrRebuilding = errors.New("this replica is being rebuilt from the others")

const (
	// repeatWithin is for how long a rebuild answers for a repeated command.
	repeatWithin = time.Minute
	// rebuildTimeout bounds a whole rebuild, stopTimeout the wait for the former replica to stop,
	// leaderTimeout the wait for a leader to copy from.
	rebuildTimeout = time.Hour
	stopTimeout    = 30 * time.Second
	leaderTimeout  = 10 * time.Second
	// leaderPause is the pause between two searches for a leader to copy from; caughtUpPause that between two
	// checks whether a rebuilt replica has caught up.
	leaderPause   = 100 * time.Millisecond
	caughtUpPause = 100 * time.Millisecond
)

// A Replica is this node's replica of a partition as a rebuild sees it.
type Replica interface {
	Halted() error
	Serving() bool
	// Halt stops the replica; SetHalted changes what it says why.
	Halt(why error)
	SetHalted(why error)
	// Released blocks until nothing of a halted replica has its stores open and its group's connections have ended.
	Released(ctx context.Context) error
}

// Env is what a rebuild needs of the node around it.
type Env interface {
	// Replica is the present replica of a partition of this node.
	Replica(partition uint32) Replica
	// HandOver has another member lead a partition that this node leads.
	HandOver(ctx context.Context, partition uint32) error
	// Leader is the address of another node that says that it leads a partition, empty if none does.
	Leader(ctx context.Context, partition uint32) string
	// Peer is the Peers service of the node at an address.
	Peer(addr string) (commandv1.PeersClient, error)
	// CaughtUp reports whether the present replica has applied what its leader has.
	CaughtUp(ctx context.Context, partition uint32) (applied uint64, ok bool)
	// Prepare makes a new state of content and checks that it fits markers and log. start replaces the
	// present replica by it and runs it.
	Prepare(partition uint32, content string) (start func() error, err error)
}

// Options are NewRebuilder's. None of them changes.
type Options struct {
	Env        Env
	Contents   *Contents
	Quarantine *Quarantine
	NodeID     string
	Alone      bool
	Clock      clock.Clock
	Log        *slog.Logger
	Lifetime   context.Context // ends when the node begins to stop
}

// Rebuilder rebuilds this node's replicas from the others. Its methods may be called concurrently.
type Rebuilder struct {
	o Options

	mu       sync.Mutex
	running  map[uint32]bool
	done     map[uint32]time.Time // when a partition was last rebuilt
	failures map[uint32]*failures
	closing  bool // no new replica is started
	work     sync.WaitGroup
}

// NewRebuilder makes the rebuilder of a node.
func NewRebuilder(o Options) *Rebuilder {
	return &Rebuilder{o: o, running: map[uint32]bool{}, done: map[uint32]time.Time{}, failures: map[uint32]*failures{}}
}

// Close waits until the rebuilds under way have ended, which start no replica any more. Lifetime must have ended.
func (b *Rebuilder) Close() {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.work.Wait()
}

// Running reports whether a partition's replica is being rebuilt.
func (b *Rebuilder) Running(p uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running[p]
}

// Rebuild rebuilds this node's replica of a partition and blocks until it has caught up. It quarantines the
// replica's state, replaces it by the leader's, and starts the replica there. Term, vote and log stay as they
// are. The rebuild continues when ctx ends.
func (b *Rebuilder) Rebuild(ctx context.Context, p uint32) (*perdurev1.RebuildReplicaResponse, error) {
	if b.o.Alone {
		return nil, api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "partition %d has no other replica: the cluster has one member", p)
	}
	b.mu.Lock()
	// A repeated command waits for a rebuild under way, and returns the result of one that has just ended.
	ago := b.o.Clock.Now().Sub(b.done[p])
	wanted := b.o.Env.Replica(p).Halted() != nil || ago > repeatWithin
	begin := wanted && !b.running[p] && !b.closing
	out := &perdurev1.RebuildReplicaResponse{}
	if !wanted && !b.running[p] {
		out.DoneMsAgo = uint64(max(1, ago.Milliseconds()))
	}
	ended := make(chan error, 1)
	if begin {
		b.running[p] = true
		b.work.Go(func() { ended <- b.run(p) })
	}
	b.mu.Unlock()
	if begin {
		select {
		case err := <-ended:
			if err != nil {
				return nil, refusal.TryLater(p, "the replica could not be rebuilt: "+err.Error())
			}
		case <-ctx.Done():
			return nil, refusal.TryLater(p, "the replica is still being rebuilt")
		}
	}
	// Caught up: what the leader has applied now, it has applied too.
	for {
		if err := b.o.Env.Replica(p).Halted(); err != nil && !b.Running(p) {
			return nil, refusal.Halted(p, err)
		}
		if applied, ok := b.o.Env.CaughtUp(ctx, p); ok {
			if out.DoneMsAgo == 0 {
				b.o.Log.Info("replica rebuilt", "event", "replica_rebuilt", "partition", p, "applied", applied)
			} else {
				b.o.Log.Info("replica not rebuilt again, it was a moment before", "event", "rebuild_repeated", "partition", p, "applied", applied, "ago", ago)
			}
			out.Applied = applied
			return out, nil
		}
		c, stop := b.o.Clock.After(caughtUpPause)
		select {
		case <-c:
		case <-ctx.Done():
			stop()
			return nil, refusal.TryLater(p, "the replica has not caught up yet")
		case <-b.o.Lifetime.Done():
			stop()
			return nil, refusal.Stopping(p)
		}
		stop()
	}
}

// run rebuilds a replica, once, and logs the result.
func (b *Rebuilder) run(p uint32) error {
	served := b.o.Env.Replica(p).Halted() == nil
	err := b.rebuild(p)
	b.mu.Lock()
	delete(b.running, p)
	b.mu.Unlock()
	if err != nil {
		b.logFailure(p, err, served && b.o.Env.Replica(p).Halted() != nil)
	} else {
		b.o.Log.Info("replica replaced, it catches up", "event", "replica_renewed", "partition", p)
	}
	return err
}

// rebuild stops a replica and replaces it by a new one. The old one has stopped before the leader is asked
// for its state, so that state covers every snapshot marker of this node.
func (b *Rebuilder) rebuild(p uint32) (err error) {
	ctx, cancel := context.WithTimeout(b.o.Lifetime, rebuildTimeout)
	defer cancel()
	old := b.o.Env.Replica(p)
	// The content comes from a leader; this replica must not be the one.
	if old.Halted() == nil && old.Serving() {
		if err := b.o.Env.HandOver(ctx, p); err != nil {
			return fmt.Errorf("its leadership could not be handed on: %w", err)
		}
	}
	if _, err := b.leader(ctx, p); err != nil {
		return err
	}
	if err := b.o.Contents.Disk.Check(0, disk.Low); err != nil { // before the replica is halted
		return b.o.Contents.refuse(p, 0, err)
	}
	old.Halt(ErrRebuilding)
	defer func() {
		if err != nil {
			old.SetHalted(fmt.Errorf("the rebuild from the others failed and can be tried again: %w", err))
		}
	}()
	ending, stop := context.WithTimeout(ctx, stopTimeout)
	err = old.Released(ending)
	stop()
	if err != nil {
		return fmt.Errorf("the old replica does not stop; restart the node and try again: %w", err)
	}
	content, err := b.fetch(ctx, p)
	if err != nil {
		return err
	}
	defer func() { _ = b.o.Contents.FS.Remove(content) }() // it was installed, or is fetched again
	if err := b.o.Quarantine.moveAside(p, b.o.Clock.Now()); err != nil {
		return err
	}
	start, err := b.o.Env.Prepare(p, content)
	if err != nil {
		return err
	}
	// A stopping node closes the replicas that it has, so start none after that: the files stay as a crash
	// would leave them.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return refusal.Stopping(p)
	}
	if err := start(); err != nil {
		return err
	}
	b.done[p] = b.o.Clock.Now()
	delete(b.failures, p)
	return nil
}

// leader returns the address of another node that leads a partition. It waits for one for leaderTimeout: this
// node may have started a moment ago, or a leadership may be moving.
func (b *Rebuilder) leader(ctx context.Context, p uint32) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	for {
		if addr := b.o.Env.Leader(ctx, p); addr != "" {
			return addr, nil
		}
		c, stop := b.o.Clock.After(leaderPause)
		select {
		case <-c:
		case <-ctx.Done():
			stop()
			return "", refusal.TryLater(p, "it has no leader among the others to copy from")
		}
		stop()
	}
}

// fetch copies the leader's state of a partition into a file.
func (b *Rebuilder) fetch(ctx context.Context, p uint32) (path string, err error) {
	lead, err := b.leader(ctx, p)
	if err != nil {
		return "", err
	}
	client, err := b.o.Env.Peer(lead)
	if err != nil {
		return "", err
	}
	stream, err := client.Content(ctx, &commandv1.ContentRequest{Partition: p})
	if err != nil {
		return "", err
	}
	return b.o.Contents.fetch(p, lead, stream)
}

// failures are the recent reasons why rebuilds of a replica failed, each logged once: a client repeats the
// command until it succeeds.
type failures struct {
	logged map[string]bool
	last   time.Time
}

// maxLogged bounds the reasons remembered as logged.
const maxLogged = 16

// logFailure logs why a replica was not rebuilt, unless it did a moment ago. A refusal that asks the client
// to repeat the command is only a warning. down says that the replica served before and does not any more.
func (b *Rebuilder) logFailure(p uint32, err error, down bool) {
	now := b.o.Clock.Now()
	b.mu.Lock()
	f := b.failures[p]
	if f == nil || now.Sub(f.last) > repeatWithin || len(f.logged) == maxLogged {
		f = &failures{logged: map[string]bool{}}
		b.failures[p] = f
	}
	logged := f.logged[err.Error()]
	f.logged[err.Error()], f.last = true, now
	b.mu.Unlock()
	if logged {
		return
	}
	level := slog.LevelError
	var refused *api.Error
	if errors.As(err, &refused) && !down {
		switch refused.Reason {
		case perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_SHUTTING_DOWN:
			level = slog.LevelWarn
		}
	}
	b.o.Log.Log(context.Background(), level, "cannot rebuild a replica", "event", "rebuild_failed", "partition", p, "error", err)
}

// Forget deletes the quarantined states of a partition's former replicas: the one of that name, or all. The
// present replica must work: while it is halted or being rebuilt, a quarantined state may be the best one
// left.
func (b *Rebuilder) Forget(p uint32, name string) (*perdurev1.ForgetQuarantinedResponse, error) {
	if name != "" && (!quarantinedName.MatchString(name) || !strings.HasPrefix(name, namePrefix(p))) {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "no former replica of partition %d is called so: it would be %sTIME", p, namePrefix(p))
	}
	// The lock keeps a rebuild from quarantining a state meanwhile.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[p] {
		return nil, refusal.TryLater(p, "the replica is being rebuilt; its quarantined files stay until that is done")
	}
	if halted := b.o.Env.Replica(p).Halted(); halted != nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED,
			"partition %d has halted on node %s, and its quarantined files stay until it has been rebuilt: %v", p, b.o.NodeID, halted)
	}
	forgotten, err := b.o.Quarantine.forget(p, name)
	for _, k := range forgotten {
		b.o.Log.Info("former replica deleted", "event", "kept_forgotten", "partition", p, "name", k.Name, "bytes", k.Bytes)
	}
	if err != nil {
		return nil, refusal.TryLater(p, "cannot delete the quarantined files: "+err.Error())
	}
	return &perdurev1.ForgetQuarantinedResponse{Forgotten: forgotten}, nil
}
