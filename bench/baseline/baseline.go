// Package baseline is the limit that a cluster is held against: bare hashicorp/raft with the project's log store, and a
// state machine that does no more than it must.
//
// A server owns a folder with its log, its term and vote, and its state; nothing of it outlives a
// measurement. It promises the durability of a node: an entry is synced on a majority before it is applied.
// Load and server are one process, so no call between processes is in the figures. Commands that wait travel
// together in one entry, as they do in a node.
//
//	s, err := baseline.Open(cfg)
//	leads, err := s.WaitLeader(ctx)
//	if leads { result, err := s.Run(ctx, load) }
//	err = s.Close()
package baseline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"perdure/bench/load"
	"perdure/partition/raftlog"
	"perdure/partition/stable"
)

// Config is one server of a baseline, and the work that it does.
type Config struct {
	// Index is the server's place in Addrs, the addresses of all.
	Index int      `json:"index"`
	Addrs []string `json:"addrs"`
	Dir   string   `json:"dir"`
	// Commands is how many commands an operation proposes, one after the other, and CommandBytes the size of one.
	Commands     int `json:"commands"`
	CommandBytes int `json:"command_bytes"`
	// Keys is how many keys a command writes to Pebble, KeyBytes the size of a key and its value. Without
	// keys the machine counts commands and stores nothing.
	Keys     float64 `json:"keys"`
	KeyBytes int     `json:"key_bytes"`
	// Load is what the leader runs.
	Load load.Options `json:"load"`
}

// The bounds of an entry are those of a node's groups: see partition/group.
const (
	maxEntryCommands = 64
	maxEntryBytes    = 64 << 10
	maxInFlight      = 2
	maxAppendEntries = 256
	// waitLimit bounds the wait for an entry and for a leader.
	waitLimit = 30 * time.Second
)

// Server is a running server.
type Server struct {
	cfg       Config
	raft      *raft.Raft
	transport *raft.NetworkTransport
	log       *raftlog.Store
	stable    *stable.File
	machine   *machine
}

// Open makes a server in an empty folder and starts it.
func Open(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open() (err error) {
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return err
	}
	if s.log, err = raftlog.Open(filepath.Join(s.cfg.Dir, "log"), raftlog.Options{MustCreate: true}); err != nil {
		return err
	}
	if s.stable, err = stable.Open(filepath.Join(s.cfg.Dir, "stable.db"), stable.Options{MustCreate: true}); err != nil {
		return err
	}
	if s.machine, err = openMachine(filepath.Join(s.cfg.Dir, "state"), s.cfg.Keys, s.cfg.KeyBytes); err != nil {
		return err
	}
	addr, err := net.ResolveTCPAddr("tcp", s.cfg.Addrs[s.cfg.Index])
	if err != nil {
		return err
	}
	logger := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	if s.transport, err = raft.NewTCPTransportWithLogger(addr.String(), addr, 3, 10*time.Second, logger); err != nil {
		return err
	}
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(strconv.Itoa(s.cfg.Index))
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	cfg.CommitTimeout = 500 * time.Millisecond
	cfg.MaxAppendEntries = maxAppendEntries
	cfg.BatchApplyCh, cfg.NoLegacyTelemetry = true, true
	cfg.Logger = logger
	logs := raftlog.NewCache(s.log.Group(0), raftlog.CacheOptions{})
	snapshots := raft.NewDiscardSnapshotStore()
	var servers []raft.Server
	for i, a := range s.cfg.Addrs {
		servers = append(servers, raft.Server{ID: raft.ServerID(strconv.Itoa(i)), Address: raft.ServerAddress(a)})
	}
	terms := s.stable.Group(0)
	if err := raft.BootstrapCluster(cfg, logs, terms, snapshots, s.transport, raft.Configuration{Servers: servers}); err != nil {
		return err
	}
	s.raft, err = raft.NewRaft(cfg, s.machine, logs, terms, snapshots, s.transport)
	return err
}

// WaitLeader waits until the servers have a leader, and reports whether it is this one.
func (s *Server) WaitLeader(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		if _, id := s.raft.LeaderWithID(); id != "" {
			return id == raft.ServerID(strconv.Itoa(s.cfg.Index)), nil
		}
		select {
		case <-ctx.Done():
			return false, errors.New("the servers have no leader")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Run runs the load at the leader; began and ended are called at the window's bounds. It checks that the machine has
// applied as many commands as the operations proposed.
func (s *Server) Run(ctx context.Context, began, ended func()) (*load.Result, error) {
	before := s.machine.applied.Load()
	p := newProposer(s.raft)
	o := s.cfg.Load
	o.Began, o.Ended = began, ended
	command := make([]byte, s.cfg.CommandBytes)
	r, err := load.Run(ctx, o, func(ctx context.Context, _ int64) error {
		for range s.cfg.Commands {
			if err := p.propose(ctx, command); err != nil {
				return err
			}
		}
		return nil
	})
	p.close()
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return nil, err
	}
	if got, want := s.machine.applied.Load()-before, r.Begun*int64(s.cfg.Commands); got != want {
		return nil, fmt.Errorf("%d commands were proposed and %d applied", want, got)
	}
	return r, nil
}

// Close stops the server. Its folder stays.
func (s *Server) Close() error {
	var errs []error
	if s.raft != nil {
		errs = append(errs, s.raft.Shutdown().Error())
	}
	if s.transport != nil {
		errs = append(errs, s.transport.Close())
	}
	if s.machine != nil {
		errs = append(errs, s.machine.close())
	}
	for _, c := range []io.Closer{closerOf(s.log), closerOf(s.stable)} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// closerOf is nil for a nil pointer, which an interface would hide.
func closerOf[T any, P interface {
	*T
	io.Closer
}](p P) io.Closer {
	if p == nil {
		return nil
	}
	return p
}

// proposer puts commands that wait into one entry. Its loop ends with close.
type proposer struct {
	raft    *raft.Raft
	waiting chan *proposal
	flights chan flight
	done    chan struct{}
}

// proposal is a command whose caller waits.
type proposal struct {
	command []byte
	answer  chan error // of one element
}

// flight is an entry that Raft has.
type flight struct {
	future    raft.ApplyFuture
	proposals []*proposal
}

func newProposer(r *raft.Raft) *proposer {
	// One flight is at the resolver, the others wait in the channel.
	p := &proposer{raft: r, waiting: make(chan *proposal, maxEntryCommands*maxInFlight), flights: make(chan flight, maxInFlight-1), done: make(chan struct{})}
	go p.loop()
	go p.resolve()
	return p
}

// propose blocks until a command is applied.
func (p *proposer) propose(ctx context.Context, command []byte) error {
	one := &proposal{command: command, answer: make(chan error, 1)}
	select {
	case p.waiting <- one:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return <-one.answer // bounded by waitLimit
}

// loop makes entries until close.
func (p *proposer) loop() {
	defer close(p.flights)
	for first := range p.waiting {
		batch, bytes := []*proposal{first}, len(first.command)
	gather:
		for len(batch) < maxEntryCommands && bytes < maxEntryBytes {
			select {
			case next, ok := <-p.waiting:
				if !ok {
					break gather
				}
				batch, bytes = append(batch, next), bytes+len(next.command)
			default:
				break gather
			}
		}
		data := binary.AppendUvarint(make([]byte, 0, bytes+binary.MaxVarintLen64), uint64(len(batch)))
		for _, one := range batch {
			data = append(data, one.command...)
		}
		p.flights <- flight{p.raft.Apply(data, waitLimit), batch}
	}
}

// resolve answers in the order of the log.
func (p *proposer) resolve() {
	defer close(p.done)
	for f := range p.flights {
		err := f.future.Error()
		for _, one := range f.proposals {
			one.answer <- err
		}
	}
}

// close ends the loop when nobody proposes any more.
func (p *proposer) close() {
	close(p.waiting)
	<-p.done
}
