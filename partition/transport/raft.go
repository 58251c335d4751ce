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

// self names this server to the library's transport when it is to call itself.
const self raft.ServerID = ""

// knowsSelf adds this server to an address book.
type knowsSelf struct {
	raft.ServerAddressProvider
	addr raft.ServerAddress
}

// ServerAddr implements raft.ServerAddressProvider.
func (k knowsSelf) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if id == self {
		return k.addr, nil
	}
	return k.ServerAddressProvider.ServerAddr(id)
}

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
	if opts.Addresses != nil {
		opts.Addresses = knowsSelf{opts.Addresses, raft.ServerAddress(stream.Addr().String())}
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

// Stand has this server stand for election at once, as if the leader had asked it to take over: it does not
// first ask whether it would be elected (pre-vote), and the others vote although they know a leader. So it
// is for when the leader is surely gone. The library has no call for this; the request comes over a
// connection of this server to itself, by the same way as every other. It blocks until Raft's main loop has
// taken the request, for Timeout at most; the outcome of the election is not awaited. A leader that is
// made to stand ceases to lead; a candidate goes on as it was: see StepBack.
func (t *RaftTransport) Stand() error {
	return t.TimeoutNow(self, t.LocalAddr(), &raft.TimeoutNowRequest{RPCHeader: t.header("")}, &raft.TimeoutNowResponse{})
}

// StepBack makes a candidate or a leader a follower in a new term, by a request for a vote that cannot be
// granted. server is its own id, term the one it is in. Terms may grow at any time, so this is always safe.
// It blocks as Stand does.
func (t *RaftTransport) StepBack(server raft.ServerID, term uint64) error {
	return t.RequestVote(self, t.LocalAddr(), &raft.RequestVoteRequest{
		RPCHeader: t.header(server), Term: term + 1, Candidate: []byte(t.LocalAddr()), LeadershipTransfer: true,
	}, &raft.RequestVoteResponse{})
}

func (t *RaftTransport) header(server raft.ServerID) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(server), Addr: []byte(t.LocalAddr())}
}
