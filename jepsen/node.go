package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/internal/overlay"
)

// Node is one member: an address, a data directory, and a process while it runs.
type Node struct {
	process
	Index int
	// The addresses stay the same over restarts, and over a wipe.
	GRPCAddr, HTTPAddr, PeerAddr, GossipAddr string
	DataDir                                  string

	binary    atomic.Pointer[string] // the server, when it is another than the cluster's
	namespace string                 // empty on loopback
	disk      string                 // where the node's own disk is mounted; empty without one

	hurt struct {
		sync.Mutex
		disturbance Disturbance
		damaged     []uint32 // partitions whose files were damaged, and not rebuilt since
	}
}

// newNode makes node i of a cluster, without addresses.
func newNode(c *Cluster, i int) *Node {
	n := &Node{process: process{c: c, Name: "n" + strconv.Itoa(i+1)}, Index: i}
	n.DataDir, n.LogFile = filepath.Join(c.dir, n.Name), filepath.Join(c.dir, n.Name+".log")
	n.command = func() *exec.Cmd {
		binary := c.opts.Binary
		if own := n.binary.Load(); own != nil {
			binary = *own
		}
		cmd := exec.Command(binary, n.args()...)
		if n.namespace != "" {
			// ip becomes the node by exec, so the process id is the node's.
			cmd = exec.Command("ip", append([]string{"netns", "exec", n.namespace, binary}, n.args()...)...)
		}
		if c.opts.Patched {
			cmd.Env = append(os.Environ(), overlay.FaultsEnv+"="+n.faultsFile())
		}
		return cmd
	}
	return n
}

// args is the command line of the node.
func (n *Node) args() []string {
	var gossip []string
	for _, m := range n.c.nodes {
		gossip = append(gossip, m.GossipAddr)
	}
	args := []string{"start", "--node-id", n.Name, "--data", n.DataDir, "--partitions", strconv.Itoa(n.c.opts.Partitions),
		"--grpc-addr", n.GRPCAddr, "--http-addr", n.HTTPAddr, "--peer-addr", n.PeerAddr, "--gossip-addr", n.GossipAddr}
	if len(gossip) > 1 {
		args = append(args, "--join", strings.Join(gossip, ","), "--bootstrap-expect", strconv.Itoa(len(gossip)))
	}
	if n.namespace != "" {
		args = append(args, "--insecure") // the address is not loopback, though no other host is on that network
	}
	if !n.c.opts.NoInvariants {
		args = append(args, "--check-invariants")
	}
	if n.c.opts.DiskReserve != "none" {
		args = append(args, "--disk-reserve", fallback(n.c.opts.DiskReserve, "16MiB"))
	}
	return append(args, n.c.opts.Args...)
}

// use sets the server binary of the node's next starts.
func (n *Node) use(binary string) { n.binary.Store(&binary) }

// refused starts the node and returns the last line that it prints when it ends by itself. It kills a node
// that still runs after healTimeout, and reports that.
func (n *Node) refused(ctx context.Context) string {
	n.mu.Lock()
	cmd := n.command()
	n.mu.Unlock()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	if err := spawn(cmd); err != nil {
		return err.Error()
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	select {
	case err := <-ended:
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return fmt.Sprintf("%v: %s", err, lines[len(lines)-1])
	case <-ctx.Done():
		_ = cmd.Process.Kill() // it has ended, or ends now
		return fmt.Sprintf("it still ran after %s, and was killed: %v", healTimeout, <-ended)
	}
}

// ErrNeedsNetns says that a fault needs a cluster in network namespaces.
var ErrNeedsNetns = errors.New("this fault needs each node in a network namespace of its own (Options.Netns)")

// Cut pulls the node's cable: its host has vanished, for clients and for nodes. No peer gets an error.
func (n *Node) Cut(ctx context.Context) error { return n.wire(ctx, (*wires).cut) }

// Join puts the cable back.
func (n *Node) Join(ctx context.Context) error { return n.wire(ctx, (*wires).join) }

// Mute drops the node's messages to the given others, in both directions if both is true. Clients and further
// nodes do not notice.
func (n *Node) Mute(ctx context.Context, both bool, others ...*Node) error {
	if n.c.wires == nil {
		return ErrNeedsNetns
	}
	for _, m := range others {
		if m == n {
			continue
		}
		if err := n.c.wires.mute(ctx, n.Index, m.Index); err != nil {
			return err
		}
		if !both {
			continue
		}
		if err := n.c.wires.mute(ctx, m.Index, n.Index); err != nil {
			return err
		}
	}
	return nil
}

// Deafen drops everything that other nodes send to this one. Its messages to them arrive, and so do those of
// clients.
func (n *Node) Deafen(ctx context.Context) error {
	var errs []error
	for _, m := range n.c.nodes {
		errs = append(errs, m.Mute(ctx, false, n))
	}
	return errors.Join(errs...)
}

// Unmute ends everything that Mute and Deafen did from or to this node.
func (n *Node) Unmute(ctx context.Context) error {
	if n.c.wires == nil {
		return ErrNeedsNetns
	}
	var errs []error
	for _, m := range n.c.nodes {
		errs = append(errs, n.c.wires.unmute(ctx, n.Index, m.Index), n.c.wires.unmute(ctx, m.Index, n.Index))
	}
	return errors.Join(errs...)
}

func (n *Node) wire(ctx context.Context, do func(*wires, context.Context, int) error) error {
	if n.c.wires == nil {
		return ErrNeedsNetns
	}
	return do(n.c.wires, ctx, n.Index)
}

// Wipe removes the data of a node that does not run. Started again, it comes back as a new server under
// an old name.
func (n *Node) Wipe() error {
	if n.Running() {
		return fmt.Errorf("cannot wipe %s: it is running", n.Name)
	}
	n.hurt.Lock()
	n.hurt.damaged = nil
	n.hurt.Unlock()
	return os.RemoveAll(n.DataDir)
}

// probe asks readiness; without keep-alives, so that no dead connection is asked.
var probe = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Ready asks the node whether it is ready; the error is its reason.
func (n *Node) Ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTPAddr+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := probe.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: /readyz answers %s", n.Name, resp.Status)
	}
	return nil
}
