package group

import (
	"io"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/partition/groupmetrics"
	"perdure/partition/transport"
)

// countApplied counts what a command has done for its caller.
func (c *core) countApplied(cmd *commandv1.Command, reply *commandv1.Reply) {
	c.metrics.Commands.Inc()
	if rel := cmd.GetRelease(); rel != nil && wire.ReplyError(reply) == nil {
		c.metrics.Releases.Inc()
		if rel.Problem != "" {
			c.metrics.Problems.Inc()
		}
	}
}

// countingTransport counts the snapshots that followers have taken, and calls transfer around each of them. It embeds a
// RaftTransport, since Raft asks for more than raft.Transport.
type countingTransport struct {
	*transport.RaftTransport
	sent     prometheus.Counter
	transfer func() (end func())
}

var _ interface {
	raft.WithPreVote
	raft.WithClose
} = (*countingTransport)(nil)

// InstallSnapshot implements raft.Transport.
func (t *countingTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	defer t.transfer()()
	err := t.RaftTransport.InstallSnapshot(id, target, args, resp, data)
	if err == nil && resp.Success {
		t.sent.Inc()
	}
	return err
}

// figures is what the gauges read of a replica.
type figures struct{ *Replica }

var _ groupmetrics.Replica = figures{}

func (f figures) QueueDepth() int     { return f.pending.len() }
func (f figures) PendingBytes() int64 { return f.pending.admission.HeldBy(f.id) }
func (f figures) WaitingQueues() int  { return f.dispatcher.Waiting(f.id) }

func (f figures) StateIndex() (uint64, bool) {
	if f.store == nil {
		return 0, false
	}
	return f.store.Present().Index, true
}

func (f figures) Stuck() (int, bool) {
	if f.store == nil {
		return 0, false
	}
	return f.store.Stuck(), true
}

func (f figures) DeadlineLag() time.Duration {
	if l := f.serving(); l != nil {
		return l.timer.lag()
	}
	return 0
}

func (f figures) ShipStalled() time.Duration {
	if l := f.serving(); l != nil {
		return l.ship.stalled()
	}
	return 0
}

func (f figures) OutboxBytes() uint64 {
	if l := f.serving(); l != nil {
		return l.ship.outbox()
	}
	return 0
}

func (f figures) LastAudit() *perdurev1.ReplicaAudit { return f.audited.Load() }
