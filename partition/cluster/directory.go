package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
	"perdure/partition/transport"
)

// Directory is the cluster's directory as this node knows it; nil before there is one. The caller must not change it.
func (m *Member) Directory() *commandv1.Directory { return m.state.Load() }

// Raft is this node's member of the directory's group, Transport its transport; nil for a node alone.
func (m *Member) Raft() *raft.Raft { return m.raft }

// Transport is the transport of the directory's group.
func (m *Member) Transport() *transport.RaftTransport { return m.transport }

// fsm is the directory under Raft. Its state is small and its log is never cut, so it needs no snapshots: the log is
// replayed at every start.
type fsm struct{ m *Member }

// Apply implements raft.FSM.
func (f fsm) Apply(l *raft.Log) any {
	m := f.m
	cmd := &commandv1.DirectoryCommand{}
	if err := proto.Unmarshal(l.Data, cmd); err != nil {
		m.Env.Halt(fmt.Errorf("the directory's log holds something damaged at index %d: %w", l.Index, err))
		return err
	}
	if err := m.machine.Apply(cmd); err != nil {
		return err
	}
	m.noteFormer(m.state.Load(), m.machine.State())
	m.state.Store(m.machine.State())
	m.followLevel(m.machine.State())
	m.Schedule()
	m.Env.Changed()
	return nil
}

var errNoSnapshots = errors.New("the directory has no snapshots")

// Snapshot implements raft.FSM.
func (fsm) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

// Restore implements raft.FSM.
func (fsm) Restore(content io.ReadCloser) error {
	return errors.Join(errNoSnapshots, content.Close())
}

// Leads reports whether this node leads the directory.
func (m *Member) Leads() bool { return m.raft != nil && m.raft.State() == raft.Leader }

// Leader is the server that leads the directory, empty if none is known; a node alone leads its own.
func (m *Member) Leader() string {
	if m.raft == nil {
		return m.self.ServerID
	}
	_, server := m.raft.LeaderWithID()
	return string(server)
}

// leaderAddr is the address of the directory's leader, empty if none is known.
func (m *Member) leaderAddr() string {
	addr, _ := m.raft.LeaderWithID()
	return string(addr)
}

// Propose puts a command into the directory's log and waits until it is applied here.
func (m *Member) Propose(ctx context.Context, cmd *commandv1.DirectoryCommand) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(cmd)
	if err != nil {
		return err
	}
	future := m.raft.Apply(b, raftgroup.EnqueueTimeout)
	if err := raftgroup.Await(future, ctx.Done(), m.Halted); err != nil {
		return refusal.Unknown(Group, err.Error())
	}
	if refused, ok := future.Response().(error); ok {
		return refused
	}
	return nil
}

// verified returns the directory once this node is known to lead it and to have applied what was decided before. It
// writes one entry to the log.
func (m *Member) verified(ctx context.Context) (*commandv1.Directory, error) {
	if !m.Leads() {
		e := refusal.NotLeader(Group, m.leaderAddr())
		e.Message = "this node does not lead the directory"
		return nil, e
	}
	if err := raftgroup.Await(m.raft.Barrier(raftgroup.EnqueueTimeout), ctx.Done(), m.Halted); err != nil {
		return nil, refusal.TryLater(Group, "the directory's leadership could not be confirmed: "+err.Error())
	}
	if m.Directory() == nil {
		return nil, refusal.TryLater(Group, "the cluster is still being created")
	}
	return m.Directory(), nil
}

// confirmTimeout bounds one confirmation of leadership.
const confirmTimeout = time.Second

// Confirmed returns the directory once this node is known to lead it and to have applied what was decided before its
// term; a node alone returns its own. It writes to the log once in a term at most: servers that check their membership
// ask again and again, and this log is never cut.
func (m *Member) Confirmed(ctx context.Context) (*commandv1.Directory, error) {
	if m.raft == nil {
		return m.Directory(), nil
	}
	term := m.raft.CurrentTerm()
	if !m.Leads() || m.confirmed.Load() != term {
		dir, err := m.verified(ctx)
		if err == nil {
			m.confirmed.Store(term)
		}
		return dir, err
	}
	dir := m.Directory()
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	defer context.AfterFunc(m.Lifetime, cancel)()
	if err := raftgroup.Confirm(ctx, m.raft, m.transport.Acks(), raft.ServerID(m.self.ServerID), term); err != nil {
		return nil, refusal.TryLater(Group, "the directory's leadership could not be confirmed: "+err.Error())
	}
	return dir, nil
}
