package transport

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"perdure/internal/clock"
)

// RaftOptions of NewRaftTransport. The zero value is usable.
type RaftOptions struct {
	// Logger of the library's transport; nil for none.
	Logger hclog.Logger
	// MaxPool is how many idle connections remain per peer; 3 if 0.
	MaxPool int
	// MaxInFlight is how many AppendEntries may be under way per follower; 0 is the library's default
	// of 2, which overlaps one with the next, 1 turns pipelining off.
	MaxInFlight int
	// Timeout bounds each RPC; a snapshot gets it once per 256 KiB. 10 s if 0.
	Timeout time.Duration
	// Addresses translates a server id to its present address; nil to use the configuration's.
	Addresses raft.ServerAddressProvider
	// Leading reports whether this server still leads in a term. With it, entries for a server that is down wait
	// for its return; nil reports each failure to the library. It must not block.
	Leading func(term uint64) bool
	// Synced returns an index, or the lower one up to which this server's own log is on disk; nil if all of it always
	// is. No message's commit index exceeds it. It must not block.
	Synced func(index uint64) uint64
	// Load reads the entry of a raftlog.Reference; nil if the log returns no references.
	Load func(*raft.Log) (*raft.Log, error)
	// Answered is called for each server that has answered a heartbeat, entries or a request for a vote; nil for
	// none. It must not block.
	Answered func(server string)
}

// RaftTransport is the transport of one group.
type RaftTransport struct {
	*raft.NetworkTransport
	server    raft.ServerID
	clock     clock.Clock // the Mux's
	leading   func(term uint64) bool
	answered  func(server string)
	acks      *Acks
	load      func(*raft.Log) (*raft.Log, error)
	synced    func(index uint64) uint64
	closed    chan struct{}
	closeOnce sync.Once
}

var (
	_ raft.Transport   = (*RaftTransport)(nil)
	_ raft.WithPreVote = (*RaftTransport)(nil)
	_ raft.WithClose   = (*RaftTransport)(nil)
)

// self names this server to the library's transport when it is to call itself.
const self raft.ServerID = ""

// addressed is an address provider whose addresses name the intended server: the successor of a replaced
// server may listen at its address, and must not be mistaken for it. Its own address is this server's.
type addressed struct {
	book   raft.ServerAddressProvider
	server raft.ServerID
	addr   raft.ServerAddress
}

// ServerAddr implements raft.ServerAddressProvider.
func (a addressed) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if id == self || id == a.server {
		return a.addr, nil
	}
	addr, err := a.book.ServerAddr(id)
	if err != nil {
		return "", err
	}
	return addr + targetMark + raft.ServerAddress(id), nil
}

// targetMark separates an address from the id of the intended server.
const targetMark = "#"

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
	var server raft.ServerID
	var time clock.Clock = clock.System{}
	if layer, ok := stream.(*raftLayer); ok {
		server, time = raft.ServerID(layer.mux.opts.ServerID), layer.mux.clock
	}
	if opts.Addresses != nil {
		opts.Addresses = addressed{opts.Addresses, server, raft.ServerAddress(stream.Addr().String())}
	}
	if opts.Answered == nil {
		opts.Answered = func(string) {}
	}
	return &RaftTransport{server: server, clock: time, leading: opts.Leading, answered: opts.Answered, acks: newAcks(), load: opts.Load, synced: opts.Synced, closed: make(chan struct{}), NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   opts.Addresses,
		Logger:                  opts.Logger,
		Stream:                  stream,
		MaxPool:                 opts.MaxPool,
		MaxRPCsInFlight:         opts.MaxInFlight,
		Timeout:                 opts.Timeout,
		MsgpackUseNewTimeFormat: true,
	})}
}

// Acks returns the record of the requests of this server that the others have answered.
func (t *RaftTransport) Acks() *Acks { return t.acks }

// SetHeartbeatHandler does nothing, as raft.Transport permits. The library would handle a heartbeat outside
// its main loop, and a heartbeat that races with a vote there can make logs diverge. So heartbeats go through
// the main loop like everything else.
func (t *RaftTransport) SetHeartbeatHandler(func(rpc raft.RPC)) {}

// Campaign has a server (this one, or another at addr) campaign at once, as if the leader had asked it to
// take over: it does not first ask whether it would be elected (pre-vote), and the others vote although they
// know a leader. So call it only when the leader's process has surely ended. The library has no call for it; a server's
// request to itself takes the way of all messages. Campaign blocks until Raft's main loop there has taken the
// request, for Timeout at most; it does not await the election. A leader that campaigns ceases to lead; a
// candidate stays one: see Concede.
func (t *RaftTransport) Campaign(server raft.ServerID, addr raft.ServerAddress) error {
	server, addr = t.orSelf(server, addr)
	return t.TimeoutNow(server, addr, &raft.TimeoutNowRequest{RPCHeader: t.header()}, &raft.TimeoutNowResponse{})
}

// Concede makes a server that is a candidate or a leader in a term a follower in the next one, by a request for a vote
// that cannot be granted. Terms may grow at any time, so this is always safe. It blocks as Campaign does.
func (t *RaftTransport) Concede(server raft.ServerID, addr raft.ServerAddress, term uint64) error {
	server, addr = t.orSelf(server, addr)
	return t.RequestVote(server, addr, &raft.RequestVoteRequest{
		RPCHeader: t.header(), Term: term + 1, LeadershipTransfer: true,
	}, &raft.RequestVoteResponse{})
}

func (t *RaftTransport) orSelf(server raft.ServerID, addr raft.ServerAddress) (raft.ServerID, raft.ServerAddress) {
	if server == t.server {
		return self, t.LocalAddr()
	}
	return server, addr
}

func (t *RaftTransport) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.server), Addr: []byte(t.LocalAddr())}
}
