package transport

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// RaftOptions of NewRaftTransport. The zero value is usable.
type RaftOptions struct {
	// Logger of the library's transport; nil for none.
	Logger hclog.Logger
	// MaxPool is how many idle connections are kept per peer; 3 if 0.
	MaxPool int
	// MaxInFlight is how many AppendEntries may be under way per follower; 0 is the library's default
	// of 2, which overlaps one with the next, 1 turns pipelining off.
	MaxInFlight int
	// Timeout bounds each RPC; a snapshot gets it once per 256 KiB. 10 s if 0.
	Timeout time.Duration
	// Addresses translates a server id to its present address; nil to use the configuration's.
	Addresses raft.ServerAddressProvider
}

// RaftTransport is the transport of one group.
type RaftTransport struct {
	*raft.NetworkTransport
}

var (
	_ raft.Transport   = (*RaftTransport)(nil)
	_ raft.WithPreVote = (*RaftTransport)(nil)
	_ raft.WithClose   = (*RaftTransport)(nil)
)

// NewRaftTransport builds the transport of a group on its stream layer. Closing it closes the layer.
func NewRaftTransport(stream raft.StreamLayer, opts RaftOptions) *RaftTransport {
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	if opts.MaxPool == 0 {
		opts.MaxPool = 3
	}
	if opts.Timeout == 0 {
		opts.Timeout = 10 * time.Second
	}
	return &RaftTransport{raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   opts.Addresses,
		Logger:                  opts.Logger,
		Stream:                  stream,
		MaxPool:                 opts.MaxPool,
		MaxRPCsInFlight:         opts.MaxInFlight,
		Timeout:                 opts.Timeout,
		MsgpackUseNewTimeFormat: true,
	})}
}

// SetHeartbeatHandler does nothing, as raft.Transport permits. The library would handle a heartbeat
// beside its main loop, and a heartbeat that races with a vote there can make logs diverge. So
// heartbeats go through the main loop like everything else.
func (t *RaftTransport) SetHeartbeatHandler(func(rpc raft.RPC)) {}
