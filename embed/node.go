// Package embed assembles a whole node as a library: for cmd/node, for examples, and for the tests of
// programs that use Perdure.
//
// It owns the order in which the parts of a node start and stop, and the configuration with its defaults and
// checks. Start returns a node that serves every partition, or an error with nothing left running. The
// package stores nothing itself; the partitions say what a crash may lose.
package embed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"perdure/backup/schedule"
	"perdure/partition"
	"perdure/rpc"
)

// snapshotBytes of log since the last marker ask for a new one, for any number of entries.
const snapshotBytes = 64 << 20

// trailingBytes of log are kept behind a marker, for any number of entries.
const trailingBytes = 64 << 20

// A node that is its cluster's only member has no other candidate, so its elections need no long timeouts.
const (
	aloneElection = 100 * time.Millisecond
	aloneLease    = 50 * time.Millisecond
)

// Node is a running node.
type Node struct {
	cfg      Config
	security *security
	cluster  *discovery // nil for a node that is alone
	parts    *partition.Node
	server   *rpc.Server
	outbound *rpc.Outbound
	resonate *resonateService
	// backups is nil without a schedule. stopBackups ends its run and waits for it; nil while it does not run.
	backups     *schedule.Schedule
	stopBackups func()

	closeOnce sync.Once
	closeErr  error
}

// Start checks the configuration, opens or makes the data directory, and serves. It blocks until every
// partition has a leader, ctx ends, or a step fails: bad settings (*ConfigError, all of them at once), a
// store that is missing, foreign, damaged or newer (named), a membership that another server has by now
// (*identity.ReplacedError), a port in use.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = cfg.NewLogger(os.Stderr)
	}
	if !cfg.clustered() && cfg.HeartbeatTimeout == DefaultConfig().HeartbeatTimeout && cfg.ElectionTimeout == DefaultConfig().ElectionTimeout &&
		cfg.LeaderLease == DefaultConfig().LeaderLease {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = aloneElection, aloneElection, aloneLease
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	n := &Node{cfg: cfg}
	pcfg := cfg.partitionConfig(log)
	pcfg.Registerer = registry
	// 1. The files of certificates, keys and tokens, before opening the ports that they guard.
	if n.security, err = cfg.openSecurity(log, registry); err != nil {
		return nil, err
	}
	secure := secrets{peer: n.security.peerTLS(), http: n.security.httpTLS(), gossip: n.security.gossipKeys}
	pcfg.TLS = secure.peer
	// 2. A member of a cluster finds the others first: its next step depends on them.
	if cfg.clustered() {
		if n.cluster, err = startCluster(cfg, log, secure); err != nil {
			return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
		}
		if pcfg.Cluster, pcfg.Partitions, err = n.cluster.enter(ctx, secure); err != nil {
			return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
		}
		pcfg.Hints, pcfg.Ahead = n.cluster.hints, n.cluster.ahead
	}
	source := &nodeSource{}
	if cfg.BackupURL != "" {
		n.backups = cfg.schedule(source, log)
		registry.MustRegister(n.backups)
		pcfg.Backups = n.backups.Status
	}
	// 3. The partitions: identity, stores, groups.
	if n.parts, err = partition.Start(pcfg); err != nil {
		return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
	}
	if n.cluster != nil {
		n.cluster.follow(n.parts)
	}
	// 4. A member asks the others whether it still is one, if any is reachable: a replaced one opens no port
	// to clients.
	select {
	case <-n.parts.MembershipChecked():
	case <-n.parts.Done():
		return nil, errors.Join(n.parts.Err(), n.closeWithin(cfg.ShutdownGrace))
	case <-ctx.Done(): // the last step says so
	}
	// 5. The ports. Until the partitions have leaders, they answer that the node is not ready.
	if n.resonate, err = cfg.newResonate(n.parts, log); err != nil {
		return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
	}
	if n.server, err = rpc.Listen(rpc.Config{
		NodeID: cfg.NodeID, GRPCAddr: cfg.GRPCAddr, HTTPAddr: cfg.HTTPAddr, Lease: cfg.Lease, MaxWorkers: cfg.MaxWorkers, MaxStreams: cfg.MaxStreams,
		Outbound: cfg.outbound(), RequestBytes: cfg.MaxRequestBytes, MaxConnections: cfg.MaxConnections,
		TLS: n.security.clients, Auth: n.security.guard, Register: n.resonate.server(n.security.guard).Register,
		Logger: log, Registry: registry, NotReady: n.parts.NotReady, Operator: n.parts.Operator(), Version: Version(),
	}, n.parts.Router(), n.parts.Dispatcher()); err != nil {
		return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
	}
	// 6. Outbound calls of graphs. A node without permission to call fails their HTTP nodes, so that no run
	// waits for ever.
	if n.outbound, err = rpc.ServeOutbound(rpc.OutboundConfig{NodeID: cfg.NodeID, Lease: cfg.Lease, Policy: cfg.outbound(), Version: Version(), Logger: log},
		n.parts.Router(), n.parts.Dispatcher()); err != nil {
		return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
	}
	// 7. The schedules and the HTTP targets of Resonate's clients, of the partitions that this node leads.
	n.resonate.start(n.security.pushToken)
	// 8. Backups, from the first moment at which this node leads.
	if n.backups != nil {
		source.node = n.parts
		n.runBackups()
	}
	// 9. Every partition has a leader.
	select {
	case <-n.parts.Ready():
		return n, nil
	case <-n.parts.Done():
		err = n.parts.Err()
	case <-ctx.Done():
		err = fmt.Errorf("the node was not ready in time: %w", errors.Join(ctx.Err(), n.parts.NotReady()))
	}
	return nil, errors.Join(err, n.closeWithin(cfg.ShutdownGrace))
}

func (n *Node) closeWithin(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return n.Close(ctx)
}

// GRPCAddr is the address of the gRPC port, with the port the system chose if the configuration said 0.
func (n *Node) GRPCAddr() string { return n.server.GRPCAddr() }

// HTTPAddr is the address of the HTTP port.
func (n *Node) HTTPAddr() string { return n.server.HTTPAddr() }

// PeerAddr is the address of the peer port.
func (n *Node) PeerAddr() string { return n.parts.PeerAddr() }

// Done is closed when the node has halted by itself; Err then says why.
func (n *Node) Done() <-chan struct{} { return n.parts.Done() }

// Err is why the node has halted by itself, or nil.
func (n *Node) Err() error { return n.parts.Err() }

// NotReady says why the node cannot serve every partition now, or nil.
func (n *Node) NotReady() error { return n.parts.NotReady() }

// Close stops the node in order, within ctx: it refuses new calls, waits for calls under way, stops the
// groups, flushes the states and closes the logs. Work that is not done in time is left as after a crash. A
// second call returns the same error.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	var errs []error
	if n.stopBackups != nil {
		// While the nodes still answer: an interrupted backup says that it has ended.
		n.stopBackups()
	}
	if n.parts != nil {
		// While the ports still answer, so that callers are redirected to the new leaders.
		n.parts.HandOver(ctx)
	}
	// Calls, either way, get half of what is left; the stores need the rest.
	half := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		half, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	if n.resonate != nil {
		n.resonate.close()
	}
	if n.outbound != nil {
		// While the partitions still take released tasks back.
		n.outbound.Close(half)
	}
	if n.server != nil {
		errs = append(errs, n.server.Close(half))
	}
	if n.parts != nil {
		errs = append(errs, n.parts.Close(ctx))
	}
	if n.cluster != nil {
		errs = append(errs, n.cluster.leave(ctx))
	}
	n.security.close()
	return errors.Join(errs...)
}
