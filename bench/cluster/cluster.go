// Package cluster starts processes to be measured, and reads what they have used.
//
// It owns a temporary folder, the node processes in it, and their addresses on loopback. Nodes run as in production:
// every entry synced, no checks of invariants. Close ends every process by its id and removes the folder; on Linux the
// kernel ends them too when the caller's process ends, however it ends. Data does not outlive Close.
//
//	c, err := cluster.Start(ctx, cluster.Options{Nodes: 3, Binary: binary})
//	defer c.Close()
//	before, err := c.Usage(ctx)
//	...
//	after, err := c.Usage(ctx)
//	fmt.Println(after.Sub(before).CPU)
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options say what to start.
type Options struct {
	// Nodes is the size of the cluster: 1, 3, 5 or 7.
	Nodes int
	// Binary is the server's, see Build. Env is added to its environment.
	Binary string
	Env    []string
	// Partitions is the node's setting; its default if 0.
	Partitions int
	// Parent is where the temporary folder goes; the system's choice if empty. The disk under it is part of
	// what is measured.
	Parent string
	// Args go to every node.
	Args []string
	// Prepare, if set, fills the data directory of a node before its first start.
	Prepare func(dir, nodeID, peerAddr string) error
}

// Cluster is a running cluster. Its methods are not safe for concurrent use.
type Cluster struct {
	dir   string
	ports *Ports
	nodes []*Node
}

// Node is one member of a cluster.
type Node struct {
	*Process
	grpc, http, peer, gossip string
	start                    func() (*Process, error)
	// past is what its former processes have used.
	past Usage
}

// readyTimeout bounds the start of a cluster.
const readyTimeout = time.Minute

// Start starts a cluster and waits until all nodes serve.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	dir, err := os.MkdirTemp(o.Parent, "perdure-bench-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	const each = 4
	var err error
	if c.ports, err = Reserve(each * o.Nodes); err != nil {
		return err
	}
	var gossip []string
	for i := range o.Nodes {
		addrs := c.ports.Addrs[each*i:]
		c.nodes = append(c.nodes, &Node{grpc: addrs[0], http: addrs[1], peer: addrs[2], gossip: addrs[3]})
		gossip = append(gossip, addrs[3])
	}
	for i, n := range c.nodes {
		name := "n" + strconv.Itoa(i+1)
		args := []string{"start", "--node-id", name, "--data", filepath.Join(c.dir, name),
			"--grpc-addr", n.grpc, "--http-addr", n.http, "--peer-addr", n.peer, "--gossip-addr", n.gossip}
		if o.Partitions > 0 {
			args = append(args, "--partitions", strconv.Itoa(o.Partitions))
		}
		if o.Nodes > 1 {
			args = append(args, "--join", strings.Join(gossip, ","), "--bootstrap-expect", strconv.Itoa(o.Nodes))
		}
		n.start = func() (*Process, error) {
			cmd := exec.Command(o.Binary, append(args, o.Args...)...)
			// A setting, not a flag: earlier servers that a comparison starts do not know it.
			cmd.Env = append(append(os.Environ(), "PERDURE_DISK_RESERVE=64MiB"), o.Env...)
			return Spawn(cmd, filepath.Join(c.dir, name+".log"))
		}
		if o.Prepare != nil {
			if err := o.Prepare(filepath.Join(c.dir, name), name, n.peer); err != nil {
				return fmt.Errorf("filling the data directory of %s: %w", name, err)
			}
		}
		if n.Process, err = n.start(); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// WaitReady waits until every node serves.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, n := range c.nodes {
		for {
			err := n.ready(ctx)
			if err == nil {
				break
			}
			if !n.Running() {
				return fmt.Errorf("the node has ended: %s", n.LastLog())
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the cluster is not ready: %w: %s", err, n.LastLog())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// web asks nodes; a connection of its own for each request, so that none outlives its node.
var web = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (n *Node) ready(ctx context.Context) error {
	body, err := n.get(ctx, "/readyz")
	if err != nil {
		return err
	}
	return body.Close()
}

// Addrs are the gRPC addresses for clients and workers.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.grpc)
	}
	return out
}

// URLs are those of the nodes' HTTP ports, in the order of Addrs.
func (c *Cluster) URLs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, "http://"+n.http)
	}
	return out
}

// Close ends all nodes and removes their data.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		if n.Process != nil {
			errs = append(errs, n.Kill())
		}
	}
	if c.ports != nil {
		errs = append(errs, c.ports.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// KillLeader kills the node that leads most partitions, and returns it.
func (c *Cluster) KillLeader(ctx context.Context) (*Node, error) {
	var most *Node
	led := -1.0
	for _, n := range c.nodes {
		m, err := n.metrics(ctx)
		if err != nil {
			return nil, err
		}
		if leads := m[leaderMetric]; leads > led {
			most, led = n, leads
		}
	}
	used, err := most.usage(ctx)
	if err != nil {
		return nil, err
	}
	most.past = used
	return most, most.Kill()
}

// Stored is the size of all nodes' files, in bytes.
func (c *Cluster) Stored() (bytes int64, err error) {
	err = filepath.WalkDir(c.dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return gone(err)
		}
		info, err := d.Info()
		if err != nil {
			return gone(err)
		}
		bytes += info.Size()
		return nil
	})
	return bytes, err
}

// gone drops the error of a file that its node has deleted meanwhile.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Restart starts a node that was killed. It does not wait until the node serves.
func (n *Node) Restart() (err error) {
	n.Process, err = n.start()
	return err
}
