package jepsen

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Node is one member: an address, a data directory, and a process now and then.
type Node struct {
	c     *Cluster
	Index int
	Name  string
	// The addresses stay the same over restarts, and over a wipe.
	GRPCAddr, HTTPAddr, PeerAddr, GossipAddr string
	DataDir, LogFile                         string

	namespace string // empty on loopback

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	killed bool          // its end is our doing
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
		args = append(args, "--insecure") // the address is not loopback, though nobody else is on that network
	}
	return append(args, n.c.opts.Args...)
}

// Start starts the process and returns at once. A node that runs already is left alone.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running() {
		return nil
	}
	log, err := os.OpenFile(n.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	name, args := n.c.opts.Binary, n.args()
	if n.namespace != "" {
		// ip becomes the node by exec, so the process id is the node's.
		name, args = "ip", append([]string{"netns", "exec", n.namespace, name}, args...)
	}
	fmt.Fprintf(log, "--- %s: %s\n", time.Now().UTC().Format(time.RFC3339Nano), strings.Join(args, " "))
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	ownGroup(cmd)
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	n.cmd, n.ended, n.killed = cmd, make(chan struct{}), false
	n.c.log.Info("started", "node", n.Name, "pid", cmd.Process.Pid)
	go n.reap(cmd, n.ended)
	return nil
}

// spawn starts a process from a thread that never ends: Linux takes the death of the thread that started
// it for the death of the parent.
func spawn(cmd *exec.Cmd) error {
	answer := make(chan error)
	spawner() <- func() { answer <- cmd.Start() }
	return <-answer
}

var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// reap waits for the end of a process.
func (n *Node) reap(cmd *exec.Cmd, ended chan struct{}) {
	err := cmd.Wait()
	n.mu.Lock()
	expected := n.killed
	n.mu.Unlock()
	if !expected {
		n.c.surprise("%s ended by itself: %v; it said last: %s", n.Name, err, n.LastWords())
	}
	close(ended)
}

// LastWords are the last lines of the node's log.
func (n *Node) LastWords() string {
	data, err := os.ReadFile(n.LogFile)
	if err != nil {
		return err.Error()
	}
	const most = 1000
	if len(data) > most {
		data = data[len(data)-most:]
	}
	return strings.TrimSpace(string(data))
}

// running is Running for those who hold the lock.
func (n *Node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Running says whether there is a process; one that stands still counts.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running()
}

// Kill ends the process at once (SIGKILL), paused or not, and returns when it is gone.
func (n *Node) Kill() error { return n.end(sigKill) }

// Stop asks the process to end in order (SIGTERM) and returns when it has, but not later than after a
// minute, with an error.
func (n *Node) Stop() error { return n.end(sigTerm) }

func (n *Node) end(sig os.Signal) error {
	n.mu.Lock()
	if !n.running() {
		n.mu.Unlock()
		return nil
	}
	n.killed = true
	process, ended := n.cmd.Process, n.ended
	n.mu.Unlock()
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v to %s: %w", sig, n.Name, err)
	}
	select {
	case <-ended:
		n.c.log.Info("ended", "node", n.Name, "signal", sig.String())
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%s has not ended a minute after %v", n.Name, sig)
	}
}

// Pause makes the process stand still (SIGSTOP); Resume lets it go on, with all its deadlines passed.
func (n *Node) Pause() error { return n.signal(sigStop) }

// Resume ends a Pause.
func (n *Node) Resume() error { return n.signal(sigResume) }

func (n *Node) signal(sig os.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running() {
		return fmt.Errorf("%v to %s: it does not run", sig, n.Name)
	}
	n.c.log.Info("signal", "node", n.Name, "signal", sig.String())
	return n.cmd.Process.Signal(sig)
}

// ErrNeedsNetns says that a fault needs a cluster in network namespaces.
var ErrNeedsNetns = errors.New("this fault needs each node in a network namespace of its own (Options.Netns)")

// Cut pulls the node's cable: its host has vanished, for clients and for nodes. Nobody gets an error.
func (n *Node) Cut(ctx context.Context) error { return n.wire(ctx, (*wires).cut) }

// Join puts the cable back.
func (n *Node) Join(ctx context.Context) error { return n.wire(ctx, (*wires).join) }

// Mute loses what the node sends to the others given, both ways if both is true. Clients and further nodes
// do not notice.
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

// Unmute ends everything that Mute did from or to this node.
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
		return fmt.Errorf("wiping %s: it runs", n.Name)
	}
	return os.RemoveAll(n.DataDir)
}

// probe asks readiness; without keep-alives, so that no dead connection is asked.
var probe = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Ready asks the node whether it is ready, and says why not.
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
