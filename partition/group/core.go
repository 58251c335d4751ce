package group

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"perdure/api"
	"perdure/fsm"
	"perdure/internal/clock"
	"perdure/partition/addresses"
	"perdure/partition/disk"
	"perdure/partition/groupmetrics"
	"perdure/partition/refusal"
	"perdure/partition/repair"
	"perdure/partition/watch"
	"perdure/partition/workers"
)

// core is what all parts of a replica use. Its fields do not change after Join.
type core struct {
	opts       Options
	id         uint32
	log        *slog.Logger
	clock      clock.Clock
	env        Env
	disk       *disk.Guard // nil in tests of parts
	metrics    groupmetrics.Counters
	dispatcher *workers.Dispatcher
	addresses  *addresses.Dispatcher
	watches    *watch.Set

	raft  *raft.Raft
	store *fsm.Store

	lifecycle
	tracker

	lead atomic.Pointer[leadership] // the one that serves, or nil
	// leads wakes when a leadership begins to serve, or ends.
	leads signal
}

// ID is the partition's number.
func (c *core) ID() uint32 { return c.id }

// Raft is this server's member of the group; nil until Join, and for a replica that halted before it.
func (c *core) Raft() *raft.Raft { return c.raft }

// Term is the latest term that this server knows of the group; 0 until Join.
func (c *core) Term() uint64 {
	if c.raft == nil {
		return 0
	}
	return c.raft.CurrentTerm()
}

// LeaderInTerm returns the server id of the leader that this server knows, and the term that it leads in; "" if it knows
// none. Raft forgets the leader before the term rises, so within one term both belong together.
func (c *core) LeaderInTerm() (server string, term uint64) {
	term = c.Term()
	if term == 0 {
		return "", 0
	}
	_, leader := c.raft.LeaderWithID()
	if c.Term() != term {
		return "", 0
	}
	return string(leader), term
}

// Serving reports whether this replica leads the group and serves it.
func (c *core) Serving() bool { return c.serving() != nil }

// serving returns the present leadership, or nil.
func (c *core) serving() *leadership { return c.lead.Load() }

func (c *core) notifyServing() {
	c.leads.wake()
	c.dispatcher.Serving()
	c.changed()
}

// Halt stops this replica alone, for good: its state cannot be trusted. It leaves the files as they are, and
// logs why.
func (c *core) Halt(err error) {
	c.haltOnce.Do(func() {
		c.haltErr.Store(&err)
		if l := c.lead.Swap(nil); l != nil {
			l.cancel()
		}
		if errors.Is(err, repair.ErrRebuilding) {
			c.log.Info("replica taken down for a rebuild", "event", "replica_rebuilding", "partition", c.id)
		} else {
			c.log.Error("partition halted", "event", "partition_halted", "partition", c.id, "error", err)
		}
		close(c.halting)
	})
}

// NotServing returns the error that says why this replica cannot serve now.
func (c *core) NotServing() *api.Error {
	if halted := c.Halted(); halted != nil {
		return refusal.Halted(c.id, halted)
	}
	if c.isStopping() {
		return refusal.Stopping(c.id)
	}
	if hint := c.hint(); hint != "" && hint != c.address {
		return refusal.NotLeader(c.id, hint)
	}
	return refusal.TryLater(c.id, "no leader is ready yet")
}
