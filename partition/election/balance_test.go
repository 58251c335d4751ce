package election

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/internal/testkit"
)

// ledHere is a partition that this node leads; env a cluster of which n2 should lead it.
type (
	ledHere struct {
		Group
		serves   bool
		transfer func(server string) error
	}
	env struct {
		Env
		g      ledHere
		answer func() (*commandv1.NodeStatus, error)
		halted atomic.Pointer[error]
	}
)

func (ledHere) ID() uint32            { return 0 }
func (ledHere) State() raft.RaftState { return raft.Leader }
func (ledHere) Term() uint64          { return 1 }
func (g ledHere) Serves() bool        { return g.serves }
func (ledHere) Status() *commandv1.ReplicaStatus {
	return &commandv1.ReplicaStatus{}
}
func (g ledHere) Transfer(_ context.Context, server, _ string) error { return g.transfer(server) }

func (e *env) Group(uint32) (Group, bool) { return e.g, true }
func (e *env) AddrOf(string) string       { return "n2:1" }
func (e *env) Halt(err error)             { e.halted.Store(&err) }
func (e *env) Ask(context.Context, *commandv1.DirectoryMember) (*commandv1.NodeStatus, error) {
	return e.answer()
}
func (e *env) Directory() *commandv1.Directory {
	return &commandv1.Directory{State: commandv1.DirectoryState_DIRECTORY_STATE_READY,
		Members:    []*commandv1.DirectoryMember{{NodeId: "n1", ServerId: "n1-1"}, {NodeId: "n2", ServerId: "n2-1"}},
		Placements: []*commandv1.Placement{{Preferred: "n2"}}}
}

const heartbeat = 2 * time.Second

func newBalancer(e *env) *Balancer {
	opts := Options{Env: e, Server: "n1-1", Node: "n1", HeartbeatTimeout: heartbeat, ElectionTimeout: heartbeat,
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)}
	b := NewBalancer(context.Background(), opts, NewTransfers(opts))
	b.Start()
	return b
}

var ready = &commandv1.NodeStatus{Replicas: []*commandv1.ReplicaStatus{{State: "Follower", Leader: "n1-1"}}}

// TestBalance: a partition goes to the preferred member when that has answered for a while, and an operator's choice
// holds for ten minutes.
func TestBalance(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		var moved atomic.Int32
		var up atomic.Bool
		e := &env{g: ledHere{serves: true, transfer: func(string) error { moved.Add(1); return nil }}}
		e.answer = func() (*commandv1.NodeStatus, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			return ready, nil
		}
		b := newBalancer(e)
		defer b.Close(context.Background())
		testkit.Advance(10 * heartbeat)
		up.Store(true)
		testkit.Advance(3 * heartbeat) // it answers first after one, and has answered for two
		if n := moved.Load(); n != 0 {
			t.Fatalf("moved %d times before n2 had answered for long enough", n)
		}
		b.Pin(0)
		testkit.Advance(pinDuration - heartbeat)
		if n := moved.Load(); n != 0 {
			t.Fatalf("moved %d times against an operator's choice", n)
		}
		testkit.Advance(6 * heartbeat)
		if moved.Load() == 0 {
			t.Error("not moved")
		}
	})
}

// TestStuckTransfer: a partition that does not serve because a transfer never ends halts the node, one that only takes
// long does not.
func TestStuckTransfer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		var ended atomic.Bool
		e := &env{g: ledHere{transfer: func(server string) error {
			if server != "" {
				t.Errorf("the question moved the leadership to %s", server)
			}
			if ended.Load() {
				return errors.New("no such server")
			}
			return raft.ErrLeadershipTransferInProgress
		}}, answer: func() (*commandv1.NodeStatus, error) { return ready, nil }}
		b := newBalancer(e)
		defer b.Close(context.Background())
		const limit = transportTimeout + stuckElections*heartbeat
		testkit.Advance(limit)
		ended.Store(true)
		testkit.Advance(heartbeat)
		ended.Store(false) // another one
		testkit.Advance(limit)
		if err := e.halted.Load(); err != nil {
			t.Fatalf("halted too soon: %v", *err)
		}
		testkit.Advance(3 * heartbeat)
		var stuck *StuckTransferError
		if err := e.halted.Load(); err == nil || !errors.As(*err, &stuck) || stuck.Partition != 0 || stuck.Since <= limit {
			t.Errorf("halted: %v", err)
		}
	})
}

// TestRetryLater: a failed transfer to a server is repeated after a minute, not before, and counts as failed so long.
func TestRetryLater(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		tries := 0
		e := &env{g: ledHere{transfer: func(string) error { tries++; return errors.New("timed out") }}}
		tr := NewTransfers(Options{Env: e, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)})
		to := &commandv1.DirectoryMember{NodeId: "n2", ServerId: "n2-1"}
		try := func() error { return tr.Transfer(context.Background(), e.g, to) }
		if err := try(); err == nil || errors.Is(err, ErrRetryLater) {
			t.Fatalf("the first transfer: %v", err)
		}
		testkit.Advance(retryAfter - time.Second)
		if err := try(); !errors.Is(err, ErrRetryLater) || tries != 1 || !tr.failedLately(0, clock.System{}.Now()) {
			t.Errorf("within a minute: %v, %d tries", err, tries)
		}
		testkit.Advance(time.Second)
		if err := try(); errors.Is(err, ErrRetryLater) || tries != 2 {
			t.Errorf("after a minute: %v, %d tries", err, tries)
		}
	})
}

// TestWitnessed: a node reports no more of a silence than it can testify to.
func TestWitnessed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, _ *testkit.Network) {
		f := NewFailover(context.Background(), Options{HeartbeatTimeout: heartbeat, Clock: clock.System{}})
		defer f.Close()
		now := clock.System{}.Now()
		is := func(what string, s *scan, want time.Duration) {
			t.Helper()
			f.scanned.Store(s)
			if have := f.Witnessed(500 * time.Millisecond); have != want {
				t.Errorf("%s: silent for %v, want %v", what, have, want)
			}
		}
		ago := func(ms int) time.Time { return now.Add(-time.Duration(ms) * time.Millisecond) }
		is("it does not scan", nil, 0)
		is("it has scanned all the time", &scan{ago(50), ago(1800)}, 500*time.Millisecond)
		is("it was held up before", &scan{ago(50), ago(400)}, 400*time.Millisecond)
		is("it is held up", &scan{ago(210), ago(1800)}, 0)
	})
}
