package embed

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/directory"
	"perdure/membership"
	"perdure/partition"
	"perdure/partition/admission"
	"perdure/partition/cluster"
	"perdure/partition/identity"
	"perdure/partition/transport"
	"perdure/rpc"
)

// discovery is a node's part in the gossip of its cluster.
type discovery struct {
	cfg    Config
	log    *slog.Logger
	gossip *membership.Gossip
	// identity is the identity in the data directory, if it has one.
	identity identity.Identity
	known    bool
	// why is the reason why the node waits, for /readyz.
	why atomic.Pointer[string]

	stop context.CancelFunc
	done chan struct{}
}

// clustered reports whether the node is, or is to be, one of several members.
func (c *Config) clustered() bool { return c.BootstrapExpect > 1 }

// partitionConfig is partition.Start's configuration, without the part that members find out.
func (c *Config) partitionConfig(log *slog.Logger) partition.Config {
	return partition.Config{
		DataDir: c.DataDir, NodeID: c.NodeID, PeerAddr: c.PeerAddr, Advertise: c.reached(c.PeerAddr),
		Partitions: uint32(c.Partitions), NewPartitions: uint32(DefaultPartitions(runtime.GOMAXPROCS(0))), LogStore: c.LogStore,
		HeartbeatTimeout: c.HeartbeatTimeout, ElectionTimeout: c.ElectionTimeout, LeaderLease: c.LeaderLease,
		CommitTimeout: c.CommitTimeout, MaxAppendEntries: c.MaxAppendEntries,
		SnapshotThreshold: c.SnapshotThreshold, SnapshotInterval: c.SnapshotInterval, TrailingLogs: c.TrailingLogs,
		SnapshotBytes: snapshotBytes, TrailingBytes: trailingBytes, CacheBytes: c.CacheBytes, MemtableBytes: c.MemtableBytes,
		DiskReserve:        c.DiskReserve,
		MaxPendingCommands: c.MaxPendingCommands, MaxStreams: c.MaxStreams, ClientRetry: c.ResonateRetry, CheckInvariants: c.CheckInvariants, AutoUpgrade: c.AutoUpgrade,
		AuditShare: c.AuditShare.Share(), AuditInterval: c.AuditInterval,
		Retention: c.retention(), RetentionInterval: c.RetentionInterval, Quotas: c.quotas(),
		Logger: log, Rand: rand.Reader,
		PendingBytes: admission.Limits{PartitionBytes: c.MaxPendingBytes, NamespaceBytes: c.MaxPendingNamespaceBytes, NodeBytes: c.MaxPendingNodeBytes},
	}
}

// secrets are the files that secure a node's ports, read.
type secrets struct {
	peer   *tls.Config // nil: peers talk in the clear
	http   *tls.Config // nil: plain HTTP
	gossip [][]byte
}

// startCluster starts gossip: as the member that the data directory names, or as a node without membership.
func startCluster(cfg Config, log *slog.Logger, s secrets) (c *discovery, err error) {
	c = &discovery{cfg: cfg, log: log, done: make(chan struct{})}
	if c.identity, c.known, err = identity.Find(identity.Config{
		Dir: cfg.DataDir, NodeID: cfg.NodeID, Partitions: uint32(cfg.Partitions), Expect: uint32(cfg.BootstrapExpect),
	}); err != nil {
		return nil, err
	}
	self := membership.Member{
		NodeID: cfg.NodeID, PeerAddr: cfg.reached(cfg.PeerAddr), GRPCAddr: cfg.reached(cfg.GRPCAddr), HTTPAddr: cfg.reached(cfg.HTTPAddr),
		Version: Version(), Partitions: uint32(cfg.Partitions), BootstrapExpect: uint32(cfg.BootstrapExpect), LogStore: cfg.LogStore,
	}
	if c.known {
		self.ServerID, self.Partitions = c.identity.ServerID, c.identity.Partitions
		if c.identity.Member {
			self.ClusterID = c.identity.ClusterID
		}
		if len(c.identity.Founders) > 0 {
			self.Founding = founding(c.identity.ClusterID, c.identity.Founders)
		}
	} else if self.ServerID, err = identity.DrawServerID(rand.Reader, cfg.NodeID); err != nil {
		return nil, err
	}
	if c.gossip, err = membership.Start(membership.Config{
		BindAddr: cfg.GossipAddr, Advertise: cfg.gossipReached(), Join: cfg.Join, Keys: s.gossip, Self: self, Logger: log,
	}); err != nil {
		return nil, fmt.Errorf("gossip port %s: %w", cfg.GossipAddr, err)
	}
	return c, nil
}

// enter blocks until this node has a cluster, and returns that part of partition.Start's configuration. A
// node with data does not wait.
func (c *discovery) enter(ctx context.Context, s secrets) (_ *identity.Cluster, partitions uint32, err error) {
	expect := uint32(c.cfg.BootstrapExpect)
	if c.known {
		return &identity.Cluster{Expect: expect}, c.identity.Partitions, nil
	}
	c.explain("no other node discovered yet")
	leave, err := rpc.ServeNotReady(c.cfg.HTTPAddr, s.http, func() error { return errors.New(*c.why.Load()) })
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	again := time.NewTicker(5 * time.Second)
	defer again.Stop()
	for {
		self := c.gossip.Self()
		next, err := nextStep(self, c.gossip.Members())
		switch {
		case err != nil:
			return nil, 0, err
		case next.join != "":
			return c.join(ctx, self, next, s)
		case next.found:
			id, err := identity.DrawClusterID(rand.Reader)
			if next.partitions == 0 {
				next.partitions = uint32(DefaultPartitions(runtime.GOMAXPROCS(0)))
			}
			c.log.Info("founding cluster", "event", "cluster_founding", "cluster", id, "members", len(next.founders), "partitions", next.partitions)
			return &identity.Cluster{Expect: expect, ClusterID: id, ServerID: self.ServerID, Founders: next.founders, Founder: true}, next.partitions, err
		case next.accept != "":
			c.log.Info("taking part in founding a cluster", "event", "cluster_accepted", "cluster", next.accept, "founder", next.founders[0].NodeID)
			return &identity.Cluster{Expect: expect, ClusterID: next.accept, ServerID: self.ServerID, Founders: next.founders}, next.partitions, nil
		}
		c.explain(next.wait)
		select {
		case <-c.gossip.Changed():
		case <-again.C:
			c.log.Warn("waiting for the other members", "event", "cluster_waiting", "reason", next.wait)
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("no cluster yet: %s", next.wait)
		}
	}
}

func (c *discovery) explain(why string) { c.why.Store(&why) }

// joinTimeout bounds one attempt to join a discovered cluster; then discovery starts over.
const joinTimeout = 30 * time.Second

// join asks a discovered cluster for the membership of this node's id. It blocks until the cluster answers or ctx ends.
func (c *discovery) join(ctx context.Context, self membership.Member, next step, s secrets) (*identity.Cluster, uint32, error) {
	c.explain("asking cluster " + next.join + " for the membership of node " + self.NodeID)
	c.log.Info("joining cluster", "event", "cluster_joining", "cluster", next.join, "node", self.NodeID, "server", self.ServerID)
	var dir *commandv1.Directory
	for {
		asking, cancel := context.WithTimeout(ctx, joinTimeout)
		var err error
		dir, err = cluster.AskToJoin(asking, next.join, transport.Options{TLS: s.peer}, next.contacts, &commandv1.JoinRequest{
			Member:     &commandv1.DirectoryMember{NodeId: self.NodeID, ServerId: self.ServerID, PeerAddr: self.PeerAddr},
			Partitions: self.Partitions, BootstrapExpect: self.BootstrapExpect, LogStore: self.LogStore,
		})
		late := asking.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if !late || ctx.Err() != nil {
			return nil, 0, err
		}
		c.explain(err.Error())
		c.log.Warn("not admitted yet", "event", "cluster_waiting", "reason", err)
	}
	since, _ := directory.Holds(dir, self.ServerID)
	return &identity.Cluster{Expect: self.BootstrapExpect, ClusterID: dir.ClusterId, ServerID: self.ServerID, Since: since}, dir.Partitions, nil
}

// hints are the servers that gossip knows.
func (c *discovery) hints() []cluster.Hint {
	var out []cluster.Hint
	clocks, own := c.gossip.Offsets(), c.ahead()
	for _, m := range c.gossip.Members() {
		out = append(out, cluster.Hint{NodeID: m.NodeID, ServerID: m.ServerID, PeerAddr: m.PeerAddr, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr, Version: m.Version,
			ClockOffset: clocks[m.ServerID] + own})
	}
	return out
}

// ahead is how far this node's clock is ahead of the median of all.
func (c *discovery) ahead() time.Duration {
	d, known := c.gossip.Offset()
	if !known {
		return 0
	}
	return d
}

// follow starts to gossip the state of this node, and lets its groups form when all founders take part. leave
// stops it.
func (c *discovery) follow(parts *partition.Node) {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	id := parts.Identity()
	own := founding(id.ClusterID, id.Founders)
	go func() {
		defer close(c.done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		founded := !id.Founder
		for {
			dir := parts.Directory()
			if err := c.gossip.Update(func(m *membership.Member) {
				m.Partitions = id.Partitions
				if len(id.Founders) > 0 {
					m.Founding = own
				}
				if dir != nil {
					m.ClusterID, m.Epoch, m.Leads = id.ClusterID, dir.Epoch, parts.Leads()
				}
			}); err != nil {
				c.log.Warn("cannot update gossip", "event", "gossip_update_failed", "error", err)
			}
			if dir != nil {
				founded = true
			}
			if !founded && c.allTakePart(id, own) {
				parts.MayFound()
				founded = true
			}
			select {
			case <-c.gossip.Changed():
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// allTakePart reports whether gossip shows every founder taking part in this founding and in no other.
func (c *discovery) allTakePart(id identity.Identity, own string) bool {
	heard := c.gossip.Members()
	return !slices.ContainsFunc(id.Founders, func(f identity.Founder) bool {
		return f.ServerID != id.ServerID && !slices.ContainsFunc(heard, func(m membership.Member) bool {
			return m.ServerID == f.ServerID && (m.Founding == own || m.ClusterID == id.ClusterID)
		})
	})
}

// leave announces that this node leaves, and ends gossip. It blocks for 2 s at most.
func (c *discovery) leave(ctx context.Context) error {
	if c.stop != nil {
		c.stop()
		<-c.done
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := c.gossip.Leave(ctx); err != nil {
		c.log.Warn("cannot announce leave", "event", "gossip_leave_failed", "error", err)
	}
	return c.gossip.Close()
}

// reached is the address at which others reach a port.
func (c *Config) reached(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if c.AdvertiseHost != "" {
		host = c.AdvertiseHost
	}
	return net.JoinHostPort(host, port)
}

// gossipReached is where others reach the gossip port, empty if that is where it listens.
func (c *Config) gossipReached() string {
	if c.AdvertiseHost == "" {
		return ""
	}
	return c.reached(c.GossipAddr)
}
