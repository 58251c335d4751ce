package election

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/partition/cluster"
)

// directoryGroup is the number of the directory's Raft group.
const directoryGroup = cluster.Group

// GroupName is the name of a group in log lines.
func GroupName(id uint32) any {
	if id == directoryGroup {
		return "directory"
	}
	return id
}

// Group is this node's member of a Raft group. Its methods are safe for concurrent use.
type Group interface {
	ID() uint32
	State() raft.RaftState
	Term() uint64
	// Leader is the server that this member takes for the leader, "" if it knows none.
	Leader() (server, addr string)
	// Contact is when this member last heard from a leader, or voted, by the machine's clock.
	Contact() time.Time
	// Status is this member's state; Applied is the last command in it.
	Status() *commandv1.ReplicaStatus
	// Serves reports whether this member leads and has applied what earlier leaders committed.
	Serves() bool
	Servers() ([]raft.Server, error)
	// Campaign has a server campaign at once, without a pre-vote; Concede makes a candidate a follower in the
	// next term. Both block until Raft's main loop there has taken the request, for the transport's timeout
	// at most.
	Campaign(server, addr string) error
	Concede(server, addr string, term uint64) error
	// Transfer moves the leadership to a server. It blocks until this member no longer leads, or ctx ends.
	Transfer(ctx context.Context, server, addr string) error
}

// Env is what elections need of the node. Its methods are safe for concurrent use.
type Env interface {
	// Groups are the numbers of all groups, Group this node's member of one; false for one that has halted.
	Groups() []uint32
	Group(id uint32) (Group, bool)
	// NodeOf is the node id of a server, AddrOf its address, "" if unknown.
	NodeOf(server string) string
	AddrOf(server string) string
	// Probe returns the server that answers at an address.
	Probe(ctx context.Context, addr string) (server string, err error)
	// StatusAt asks the node at an address for its member of a group, Ask a member for all of its members.
	StatusAt(ctx context.Context, addr string, group uint32) (*commandv1.ReplicaStatus, error)
	Ask(ctx context.Context, m *commandv1.DirectoryMember) (*commandv1.NodeStatus, error)
	// Directory is the cluster's directory, nil before there is one; Members are its members or, before, the founders.
	Directory() *commandv1.Directory
	Members() []*commandv1.DirectoryMember
	// Halt ends the node with an error that only a new process resolves.
	Halt(err error)
}

// Options are what all parts of the package need.
type Options struct {
	Env Env
	// Server is this server's id, Node its node's, Addr its address for the others.
	Server, Node, Addr string
	// HeartbeatTimeout and ElectionTimeout are Raft's.
	HeartbeatTimeout, ElectionTimeout time.Duration
	Clock                             clock.Clock
	// Rand draws the pauses between campaigns. The Failover uses it alone.
	Rand *rand.Rand
	Log  *slog.Logger
}

// led are the groups that this node leads.
func (o *Options) led() []Group {
	var out []Group
	for _, id := range o.Env.Groups() {
		if g, ok := o.Env.Group(id); ok && g.State() == raft.Leader {
			out = append(out, g)
		}
	}
	return out
}
