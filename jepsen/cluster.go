package jepsen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"perdure/client"
	"perdure/internal/overlay"
)

// Options say what cluster to start. The zero value is three nodes on loopback, in a temporary folder.
type Options struct {
	// Nodes of the cluster; default 3. One node is a cluster too.
	Nodes int
	// Partitions of the cluster; default 4.
	Partitions int
	// Binary is the server; default: built from the sources.
	Binary string
	// Dir is where data and logs go; it must be empty or absent. Default: a temporary folder, removed by
	// Close unless Keep.
	Dir  string
	Keep bool
	// Netns puts each node into a network namespace of its own, so that its cable can be pulled. It takes
	// root; see CheckNetns.
	Netns bool
	// Patched says that Binary was built with overlay.Faults, so that clocks and disks can be disturbed. The
	// default is built so then.
	Patched bool
	// DiskBytes puts the data of each node on a disk of its own of this size, in memory, which can be filled. It takes
	// root. 0 leaves the data in Dir.
	DiskBytes int64
	// CLI is the command line that verifies data; default: built from the sources when it is needed.
	CLI string
	// NoInvariants leaves out --check-invariants, for measurements.
	NoInvariants bool
	// DiskReserve is every node's --disk-reserve; 16MiB if empty. "none" leaves it out, for servers that know none.
	DiskReserve string
	// Args go to every node, after the harness's own.
	Args []string
	// Seed draws addresses.
	Seed uint64
	// Logger gets the harness's actions; nil discards them.
	Logger *slog.Logger
}

// Cluster is a cluster of processes. Its methods are safe for concurrent use, but two concurrent changes of
// one node interfere. Make it with Start.
type Cluster struct {
	opts  Options
	dir   string
	wires *wires // nil on loopback
	nodes []*Node
	log   *slog.Logger
	// workers are processes of the harness's own; see StartWorkers.
	workers []*Worker

	mu               sync.Mutex
	unexpectedEvents []string
	rng              *rand.Rand // what faults draw
}

// The ports of a node in a namespace of its own: the documented defaults.
const grpcPort, httpPort, peerPort, gossipPort = 7400, 7401, 7402, 7403

// Start makes a cluster and starts all of its nodes, without waiting for them; see WaitReady. The nodes run
// until they are killed, Close is called, or the harness ends.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{opts: o, log: o.Logger, dir: o.Dir}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for _, n := range c.nodes {
		if err := n.Start(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// prepare makes everything but the processes.
func (c *Cluster) prepare(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(c.opts.Seed, uint64(time.Now().UnixNano())))
	c.rng = rand.New(rand.NewPCG(c.opts.Seed, 8))
	var err error
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "perdure-jepsen-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	if c.opts.Binary == "" {
		if c.opts.Binary, err = Build(ctx, c.dir, c.opts.build()); err != nil {
			return err
		}
	}
	if c.opts.Netns {
		if c.wires, err = newWires(ctx, c.opts.Nodes, rng); err != nil {
			return err
		}
	}
	for i := range c.opts.Nodes {
		n := newNode(c, i)
		for j, addr := range []*string{&n.GRPCAddr, &n.HTTPAddr, &n.PeerAddr, &n.GossipAddr} {
			host, port := "127.0.0.1", []int{grpcPort, httpPort, peerPort, gossipPort}[j]
			if c.wires != nil {
				host = c.wires.addr(i)
			} else if port, err = freePort(rng); err != nil {
				return err
			}
			*addr = net.JoinHostPort(host, strconv.Itoa(port))
		}
		if c.wires != nil {
			n.namespace = c.wires.namespace(i)
		}
		if c.opts.DiskBytes > 0 {
			if err := n.mount(ctx, c.opts.DiskBytes); err != nil {
				return err
			}
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

// build says how the server is to be built.
func (o Options) build() BuildOptions {
	if o.Patched {
		return BuildOptions{Patches: overlay.Faults()}
	}
	return BuildOptions{}
}

// drawnPorts are those that this process has drawn: the port of a node that is down has no listener either.
var drawnPorts struct {
	sync.Mutex
	list []int
}

// freePort draws a port without a listener, below those that the kernel assigns to outgoing connections: a
// node that was down must find its ports free again.
func freePort(rng *rand.Rand) (int, error) {
	drawnPorts.Lock()
	defer drawnPorts.Unlock()
	for range 1000 {
		port := 25000 + rng.IntN(7000)
		if slices.Contains(drawnPorts.list, port) {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = tcp.Close()                           // it was only asked for its port
		udp, err := net.ListenPacket("udp", addr) // gossip speaks both
		if err != nil {
			continue
		}
		_ = udp.Close() // likewise
		drawnPorts.list = append(drawnPorts.list, port)
		return port, nil
	}
	return 0, errors.New("no free port found in 25000 to 31999")
}

// Close ends all nodes and workers at once and removes what Start has made. It is idempotent.
func (c *Cluster) Close() error {
	var errs []error
	for _, w := range c.workers {
		errs = append(errs, w.Kill())
	}
	for _, n := range c.nodes {
		errs = append(errs, n.Kill(), n.unmount())
	}
	if c.wires != nil {
		errs = append(errs, c.wires.Close())
		c.wires = nil
	}
	if c.opts.Dir == "" && !c.opts.Keep && c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// Dir is where data and logs are.
func (c *Cluster) Dir() string { return c.dir }

// Nodes are all nodes, in the order of their names.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Addrs are the gRPC addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.GRPCAddr)
	}
	return out
}

// Client makes a client that knows all nodes, or only the given ones. Each call fails after timeout.
func (c *Cluster) Client(timeout time.Duration, only ...*Node) (*client.Client, error) {
	addrs := c.Addrs()
	if len(only) > 0 {
		addrs = nil
		for _, n := range only {
			addrs = append(addrs, n.GRPCAddr)
		}
	}
	return client.Dial(client.Options{Addrs: addrs, Timeout: timeout, Logger: c.log, AnyNode: len(only) > 0})
}

// unexpected records an event that no run may have.
func (c *Cluster) unexpected(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.log.Error("unexpected event", "event", "unexpected", "what", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unexpectedEvents = append(c.unexpectedEvents, text)
}

// UnexpectedEvents lists the processes so far that ended although the harness had not killed them. No fault may
// cause one.
func (c *Cluster) UnexpectedEvents() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.unexpectedEvents)
}

// Complaints returns the lines of all logs that show a bug in the server: panics, broken invariants, races.
func (c *Cluster) Complaints() []string {
	var all []*process
	for _, n := range c.nodes {
		all = append(all, &n.process)
	}
	for _, w := range c.workers {
		all = append(all, &w.process)
	}
	var out []string
	for _, n := range all {
		data, err := os.ReadFile(n.LogFile)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			for _, mark := range []string{"panic:", "fatal error:", "WARNING: DATA RACE", "invariant", "diverged"} {
				if strings.Contains(line, mark) && !strings.Contains(line, "check-invariants") && len(out) < 20 {
					out = append(out, n.Name+": "+strings.TrimSpace(line))
					break
				}
			}
		}
	}
	return out
}
